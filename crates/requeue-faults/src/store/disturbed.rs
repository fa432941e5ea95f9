//! A store layer for steady runs that lets single calls hang and locks keys.
//!
//! The queue above it must not lose a lease to a call without an answer, nor to the locked
//! key of another lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use requeue_store::{Error, ErrorKind, Hold, Owner, Replies, Store, forward_store};

use crate::run::plan::{Disturbance, Plan};
use crate::store::bug::Bug;
use crate::time::now;

pub(crate) struct Disturbed {
    store: Arc<dyn Store>,
    plan: Plan,
    /// The seeded bug that one locked key fails the whole batch.
    batches_fail: bool,
    /// The number of the last disturbance that hung a call, plus one.
    last_hung: AtomicU64,
}

impl Disturbed {
    pub(crate) fn new(store: Arc<dyn Store>, plan: Plan, bug: Option<Bug>) -> Self {
        let batches_fail = bug == Some(Bug::BatchFails);
        Self { store, plan, batches_fail, last_hung: AtomicU64::new(0) }
    }

    /// Returns whether this call hangs: the first in its disturbance.
    fn hangs(&self) -> bool {
        let Disturbance::HungCall(number) = self.plan.disturbance(now()) else {
            return false;
        };
        self.last_hung.swap(number + 1, Ordering::Relaxed) != number + 1
    }

    fn is_locked(&self, hold: &Hold) -> bool {
        self.plan.is_locked(&hold.key.to_string(), now())
    }
}

impl Store for Disturbed {
    fn extend<'a>(
        &'a self,
        owner: &'a Owner,
        held: &'a [Hold],
        lease: Duration,
    ) -> Replies<'a, bool> {
        Box::pin(async move {
            if !held.is_empty() && self.hangs() {
                std::future::pending::<()>().await;
            }
            let mut locked: Vec<_> =
                held.iter().map(|hold| self.is_locked(hold)).collect();
            if self.batches_fail && locked.contains(&true) {
                locked.fill(true);
            }
            let pairs = held.iter().zip(&locked).filter(|(_, locked)| !**locked);
            let free: Vec<_> = pairs.map(|(hold, _)| hold.clone()).collect();
            let mut answers = self.store.extend(owner, &free, lease).await.into_iter();
            let answer = |locked: &bool| match locked {
                true => Err(Error::new(ErrorKind::Busy, "the key is locked")),
                false => answers.next().unwrap_or_else(missing),
            };
            locked.iter().map(answer).collect()
        })
    }

    forward_store!(self => self.store; describe, add, lease, heartbeat, finish, reclaim,
        expire, forget, remove, look, take, lane, stats, failing, workers, dead, revive,
        drop_dead, pause, resume, wait);
}

fn missing<T>() -> Result<T, Error> {
    Err(Error::new(ErrorKind::Server, "the store answered too few keys"))
}
