//! The leases that this client holds, as far as it knows.
//!
//! A holder trusts only its own monotonic clock and counts from before its request. So its
//! view of a lease ends before the engine's does, whatever the network does.
//!
//! # Invariants
//!
//! 1. A fence is earlier than the deadline in the engine: it is counted from before the
//!    call that granted or extended the lease, and a margin is subtracted.
//! 2. A lost lease stays lost, and a finished lease is never lost.
//! 3. A lease is held until the store has answered its finish, or the finish is given up.
//!    So the heartbeat extends it while a slow finish is in flight.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use requeue::Clock;
use tokio::sync::Notify;

use crate::race::race;
use crate::sync::lock;
use crate::{Error, Hold, Key};

/// All held leases.
#[derive(Debug)]
pub(crate) struct HeldLeases {
    leases: Mutex<HashMap<Hold, Arc<HeldLease>>>,
    /// Notified when a lease is removed.
    removed: Arc<Notify>,
}

/// One held lease, shared by its holder and the heartbeat.
#[derive(Debug)]
pub(crate) struct HeldLease {
    pub(crate) hold: Hold,
    state: Mutex<LeaseState>,
    /// Notified when the state changes.
    changed: Notify,
}

#[derive(Clone, Copy, Debug)]
enum LeaseState {
    /// The holder must stop before this fence. `None` is beyond the range of the clock.
    Held(Option<Instant>),
    /// The engine refused an extension, or the fence was reached.
    Lost,
    /// The holder has finished it.
    Finished,
}

/// Returns the time at which a holder must stop: a tenth of the lease before its end.
pub(crate) fn fence(asked: Instant, lease: Duration) -> Option<Instant> {
    asked.checked_add(lease / 10 * 9)
}

impl HeldLeases {
    /// Creates an empty set that notifies `removed` when a lease is removed.
    pub(crate) fn new(removed: Arc<Notify>) -> Self {
        Self { leases: Mutex::default(), removed }
    }

    pub(crate) fn insert(&self, hold: Hold, fence: Option<Instant>) -> Arc<HeldLease> {
        let state = Mutex::new(LeaseState::Held(fence));
        let lease = Arc::new(HeldLease { hold, state, changed: Notify::new() });
        lock(&self.leases).insert(lease.hold.clone(), Arc::clone(&lease));
        lease
    }

    fn remove(&self, hold: &Hold) {
        lock(&self.leases).remove(hold);
        self.removed.notify_waiters();
    }

    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.leases).is_empty()
    }

    /// Returns the keys of the leases that are neither finished nor lost.
    pub(crate) fn running(&self) -> Vec<Key> {
        let leases = lock(&self.leases);
        let held =
            leases.values().filter(|lease| matches!(lease.state(), LeaseState::Held(_)));
        held.map(|lease| lease.hold.key.clone()).collect()
    }

    /// Returns the leases to extend: all that are not lost.
    pub(crate) fn holds(&self) -> Vec<Hold> {
        let leases = lock(&self.leases);
        let held =
            leases.values().filter(|lease| !matches!(lease.state(), LeaseState::Lost));
        held.map(|lease| lease.hold.clone()).collect()
    }

    /// Records the engine's answers to an extension. Errors change nothing.
    pub(crate) fn extended(
        &self,
        holds: &[Hold],
        answers: &[Result<bool, Error>],
        fence: Option<Instant>,
    ) {
        for (hold, answer) in holds.iter().zip(answers) {
            let Ok(is_held) = answer else { continue };
            let Some(lease) = lock(&self.leases).get(hold).cloned() else { continue };
            if *is_held {
                lease.set_state(LeaseState::Held(fence));
            } else {
                lease.set_state(LeaseState::Lost);
                self.remove(hold);
            }
        }
    }
}

/// Keeps a lease among the held ones while its finish is in flight: invariant 3.
#[derive(Debug)]
pub(crate) struct FinishGuard {
    hold: Hold,
    leases: Arc<HeldLeases>,
}

impl Drop for FinishGuard {
    fn drop(&mut self) {
        self.leases.remove(&self.hold);
    }
}

impl HeldLease {
    fn state(&self) -> LeaseState {
        *lock(&self.state)
    }

    /// Keeps invariant 2.
    fn set_state(&self, next: LeaseState) {
        {
            let mut state = lock(&self.state);
            if matches!(*state, LeaseState::Lost | LeaseState::Finished) {
                return;
            }
            *state = next;
        }
        self.changed.notify_waiters();
    }

    /// Marks the lease as finished by its holder.
    pub(crate) fn finish(&self, leases: &Arc<HeldLeases>) -> FinishGuard {
        self.set_state(LeaseState::Finished);
        FinishGuard { hold: self.hold.clone(), leases: Arc::clone(leases) }
    }

    /// Returns whether the holder must stop.
    pub(crate) fn is_lost(&self, clock: &dyn Clock) -> bool {
        match self.state() {
            LeaseState::Held(Some(fence)) if clock.now() >= fence => {
                self.set_state(LeaseState::Lost);
                true
            }
            LeaseState::Held(_) | LeaseState::Finished => false,
            LeaseState::Lost => true,
        }
    }

    /// Returns when the holder must stop, unless the lease is extended.
    pub(crate) fn fence(&self) -> Option<Instant> {
        match self.state() {
            LeaseState::Held(fence) => fence,
            LeaseState::Lost | LeaseState::Finished => None,
        }
    }

    /// Waits until the holder must stop.
    pub(crate) async fn lost(&self, clock: &dyn Clock) {
        loop {
            // Listens before it looks, so that no change is missed.
            let changed = self.changed.notified();
            if self.is_lost(clock) {
                return;
            }
            let timer = match self.state() {
                LeaseState::Held(fence) => fence.map(|fence| clock.timer(fence)),
                LeaseState::Lost | LeaseState::Finished => None,
            };
            race(changed, timer).await;
        }
    }
}
