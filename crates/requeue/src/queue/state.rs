//! The keys of a queue: which are ready, delayed or leased, and what happens next.
//!
//! This is the whole meaning of the queue. Nothing here locks, blocks, reads a clock, spawns
//! or wakes: the shell in `shared.rs` does that and acts on what these methods return. Time
//! is an argument, in nanoseconds since the queue was built.
//!
//! # States of a key
//!
//! | phase        | in the order | `add`      | `take`          | `done`                  |
//! |--------------|--------------|------------|-----------------|-------------------------|
//! | (unknown)    | no           | -> `Ready` |                 |                         |
//! | `Dormant`       | no           | -> `Ready` |                 |                         |
//! | `Tracked`    | no           | -> `Ready` |                 |                         |
//! | `Stranded`   | no           | -> `Ready` |                 |                         |
//! | `Ready`      | once         | stays      | -> `Processing` |                         |
//! | `Processing` | no           | -> `Dirty` |                 | -> `Dormant`, `Tracked` or unknown |
//! | `Dirty`      | no           | stays      |                 | -> `Ready`              |
//!
//! An empty cell cannot happen: `take` only takes from the order, and `done` is only reached
//! by consuming a lease. A delay is independent of the phase; when it ends, the key is
//! added. A key that is done is `Dormant` if it has a delay, `Tracked` if it has only failures
//! to remember, and forgotten otherwise. Cancelling a key makes a `Ready` one `Dormant` and a
//! `Dirty` one `Processing`.
//!
//! # Panics in user code
//!
//! `Clone` of the key and the order run here. A call that is about one key of the caller's
//! runs them before it changes anything, so its panic leaves the state unchanged. Time that
//! passes and leases that end must not fail: there the panic is contained, counted, and the
//! key is `Stranded`. So is a key whose `Clone` panics when it is leased. A stranded key
//! waits for its next add; `remove`, `close_now` and `drain` find it.
//!
//! # Invariants
//!
//! 1. The order holds each `Ready` key exactly once, and no other key.
//! 2. A leased key (`Processing` or `Dirty`) stops being leased only in `done`, so at most
//!    one lease for it exists.
//! 3. The table holds each known key exactly once, under the hash in its slot.
//! 4. `tracked` holds each `Tracked` key exactly once, and no other; such a key has
//!    failures and no delay.
//! 5. With `absorb`, a key that is `Ready` or `Dirty` has no delay.
//!
//! client-go keeps the same facts in three sets (`queue`, `dirty`, which also holds the
//! ready keys, and `processing`) and a heap of delays; `state/tests.rs` checks the two representations against each other.

pub(super) use self::deferred::Deferred;
use self::priorities::Priorities;
use super::column::Column;
use super::delay::{Delays, Scheduled};
use super::line::Line;
use super::nanos::Nanos;
use super::offer::Offer;
use super::options::{Added, Counts};
use super::order::{Fifo, Ticket};
use super::slots::{Phase, Slots};
use super::table::{Gap, Table};
use super::timing::Timing;
use crate::contain::contain;

mod deferred;
mod lookup;
mod many;
mod priorities;
mod shrink;
#[cfg(test)]
mod tests;
mod time;
mod undelivered;

/// A leased key.
pub(super) struct Taken<K> {
    pub(super) slot: u32,
    pub(super) key: K,
    pub(super) priority: i32,
}

/// The keys of one queue.
pub(super) struct State<K> {
    slots: Slots<K>,
    table: Table,
    line: Line<K>,
    delays: Delays,
    latest: Nanos,
    closed: bool,
    ready: usize,
    processing: usize,
    dirty: usize,
    stranded: usize,
    /// Failures by slot; grows with the first retry.
    failures: Column<u32>,
    tracked: Fifo,
    max_tracked: usize,
    priorities: Priorities,
    absorb: bool,
    timing: Option<Box<Timing>>,
    /// Contained panics of user code that have not been reported.
    panics: u32,
    /// Clones of keys that were not leased after all, to be dropped after the lock is
    /// released.
    discarded: Vec<K>,
    /// Whether something is left to be done after the lock is released.
    has_deferred: bool,
    /// Empty; its room is used by [`end_delays`](Self::end_delays).
    due: Vec<u32>,
    /// Keys forgotten since memory was last given back.
    forgotten: usize,
}

/// What a queue is built with.
pub(super) struct Rules<K> {
    pub(super) line: Line<K>,
    pub(super) absorb: bool,
    pub(super) capacity: usize,
    pub(super) max_tracked: usize,
    /// Present if the queue has metrics.
    pub(super) timing: Option<Timing>,
}

