//! A store layer that simulates crashed runs in a process that lives on.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use requeue_store::{
    Error, FinishRequest, Finished, Hold, Owner, Replies, Store, forward_store,
};

/// Drops the heartbeats and finishes of crashed runs.
pub(crate) struct CrashedRuns {
    store: Arc<dyn Store>,
    crashed: Mutex<HashSet<Hold>>,
}

impl CrashedRuns {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, crashed: Mutex::default() }
    }

    /// Simulates a crash: the lease is never extended or finished from now on.
    pub(crate) fn crash(&self, hold: Hold) {
        self.crashed().insert(hold);
    }

    fn crashed(&self) -> MutexGuard<'_, HashSet<Hold>> {
        self.crashed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns for each item whether its run is alive.
    fn alive<T>(&self, items: &[T], hold: impl Fn(&T) -> &Hold) -> Vec<bool> {
        let crashed = self.crashed();
        items.iter().map(|item| !crashed.contains(hold(item))).collect()
    }
}

fn select<T: Clone>(items: &[T], selected: &[bool]) -> Vec<T> {
    let pairs = items.iter().zip(selected).filter(|(_, selected)| **selected);
    pairs.map(|(item, _)| item.clone()).collect()
}

/// Returns one answer per item: the next of `answers` where selected, `other` elsewhere.
fn merge<T: Clone>(
    answers: Vec<Result<T, Error>>,
    selected: &[bool],
    other: &T,
) -> Vec<Result<T, Error>> {
    let mut answers = answers.into_iter();
    let answer = |selected: &bool| {
        if *selected { answers.next() } else { Some(Ok(other.clone())) }
    };
    selected.iter().map_while(answer).collect()
}

impl Store for CrashedRuns {
    fn extend<'a>(
        &'a self,
        owner: &'a Owner,
        held: &'a [Hold],
        lease: Duration,
    ) -> Replies<'a, bool> {
        Box::pin(async move {
            let alive = self.alive(held, |hold| hold);
            let extended = self.store.extend(owner, &select(held, &alive), lease).await;
            merge(extended, &alive, &false)
        })
    }

    fn finish<'a>(&'a self, requests: &'a [FinishRequest]) -> Replies<'a, Finished> {
        Box::pin(async move {
            let alive = self.alive(requests, |request| &request.hold);
            let finished = self.store.finish(&select(requests, &alive)).await;
            merge(finished, &alive, &Finished::LeaseLost)
        })
    }

    forward_store!(self => self.store; describe, add, lease, heartbeat, reclaim, expire,
        forget, remove, look, take, lane, stats, failing, workers, dead, revive, drop_dead, pause, resume,
        wait);
}
