//! The leases that this process holds, as far as it knows.
//!
//! A holder trusts its own monotonic clock, and counts from before it asked: whatever the
//! network does, its view of the lease ends before the engine's does.
//!
//! # Invariants
//!
//! 1. `fence` is earlier than the end of the lease in the engine: it is counted from
//!    before the call that was granted or extended it, and a margin is taken off.
//! 2. A lease that is lost stays so, and one that its holder has ended is not lost.
//! 3. A lease is among those that are held until the store has answered to its end, or
//!    nobody will say it any more: an end that takes long must not come too late.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use requeue::Clock;
use tokio::sync::Notify;

use crate::sync::lock;
use crate::{Hold, Key, race};

/// All leases that are held.
#[derive(Debug)]
pub(crate) struct HeldLeases {
    leases: Mutex<HashMap<Hold, Arc<HeldLease>>>,
    /// Told when a lease is held no more.
    ended: Arc<Notify>,
}

/// One of them, shared by its holder and by the heartbeat.
#[derive(Debug)]
pub(crate) struct HeldLease {
    pub(crate) hold: Hold,
    fate: Mutex<Fate>,
    /// Told when its fate has changed.
    news: Notify,
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    /// Its holder must have stopped by then. `None` if that is beyond what a clock can tell.
    Held(Option<Instant>),
    /// The engine said so, or the fence was reached.
    Lost,
    /// Its holder has ended it, and the store will be told.
    Ended,
}

/// The moment by which a holder must have stopped: a tenth of the lease before its end.
pub(crate) fn fence(asked: Instant, lease: Duration) -> Option<Instant> {
    asked.checked_add(lease / 10 * 9)
}

impl HeldLeases {
    /// None yet; `ended` is told when one is held no more.
    pub(crate) fn new(ended: Arc<Notify>) -> Self {
        Self { leases: Mutex::default(), ended }
    }

    pub(crate) fn insert(&self, hold: Hold, fence: Option<Instant>) -> Arc<HeldLease> {
        let fate = Mutex::new(Fate::Held(fence));
        let lease = Arc::new(HeldLease { hold, fate, news: Notify::new() });
        lock(&self.leases).insert(lease.hold.clone(), Arc::clone(&lease));
        lease
    }

    fn remove(&self, hold: &Hold) {
        lock(&self.leases).remove(hold);
        self.ended.notify_waiters();
    }

    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.leases).is_empty()
    }

    /// Returns the keys of the leases that have neither ended nor expired.
    pub(crate) fn running(&self) -> Vec<Key> {
        let leases = lock(&self.leases);
        let held = leases.values().filter(|lease| matches!(lease.fate(), Fate::Held(_)));
        held.map(|lease| lease.hold.key.clone()).collect()
    }

    /// What the engine is told is held: not what is known to be lost.
    pub(crate) fn holds(&self) -> Vec<Hold> {
        let leases = lock(&self.leases);
        let held = leases.values().filter(|lease| !matches!(lease.fate(), Fate::Lost));
        held.map(|lease| lease.hold.clone()).collect()
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
                Some(lease) if *is_held => lease.turn_to(Fate::Held(fence)),
                Some(lease) => {
                    lease.turn_to(Fate::Lost);
                    self.remove(hold);
                }
                None => {}
            }
        }
    }
}

/// Has a lease among those that are held for as long as its end is on its way.
#[derive(Debug)]
pub(crate) struct Leaving {
    hold: Hold,
    leases: Arc<HeldLeases>,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.leases.remove(&self.hold);
    }
}

impl HeldLease {
    fn fate(&self) -> Fate {
        *lock(&self.fate)
    }

    /// Keeps invariant 2.
    fn turn_to(&self, next: Fate) {
        {
            let mut fate = lock(&self.fate);
            if matches!(*fate, Fate::Lost | Fate::Ended) {
                return;
            }
            *fate = next;
        }
        self.news.notify_waiters();
    }

    /// Its holder ends it: what keeps invariant 3.
    pub(crate) fn end(&self, leases: &Arc<HeldLeases>) -> Leaving {
        self.turn_to(Fate::Ended);
        Leaving { hold: self.hold.clone(), leases: Arc::clone(leases) }
    }

    /// Whether the holder must stop: the engine said so, or the fence has been reached.
    pub(crate) fn is_lost(&self, clock: &dyn Clock) -> bool {
        match self.fate() {
            Fate::Held(Some(fence)) if clock.now() >= fence => {
                self.turn_to(Fate::Lost);
                true
            }
            Fate::Held(_) | Fate::Ended => false,
            Fate::Lost => true,
        }
    }

    /// Returns when the holder must have stopped, unless the lease is extended.
    pub(crate) fn fence(&self) -> Option<Instant> {
        match self.fate() {
            Fate::Held(fence) => fence,
            Fate::Lost | Fate::Ended => None,
        }
    }

    /// Waits until the holder must stop.
    pub(crate) async fn lost(&self, clock: &dyn Clock) {
        loop {
            // Listens before it looks, so that no news is missed.
            let news = self.news.notified();
            if self.is_lost(clock) {
                return;
            }
            let timer = match self.fate() {
                Fate::Held(fence) => fence.map(|fence| clock.timer(fence)),
                Fate::Lost | Fate::Ended => None,
            };
            race::first(news, timer).await;
        }
    }
}
