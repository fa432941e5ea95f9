//! The leases that this process holds, as far as it knows.
//!
//! A holder trusts its own monotonic clock, and counts from before it asked: whatever the
//! network does, its view of the lease ends before the engine's does.
//!
//! # Invariants
//!
//! 1. `fence` is earlier than the end of the lease in the engine: it is counted from
//!    before the call that was granted or extended it, and a margin is taken off.
//! 2. A lease that is lost stays so.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use requeue::Clock;
use tokio::sync::Notify;

use crate::sync::lock;
use crate::{Hold, race};

/// All leases that are held.
#[derive(Debug, Default)]
pub(crate) struct HeldLeases {
    leases: Mutex<HashMap<Hold, Arc<HeldLease>>>,
    /// Told when a lease has ended.
    pub(crate) ended: Notify,
}

/// One of them, shared by its holder and by the heartbeat.
#[derive(Debug)]
pub(crate) struct HeldLease {
    pub(crate) hold: Hold,
    /// When the holder must have stopped. `None` if that is beyond what a clock can tell.
    fence: Mutex<Option<Instant>>,
    lost: AtomicBool,
    /// Told when the fence has moved or the lease is lost.
    news: Notify,
}

/// The moment by which a holder must have stopped: a tenth of the lease before its end.
pub(crate) fn fence(asked: Instant, lease: Duration) -> Option<Instant> {
    asked.checked_add(lease / 10 * 9)
}

impl HeldLeases {
    pub(crate) fn insert(&self, hold: Hold, fence: Option<Instant>) -> Arc<HeldLease> {
        let (lost, news) = (AtomicBool::new(false), Notify::new());
        let lease = HeldLease { hold, fence: Mutex::new(fence), lost, news };
        let lease = Arc::new(lease);
        lock(&self.leases).insert(lease.hold.clone(), Arc::clone(&lease));
        lease
    }

    pub(crate) fn remove(&self, hold: &Hold) {
        lock(&self.leases).remove(hold);
        self.ended.notify_waiters();
    }

    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.leases).is_empty()
    }

    /// What the engine is told is held: not what is known to be lost.
    pub(crate) fn holds(&self) -> Vec<Hold> {
        lock(&self.leases).keys().cloned().collect()
    }

    /// Notes what the engine said of each: whether it is still held.
    pub(crate) fn extended(
        &self,
        holds: &[Hold],
        answers: &[bool],
        fence: Option<Instant>,
    ) {
        for (hold, is_held) in holds.iter().zip(answers) {
            let lease = lock(&self.leases).get(hold).cloned();
            match lease {
                Some(lease) if *is_held => lease.extend(fence),
                Some(lease) => {
                    lease.lose();
                    self.remove(hold);
                }
                None => {}
            }
        }
    }
}

impl HeldLease {
    fn extend(&self, fence: Option<Instant>) {
        *lock(&self.fence) = fence;
        self.news.notify_waiters();
    }

    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
        self.news.notify_waiters();
    }

    /// Whether the holder must stop: the engine said so, or the fence has been reached.
    pub(crate) fn is_lost(&self, clock: &dyn Clock) -> bool {
        if self.lost.load(Ordering::Acquire) {
            return true;
        }
        let passed = lock(&self.fence).is_some_and(|fence| clock.now() >= fence);
        if passed {
            self.lose();
        }
        passed
    }

    /// Waits until the holder must stop.
    pub(crate) async fn lost(&self, clock: &dyn Clock) {
        loop {
            // Listens before it looks, so that no news is missed.
            let news = self.news.notified();
            if self.is_lost(clock) {
                return;
            }
            let timer = (*lock(&self.fence)).map(|fence| clock.timer(fence));
            race::first(news, timer).await;
        }
    }
}
