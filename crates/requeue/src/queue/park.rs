//! Parked getters: threads and tasks that wait for a key.
//!
//! A getter that finds no ready key registers a [`Wake`] under the queue's lock and goes to
//! sleep. When a key becomes ready, the caller removes one parked getter and wakes it after
//! releasing the lock. A woken getter is *in transit* until it takes the lock again and
//! looks for a key.
//!
//! One parked getter is the *leader*. Only the leader sets a timer, for the earliest
//! deadline. This is why a queue needs no background thread.
//!
//! # Invariants
//!
//! They hold whenever the lock is released; [`Park::settle`] restores them.
//!
//! 1. While any getter is parked, the number of getters in transit is at least the number
//!    of deliverable keys.
//! 2. While any getter is parked and a key is delayed, the leader is in transit, or it is
//!    parked and sleeps no longer than until the earliest deadline.
//! 3. A getter that registered arrives exactly once: when it looks again, or when it
//!    leaves. Until then it is parked or in transit.
//!
//! No wake-up is lost. A getter looks for a key and parks in one lock scope, so a key that
//! becomes ready is either seen by that look or finds the getter parked. A getter that
//! leaves while in transit arrives by leaving, and invariant 1 then wakes another. A worker
//! that never slept may take the key first: the getter that was woken for it parks again,
//! in its old place.

use std::collections::BTreeMap;

use super::nanos::Nanos;
use crate::wake::{DeferredDrop, Wake, Wakes};

/// Identifies a waiting getter. Smaller ids have waited longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ParkedId(u64);

/// The getter that sets the timer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Leader {
    #[default]
    None,
    Parked {
        id: ParkedId,
        until: Nanos,
    },
    InTransit {
        id: ParkedId,
    },
}

impl Leader {
    fn is(self, getter: ParkedId) -> bool {
        match self {
            Self::None => false,
            Self::Parked { id, .. } | Self::InTransit { id } => id == getter,
        }
    }
}

/// The waiting getters of one queue.
#[derive(Default)]
pub(super) struct Park {
    /// Those that have waited longest come first.
    parked: BTreeMap<ParkedId, Wake>,
    in_transit: usize,
    leader: Leader,
    last_id: u64,
}

impl Park {
    pub(super) fn len(&self) -> usize {
        self.parked.len()
    }

    /// Whether no getter is parked, so that no change of the state affects any.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.parked.is_empty()
    }

    /// Parks a getter. One that has waited before gets its old place back.
    ///
    /// Returns when it must look again if it is now the leader, and `None` if it sleeps until
    /// it is woken. `next` is the earliest deadline.
    pub(super) fn park(
        &mut self,
        id: Option<ParkedId>,
        wake: Wake,
        next: Option<Nanos>,
    ) -> (ParkedId, Option<Nanos>) {
        let id = id.unwrap_or_else(|| {
            self.last_id += 1;
            ParkedId(self.last_id)
        });
        let before = self.parked.insert(id, wake);
        debug_assert!(before.is_none(), "invariant 3: a getter arrives before it parks");
        (id, self.lead(id, next))
    }

    /// Makes a parked getter the leader, unless another parked getter leads.
    fn lead(&mut self, id: ParkedId, next: Option<Nanos>) -> Option<Nanos> {
        if matches!(self.leader, Leader::Parked { .. }) {
            return None;
        }
        let until = next?;
        self.leader = Leader::Parked { id, until };
        Some(until)
    }

    /// Ends the registration of a getter that looks for a key or leaves (invariant 3).
    pub(super) fn arrive(&mut self, id: ParkedId) -> DeferredDrop {
        let wake = self.parked.remove(&id);
        if wake.is_none() {
            self.in_transit -= 1;
        }
        if self.leader.is(id) {
            self.leader = Leader::None;
        }
        DeferredDrop::new(wake)
    }

    /// Restores the invariants, given the number of ready keys and the earliest deadline.
    pub(super) fn settle(&mut self, ready: usize, next: Option<Nanos>) -> Wakes {
        let mut wakes = Wakes::default();
        while self.in_transit < ready {
            let Some(wake) = self.call_longest() else { break };
            wakes.push(wake);
        }
        if let Some(wake) = next.and_then(|next| self.call_leader(next)) {
            wakes.push(wake);
        }
        wakes
    }

    /// Invariant 1: removes the getter that has waited longest. The leader goes last, so
    /// that the lead changes rarely.
    fn call_longest(&mut self) -> Option<Wake> {
        let mut ids = self.parked.keys().copied();
        let first = ids.next()?;
        let id = if self.leader.is(first) { ids.next().unwrap_or(first) } else { first };
        self.call(id)
    }

    /// Invariant 2: removes the leader if it would sleep too long, or a getter that is to
    /// lead. It looks again and parks with the new deadline.
    fn call_leader(&mut self, next: Nanos) -> Option<Wake> {
        let id = match self.leader {
            Leader::InTransit { .. } => return None,
            Leader::Parked { until, .. } if until <= next => return None,
            Leader::Parked { id, .. } => id,
            Leader::None => *self.parked.keys().next()?,
        };
        self.leader = Leader::InTransit { id };
        self.call(id)
    }

    /// Removes a parked getter, which is in transit from now on.
    fn call(&mut self, id: ParkedId) -> Option<Wake> {
        let wake = self.parked.remove(&id)?;
        self.in_transit += 1;
        if self.leader.is(id) {
            self.leader = Leader::InTransit { id };
        }
        Some(wake)
    }

    /// Removes every getter: the queue is closed.
    pub(super) fn call_all(&mut self, wakes: &mut Wakes) {
        while let Some(wake) = self.call_longest() {
            wakes.push(wake);
        }
    }
}

#[cfg(all(test, not(any(requeue_loom, requeue_shuttle))))]
mod tests;