impl<K> State<K> {
    pub(super) fn new(rules: Rules<K>) -> Self {
        let mut table = Table::default();
        table.reserve(rules.capacity);
        Self {
            slots: Slots::with_capacity(rules.capacity),
            table,
            line: rules.line,
            delays: Delays::default(),
            latest: 0,
            closed: false,
            ready: 0,
            processing: 0,
            dirty: 0,
            stranded: 0,
            failures: Column::default(),
            tracked: Fifo::default(),
            max_tracked: rules.max_tracked,
            priorities: Priorities::default(),
            absorb: rules.absorb,
            timing: rules.timing.map(Box::new),
            panics: 0,
            discarded: Vec::new(),
            has_deferred: false,
            due: Vec::new(),
            forgotten: 0,
        }
    }

    /// Sets a key aside after a contained panic of user code, unless the key is going to be
    /// delivered anyway.
    #[cold]
    fn strand(&mut self, slot: u32, priority: i32) {
        self.note_panic();
        if let Phase::Dormant | Phase::Tracked = self.phase(slot) {
            self.untrack(slot);
            self.slots.set_phase(slot, Phase::Stranded);
            self.stranded += 1;
            self.set_priority(slot, priority);
        }
    }

    /// Adds the key of `offer`, now. Returns `None` if the queue is closed.
    #[inline(always)]
    pub(super) fn add(
        &mut self,
        hash: u32,
        offer: &mut impl Offer<K>,
        priority: i32,
    ) -> Option<Added> {
        if self.is_closed() {
            return None;
        }
        Some(match self.find_offer(hash, offer) {
            Err(gap) => {
                self.admit(gap, offer, priority);
                Added::Ready
            }
            Ok((_, phase)) if self.is_mere_duplicate(phase) => Added::Duplicate,
            Ok((slot, _)) => self.add_slot(slot, priority),
        })
    }

    /// Makes an unknown key ready. The order runs before anything changes.
    #[inline(always)]
    fn admit(&mut self, gap: Gap, offer: &mut impl Offer<K>, priority: i32) -> u32 {
        self.line.push(self.slots.vacancy(), offer.key(), priority);
        let slot = self.enroll(Phase::Ready, gap, offer.take());
        self.ready += 1;
        self.set_priority(slot, priority);
        self.time(|timing| timing.added(slot));
        slot
    }

    /// Whether adding a key again changes nothing at all.
    #[inline]
    fn is_mere_duplicate(&self, phase: Phase) -> bool {
        phase.is_pending() && !self.absorb && !self.line.uses_priorities()
    }

    /// Adds a key that has a slot. The order runs before anything changes.
    pub(super) fn add_slot(&mut self, slot: u32, priority: i32) -> Added {
        let priority = self.raised_priority(slot, priority);
        let added = match self.phase(slot) {
            Phase::Dormant | Phase::Tracked | Phase::Stranded => {
                self.make_ready(slot, priority);
                self.time(|timing| timing.added(slot));
                Added::Ready
            }
            Phase::Ready => {
                self.line.touch(slot, self.slots.key(slot), priority);
                Added::Duplicate
            }
            Phase::Processing => {
                self.slots.set_phase(slot, Phase::Dirty);
                self.dirty += 1;
                self.time(|timing| timing.added(slot));
                Added::Dirty
            }
            Phase::Dirty => Added::Duplicate,
        };
        self.set_priority(slot, priority);
        if self.absorb && self.delays.remove(slot) {
            self.priorities.take_delayed(slot);
        }
        added
    }

    /// Adds the key of `offer` at `deadline`; the earlier of two deadlines counts.
    pub(super) fn add_at(
        &mut self,
        hash: u32,
        offer: &mut impl Offer<K>,
        deadline: Nanos,
        priority: i32,
    ) -> Option<Added> {
        if self.is_closed() {
            return None;
        }
        let slot = self.enter(hash, offer);
        Some(self.delay_slot(slot, deadline, priority))
    }

    /// Adds the key of `offer` at the time that `when` computes from the number of its
    /// failures, which it may change.
    pub(super) fn add_failed(
        &mut self,
        hash: u32,
        offer: &mut impl Offer<K>,
        when: impl FnOnce(&mut u32) -> Nanos,
        now: Nanos,
        priority: i32,
    ) -> Option<Added> {
        if self.is_closed() {
            return None;
        }
        let found = self.find_offer(hash, offer).map(|(slot, _)| slot);
        let mut failures = found.map_or(0, |slot| self.num_failures_at(slot));
        let deadline = when(&mut failures);
        let (slot, added) = match found {
            Ok(slot) if deadline > now => {
                (slot, self.delay_slot(slot, deadline, priority))
            }
            Ok(slot) => (slot, self.add_slot(slot, priority)),
            Err(gap) if deadline > now => {
                let slot = self.enroll(Phase::Dormant, gap, offer.take());
                (slot, self.delay_slot(slot, deadline, priority))
            }
            Err(gap) => (self.admit(gap, offer, priority), Added::Ready),
        };
        *self.failures(slot) = failures;
        Some(added)
    }

