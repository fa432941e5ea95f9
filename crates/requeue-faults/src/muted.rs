//! A store that hears nothing more of runs that have died, while their process lives on.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use requeue_store::{End, Finished, Hold, Owner, Reply, Store, forward_store};

/// Keeps back what a process says of leases whose runs have died.
pub(crate) struct Muted {
    store: Arc<dyn Store>,
    dead: Mutex<HashSet<Hold>>,
}

impl Muted {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, dead: Mutex::default() }
    }

    /// Lets a run die: its lease is neither extended nor ended any more.
    pub(crate) fn kill(&self, hold: Hold) {
        self.dead().insert(hold);
    }

    fn dead(&self) -> MutexGuard<'_, HashSet<Hold>> {
        self.dead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For each, whether its run lives.
    fn living<T>(&self, all: &[T], hold: impl Fn(&T) -> &Hold) -> Vec<bool> {
        let dead = self.dead();
        all.iter().map(|one| !dead.contains(hold(one))).collect()
    }
}

/// Those that are chosen.
fn chosen<T: Clone>(all: &[T], choice: &[bool]) -> Vec<T> {
    let pairs = all.iter().zip(choice).filter(|(_, chosen)| **chosen);
    pairs.map(|(one, _)| one.clone()).collect()
}

/// The answers for all: these for the chosen, and for each other this one.
fn spread<T: Clone>(answers: Vec<T>, choice: &[bool], other: &T) -> Vec<T> {
    let mut answers = answers.into_iter();
    let answer =
        |chosen: &bool| if *chosen { answers.next() } else { Some(other.clone()) };
    choice.iter().map_while(answer).collect()
}

impl Store for Muted {
    fn extend<'a>(
        &'a self,
        owner: &'a Owner,
        held: &'a [Hold],
        lease: Duration,
    ) -> Reply<'a, Vec<bool>> {
        Box::pin(async move {
            let living = self.living(held, |hold| hold);
            let extended =
                self.store.extend(owner, &chosen(held, &living), lease).await?;
            Ok(spread(extended, &living, &false))
        })
    }

    fn finish<'a>(&'a self, ends: &'a [End]) -> Reply<'a, Vec<Finished>> {
        Box::pin(async move {
            let living = self.living(ends, |end| &end.hold);
            let finished = self.store.finish(&chosen(ends, &living)).await?;
            Ok(spread(finished, &living, &Finished::LeaseLost))
        })
    }

    forward_store!(self => self.store; describe, add, lease, reclaim, expire, forget,
        remove, look, stats, failing, workers, dead, revive, drop_dead, pause, resume,
        wait, wait_and_lease);
}