    /// Delays a key that has a slot. Also on a closed queue: the key is then among those
    /// that are returned. The order runs before anything changes.
    pub(super) fn delay_slot(
        &mut self,
        slot: u32,
        deadline: Nanos,
        priority: i32,
    ) -> Added {
        let phase = self.phase(slot);
        if self.absorb && phase.is_pending() {
            let priority = self.raised_priority(slot, priority);
            if phase == Phase::Ready {
                self.line.touch(slot, self.slots.key(slot), priority);
            }
            self.set_priority(slot, priority);
            return Added::Duplicate;
        }
        self.untrack(slot);
        if self.line.uses_priorities() {
            self.priorities.raise_delayed(slot, priority);
        }
        match self.delays.insert(slot, deadline) {
            Scheduled::New | Scheduled::Earlier => Added::Delayed,
            Scheduled::Kept => Added::Duplicate,
        }
    }

    /// Replaces everything that is pending for the key of `offer` by one delay.
    pub(super) fn postpone(
        &mut self,
        hash: u32,
        offer: &mut impl Offer<K>,
        deadline: Nanos,
    ) -> Option<Added> {
        if self.is_closed() {
            return None;
        }
        let slot = self.enter(hash, offer);
        let priority = self.priorities.pending(slot).max(self.priorities.delayed(slot));
        let cancelled = self.cancel(slot);
        self.untrack(slot);
        if self.line.uses_priorities() {
            self.priorities.raise_delayed(slot, if cancelled { priority } else { 0 });
        }
        self.delays.replace(slot, deadline);
        Some(Added::Delayed)
    }

    /// The number of failures of a key that is not tracked, to be changed.
    pub(super) fn failures(&mut self, slot: u32) -> &mut u32 {
        self.failures.at(slot)
    }

    /// Forgets the failures of a leased key.
    #[inline]
    pub(super) fn clear_failures(&mut self, slot: u32) {
        self.failures.take(slot);
    }

    /// The number of failures of a key.
    #[inline]
    pub(super) fn num_failures_at(&self, slot: u32) -> u32 {
        self.failures.get(slot)
    }

    /// Ends the lease of a key. Returns a key that is forgotten, for the caller to drop after
    /// the lock is released.
    #[inline(always)]
    pub(super) fn done(&mut self, slot: u32) -> Option<K> {
        self.time(|timing| timing.done(slot));
        self.processing -= 1;
        if self.phase(slot) == Phase::Dirty {
            self.ready_again(slot);
            return None;
        }
        self.retire(slot)
    }

    /// Makes a dirty key ready when its lease has ended. The add that made it dirty has
    /// returned, so a panic of the order is contained.
    fn ready_again(&mut self, slot: u32) {
        let priority = self.priorities.pending(slot);
        self.dirty -= 1;
        self.slots.set_phase(slot, Phase::Dormant);
        if contain(|| self.make_ready(slot, priority)).is_none() {
            self.strand(slot, priority);
        }
    }

    /// Refuses adds from now on, and ends no more delays.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether no key can be delivered or is leased. Withheld keys cannot be delivered.
    pub(super) fn is_drained(&self) -> bool {
        self.deliverable() == 0 && self.processing == 0
    }

    /// Whether no key is ready, leased or delayed. On a closed queue, delays do not count.
    pub(super) fn is_idle(&self) -> bool {
        self.is_drained() && (self.delays.is_empty() || self.is_closed())
    }

    /// How many keys the order will name.
    #[inline]
    pub(super) fn deliverable(&self) -> usize {
        if self.line.has_withheld() { 0 } else { self.ready }
    }

    pub(super) fn counts(&self) -> Counts {
        Counts {
            ready: self.ready,
            delayed: self.delays.len(),
            processing: self.processing,
            dirty: self.dirty,
        }
    }

    /// How many keys are set aside because user code panicked.
    pub(super) fn stranded(&self) -> usize {
        self.stranded
    }

    #[inline]
    fn phase(&self, slot: u32) -> Phase {
        self.slots.phase(slot).expect("invariant 3: a known key has a slot")
    }

    /// Finds the slot of the key of `offer`, and its phase.
    #[inline]
    fn find_offer(&self, hash: u32, offer: &impl Offer<K>) -> Result<(u32, Phase), Gap> {
        self.table.search(hash, |slot| {
            let (phase, key) = self.slots.look(slot)?;
            offer.is(key).then_some(phase)
        })
    }

    /// Gives an unknown key a slot.
    #[inline]
    fn enroll(&mut self, phase: Phase, gap: Gap, key: K) -> u32 {
        let slot = self.slots.fill(phase, gap.hash(), key);
        self.table.insert(gap, slot);
        slot
    }

    /// Finds the slot of the key of `offer`, or gives it one as `Dormant`.
    fn enter(&mut self, hash: u32, offer: &mut impl Offer<K>) -> u32 {
        match self.find_offer(hash, offer) {
            Ok((slot, _)) => slot,
            Err(gap) => self.enroll(Phase::Dormant, gap, offer.take()),
        }
    }

    /// Makes a key ready that is neither ready nor leased. The order runs first.
    fn make_ready(&mut self, slot: u32, priority: i32) {
        self.line.push(slot, self.slots.key(slot), priority);
        self.untrack(slot);
        self.unstrand(slot);
        self.slots.set_phase(slot, Phase::Ready);
        self.ready += 1;
    }

    /// The priority of a key once it has been added with `priority`.
    #[inline]
    fn raised_priority(&self, slot: u32, priority: i32) -> i32 {
        if !self.line.uses_priorities() {
            return 0;
        }
        let delayed = if self.absorb { self.priorities.delayed(slot) } else { i32::MIN };
        priority.max(self.priorities.pending(slot)).max(delayed)
    }

    #[inline]
    fn set_priority(&mut self, slot: u32, priority: i32) {
        if self.line.uses_priorities() {
            self.priorities.set_pending(slot, priority);
        }
    }

    /// Cancels everything that is pending for a key. Returns whether anything was. The order
    /// runs before anything changes.
    fn cancel(&mut self, slot: u32) -> bool {
        let phase = self.phase(slot);
        if phase == Phase::Ready {
            self.line.remove(slot, self.slots.key(slot));
            self.slots.set_phase(slot, Phase::Dormant);
            self.ready -= 1;
        }
        if phase == Phase::Dirty {
            self.slots.set_phase(slot, Phase::Processing);
            self.dirty -= 1;
        }
        self.unstrand(slot);
        self.priorities.clear(slot);
        self.delays.remove(slot) || phase.is_pending() || phase == Phase::Stranded
    }

    /// Keeps a key for its delay or its failures, or forgets it if it has neither. Returns
    /// the key that was forgotten: this one, or the one that has rested longest.
    #[inline(always)]
    fn retire(&mut self, slot: u32) -> Option<K> {
        if self.delays.contains(slot) {
            self.slots.set_phase(slot, Phase::Dormant);
            return None;
        }
        if self.num_failures_at(slot) == 0 {
            return Some(self.vacate(slot));
        }
        self.slots.set_phase(slot, Phase::Tracked);
        self.tracked.push_back(Ticket(slot));
        if self.tracked.len() <= self.max_tracked {
            return None;
        }
        let Ticket(oldest) = self.tracked.pop_front()?;
        Some(self.vacate(oldest))
    }

    /// Ends the rest of a key that is about to be ready, delayed or forgotten.
    fn untrack(&mut self, slot: u32) {
        if self.phase(slot) == Phase::Tracked {
            self.tracked.take_out(Ticket(slot));
            self.slots.set_phase(slot, Phase::Dormant);
        }
    }

    /// Ends the stranding of a key that is about to be ready or forgotten.
    fn unstrand(&mut self, slot: u32) {
        if self.phase(slot) == Phase::Stranded {
            self.stranded -= 1;
            self.slots.set_phase(slot, Phase::Dormant);
        }
    }

    /// Forgets a key.
    #[inline(always)]
    fn vacate(&mut self, slot: u32) -> K {
        let (hash, key) = self.slots.vacate(slot);
        self.clear_failures(slot);
        self.priorities.clear(slot);
        self.table.remove(hash, slot);
        self.forgotten += 1;
        self.shrink_after_spike();
        key
    }
}

impl<K: Clone> State<K> {
    /// Leases the next key in the order.
    ///
    /// # Panics
    ///
    /// If the order or `Clone` of the key panics. The key is still ready in the first case,
    /// and stranded in the second.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Option<Taken<K>> {
        let slot = self.pop()?;
        self.ready -= 1;
        let key = self.slots.lease(slot, &mut self.stranded);
        self.processing += 1;
        let priority = if self.priorities.is_empty() {
            0
        } else {
            self.priorities.take_pending(slot)
        };
        self.time(|timing| timing.leased(slot));
        Some(Taken { slot, key, priority })
    }

    #[inline]
    fn pop(&mut self) -> Option<u32> {
        let slots = &self.slots;
        self.line.pop(|slot| slots.phase(slot) == Some(Phase::Ready))
    }
}
