//! Which keys are ready, delayed or being processed, and what happens next.
//!
//! This is the whole meaning of the queue. Nothing here locks, blocks, reads a clock,
//! spawns or wakes anybody: the shell in `shared.rs` does that, and acts on what these
//! methods return. Time comes in as nanoseconds since the queue was built.
//!
//! # States of a key
//!
//! | phase        | in the order | `add`          | `take`          | `done`            |
//! |--------------|--------------|----------------|-----------------|-------------------|
//! | (unknown)    | no           | -> `Ready`     |                 |                   |
//! | `Idle`       | no           | -> `Ready`     |                 |                   |
//! | `Resting`    | no           | -> `Ready`     |                 |                   |
//! | `Ready`      | once         | stays          | -> `Processing` |                   |
//! | `Processing` | no           | -> `Dirty`     |                 | -> `Idle`         |
//! | `Dirty`      | no           | stays          |                 | -> `Ready`        |
//!
//! An empty cell cannot happen: `take` only takes from the order, and `done` is only
//! reached by consuming a lease. Besides its phase a key may have a delay; when that is
//! over, the key is added. When a key is done, an `Idle` key without a delay rests if it
//! has failures to remember, and is forgotten otherwise.
//!
//! # Invariants
//!
//! 1. The order holds each `Ready` key exactly once, and no other key.
//! 2. A key leaves `Processing` and `Dirty` only through `done`, so at most one lease for
//!    it exists.
//! 3. The table holds each known key exactly once, under the hash in its slot.
//! 4. `resting` holds each `Resting` key exactly once, and no other; such a key has
//!    failures and no delay.
//! 5. With `absorb`, a key that is `Ready` or `Dirty` has no delay.
//!
//! client-go keeps the same facts in three sets (`queue`, `dirty`, `processing`) and a
//! heap of delays; `state/tests.rs` checks the two representations against each other.

use std::collections::VecDeque;

use self::due::Due;
use super::delay::{Delays, Scheduled};
use super::line::Line;
use super::offer::Offer;
use super::options::{Added, Counts};
use super::order::{Fifo, Ticket};
use super::slots::{Loan, Phase, Slots};
use super::table::{Gap, Table};
use super::timing::{Nanos, Timing, at};

mod due;
mod lookup;
mod many;
mod measured;
mod shrink;
#[cfg(test)]
mod tests;
mod undelivered;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    Closed,
}

/// The priority of a key that is ready, dirty or delayed; lowest if it is none of them.
#[derive(Clone, Copy)]
struct Level(i32);

impl Default for Level {
    fn default() -> Self {
        Self(i32::MIN)
    }
}

/// A key that is not known yet.
struct Newcomer<K> {
    hash: u32,
    /// Where the search for it ended.
    gap: Gap,
    key: K,
}

/// A key that was handed out.
pub(super) struct Taken<K> {
    pub(super) slot: u32,
    pub(super) loan: Loan<K>,
    pub(super) priority: i32,
}

/// What is left of a key that was finished.
pub(super) struct Finished<K> {
    /// The key, if the queue has forgotten it: it is the user's, and so is to be dropped
    /// without the lock.
    pub(super) key: Option<K>,
}

/// The keys of one queue.
pub(super) struct State<K> {
    slots: Slots<K>,
    table: Table,
    line: Line<K>,
    delays: Delays,
    stage: Stage,
    ready: usize,
    processing: usize,
    dirty: usize,
    /// Failures by slot; grows with the first retry.
    retries: Vec<u32>,
    resting: Fifo,
    max_resting: usize,
    /// Priorities by slot; stays empty with [`Line::Fifo`], which does not heed them.
    levels: Vec<Level>,
    absorb: bool,
    timing: Option<Box<Timing>>,
    /// Whether `timing` has to hear what time it is, or has news, or knows the time of this
    /// call.
    stirred: bool,
    /// Slots whose delay is over, on their way to being added; empty between calls.
    due: VecDeque<u32>,
    /// Keys forgotten since memory was last given back.
    forgotten: usize,
}

/// What a queue is built with.
pub(super) struct Rules<K> {
    pub(super) line: Line<K>,
    pub(super) absorb: bool,
    pub(super) capacity: usize,
    pub(super) max_resting: usize,
    pub(super) timed: bool,
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
            stage: Stage::Open,
            ready: 0,
            processing: 0,
            dirty: 0,
            retries: Vec::new(),
            resting: Fifo::default(),
            max_resting: rules.max_resting,
            levels: Vec::new(),
            absorb: rules.absorb,
            timing: rules.timed.then(Box::default),
            stirred: false,
            due: VecDeque::new(),
            forgotten: 0,
        }
    }

    /// Whether the next call must know the time.
    #[inline]
    pub(super) fn needs_time(&self) -> bool {
        !self.delays.is_empty() && !self.is_closed()
    }

    /// Whether a key was added while it is processed.
    #[inline]
    pub(super) fn is_dirty(&self, slot: u32) -> bool {
        self.slots.phase(slot) == Some(Phase::Dirty)
    }

    /// Adds the keys whose delay is over. A closed queue keeps them delayed.
    pub(super) fn advance(&mut self, now: Nanos) {
        self.tell_time(now);
        let due = self.delays.next().is_some_and(|deadline| deadline <= now);
        if due && !self.is_closed() {
            Due { state: self, now }.add_all();
        }
    }

    /// When the next delay is over, if keys still become ready by time.
    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        if self.is_closed() { None } else { self.delays.next() }
    }

    /// Adds the key of `offer`, now.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: a tenth of a worker's cycle")]
    pub(super) fn add(
        &mut self,
        hash: u32,
        offer: &mut impl Offer<K>,
        priority: i32,
    ) -> Added {
        if self.is_closed() {
            return Added::Closed;
        }
        match self.find_offer(hash, offer) {
            Err(gap) => self.admit(Newcomer { hash, gap, key: offer.take() }, priority),
            Ok((_, phase)) if self.is_mere_duplicate(phase) => Added::Duplicate,
            Ok((slot, _)) => self.add_slot(slot, priority),
        }
    }

    /// Makes an unknown key ready.
    ///
    /// The key's own code and the order, which may be the user's, run before anything
    /// changes: a panic leaves all as it was.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: see `State::take`")]
    fn admit(&mut self, new: Newcomer<K>, priority: i32) -> Added {
        self.line.push(self.slots.vacancy(), &new.key, priority);
        let slot = self.enroll(Phase::Ready, new);
        self.ready += 1;
        self.raise(slot, priority);
        self.note_add(slot);
        Added::Ready
    }

    /// Whether adding a key again changes nothing at all.
    #[inline]
    fn is_mere_duplicate(&self, phase: Phase) -> bool {
        phase.is_planned() && !self.absorb && !self.line.heeds_priority()
    }

    /// Adds a key that has a slot.
    pub(super) fn add_slot(&mut self, slot: u32, priority: i32) -> Added {
        let level = self.raise(slot, priority);
        if self.absorb {
            self.delays.remove(slot);
        }
        match self.phase(slot) {
            Phase::Idle | Phase::Resting => {
                self.unrest(slot);
                self.make_ready(slot, level);
                self.note_add(slot);
                Added::Ready
            }
            Phase::Ready => {
                self.line.touch(slot, self.slots.key(slot), level);
                Added::Duplicate
            }
            Phase::Processing => {
                self.slots.set_phase(slot, Phase::Dirty);
                self.dirty += 1;
                self.note_add(slot);
                Added::Dirty
            }
            Phase::Dirty => Added::Duplicate,
        }
    }

    /// Adds the key of `offer` at `deadline`; the earlier of two deadlines counts.
    pub(super) fn add_at(
        &mut self,
        hash: u32,
        offer: &mut impl Offer<K>,
        deadline: Nanos,
        priority: i32,
    ) -> Added {
        if self.is_closed() {
            return Added::Closed;
        }
        let slot = self.enter(hash, offer);
        self.delay_slot(slot, deadline, priority)
    }

    /// Adds the key of `offer` at the time that `when` makes of the number of its
    /// failures, which it may change.
    pub(super) fn add_failed(
        &mut self,
        hash: u32,
        offer: &mut impl Offer<K>,
        when: impl FnOnce(&mut u32) -> Nanos,
        now: Nanos,
        priority: i32,
    ) -> Added {
        if self.is_closed() {
            return Added::Closed;
        }
        let slot = self.enter(hash, offer);
        self.unrest(slot);
        let deadline = when(self.failures(slot));
        if deadline > now {
            return self.delay_slot(slot, deadline, priority);
        }
        self.add_slot(slot, priority)
    }

    /// Delays a key that has a slot. Also on a closed queue: the key is then among those
    /// that are handed back.
    pub(super) fn delay_slot(
        &mut self,
        slot: u32,
        deadline: Nanos,
        priority: i32,
    ) -> Added {
        let phase = self.phase(slot);
        let level = self.raise(slot, priority);
        if self.absorb && matches!(phase, Phase::Ready | Phase::Dirty) {
            if phase == Phase::Ready {
                self.line.touch(slot, self.slots.key(slot), level);
            }
            return Added::Duplicate;
        }
        self.unrest(slot);
        match self.delays.insert(slot, deadline) {
            Scheduled::New | Scheduled::Earlier => Added::Delayed,
            Scheduled::Kept => Added::Duplicate,
        }
    }

    /// Replaces all that is planned for the key of `offer` by one delay.
    pub(super) fn postpone(
        &mut self,
        hash: u32,
        offer: &mut impl Offer<K>,
        deadline: Nanos,
    ) -> Added {
        if self.is_closed() {
            return Added::Closed;
        }
        let slot = self.enter(hash, offer);
        let level = self.level(slot);
        self.unrest(slot);
        let planned = self.unplan(slot);
        self.raise(slot, if planned { level } else { 0 });
        self.delays.replace(slot, deadline);
        Added::Delayed
    }

    /// How often a key that is not resting failed, to be changed.
    pub(super) fn failures(&mut self, slot: u32) -> &mut u32 {
        at(&mut self.retries, slot)
    }

    /// Forgets the failures of a key that is processed.
    #[inline]
    pub(super) fn pardon(&mut self, slot: u32) {
        if let Some(retries) = self.retries.get_mut(slot as usize) {
            *retries = 0;
        }
    }

    /// How often a key failed.
    #[inline]
    pub(super) fn retries(&self, slot: u32) -> u32 {
        self.retries.get(slot as usize).copied().unwrap_or(0)
    }

    /// Takes back a key that was handed out.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: a tenth of a worker's cycle")]
    pub(super) fn done(&mut self, slot: u32, loan: Loan<K>) -> Finished<K> {
        self.note(|timing| timing.done(slot));
        self.processing -= 1;
        if self.is_over(slot) {
            let (hash, key) = self.slots.vacate_lent(slot, loan);
            self.erase(slot, hash);
            return Finished { key: Some(key) };
        }
        self.slots.give_back(slot, loan);
        if self.phase(slot) == Phase::Dirty {
            self.dirty -= 1;
            // Should the user's order panic, the next add makes the key ready again.
            self.slots.set_phase(slot, Phase::Idle);
            self.make_ready(slot, self.level(slot));
            return Finished { key: None };
        }
        Finished { key: self.rest(slot) }
    }

    /// Whether a key that is done is forgotten with that.
    #[inline]
    fn is_over(&self, slot: u32) -> bool {
        self.phase(slot) == Phase::Processing
            && self.retries(slot) == 0
            && !self.delays.contains(slot)
    }

    /// Makes the queue take no more keys, and no delay end.
    pub(super) fn close(&mut self) {
        self.stage = Stage::Closed;
    }

    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.stage == Stage::Closed
    }

    /// Whether no key is ready, processing or dirty.
    pub(super) fn is_drained(&self) -> bool {
        self.ready == 0 && self.processing == 0
    }

    /// Whether nothing is left to do: no key is ready, processing or dirty, nor delayed,
    /// unless the queue is closed, so that delays do not end.
    pub(super) fn is_at_rest(&self) -> bool {
        self.is_drained() && (self.delays.is_empty() || self.is_closed())
    }

    #[inline]
    pub(super) fn ready(&self) -> usize {
        self.ready
    }

    pub(super) fn counts(&self) -> Counts {
        Counts {
            ready: self.ready,
            delayed: self.delays.len(),
            processing: self.processing,
            dirty: self.dirty,
        }
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
    fn enroll(&mut self, phase: Phase, new: Newcomer<K>) -> u32 {
        let Newcomer { hash, gap, key } = new;
        let slot = self.slots.fill(phase, hash, key);
        self.table.insert(hash, slot, gap);
        slot
    }

    /// Finds the slot of the key of `offer`, or gives it one as `Idle`.
    fn enter(&mut self, hash: u32, offer: &mut impl Offer<K>) -> u32 {
        match self.find_offer(hash, offer) {
            Ok((slot, _)) => slot,
            Err(gap) => {
                self.enroll(Phase::Idle, Newcomer { hash, gap, key: offer.take() })
            }
        }
    }

    /// Puts a key into the order. The order is called first: it may be the user's.
    fn make_ready(&mut self, slot: u32, level: i32) {
        self.line.push(slot, self.slots.key(slot), level);
        self.slots.set_phase(slot, Phase::Ready);
        self.ready += 1;
    }

    fn level(&self, slot: u32) -> i32 {
        self.levels.get(slot as usize).copied().unwrap_or_default().0
    }

    /// The priority of a key that is handed out. Its delay, if it has one, keeps it.
    fn take_level(&mut self, slot: u32) -> i32 {
        let level = self.level(slot);
        if !self.delays.contains(slot) {
            self.lower(slot);
        }
        level
    }

    /// Raises the priority of what is planned for a key to at least `priority`.
    #[inline]
    fn raise(&mut self, slot: u32, priority: i32) -> i32 {
        if !self.line.heeds_priority() {
            return 0;
        }
        let level = at(&mut self.levels, slot);
        level.0 = level.0.max(priority);
        level.0
    }

    /// Forgets the priority of a key once nothing is planned for it.
    #[inline]
    fn lower(&mut self, slot: u32) {
        if let Some(level) = self.levels.get_mut(slot as usize) {
            *level = Level::default();
        }
    }

    /// Takes back all that is planned for a key: whether anything was.
    fn unplan(&mut self, slot: u32) -> bool {
        self.lower(slot);
        let delayed = self.delays.remove(slot);
        match self.phase(slot) {
            Phase::Ready => self.unready(slot),
            Phase::Dirty => {
                self.slots.set_phase(slot, Phase::Processing);
                self.dirty -= 1;
            }
            Phase::Idle | Phase::Resting | Phase::Processing => return delayed,
        }
        true
    }

    fn unready(&mut self, slot: u32) {
        self.line.remove(slot, self.slots.key(slot));
        self.slots.set_phase(slot, Phase::Idle);
        self.ready -= 1;
    }

    /// Keeps a key that is not to be processed for its delay or its failures; forgets it
    /// if it has neither. Returns the key that was forgotten: this one, or the one that
    /// rested longest.
    #[inline]
    fn rest(&mut self, slot: u32) -> Option<K> {
        if self.delays.contains(slot) {
            self.slots.set_phase(slot, Phase::Idle);
            return None;
        }
        if self.retries(slot) == 0 {
            return Some(self.vacate(slot));
        }
        self.slots.set_phase(slot, Phase::Resting);
        self.resting.push_back(Ticket(slot));
        if self.resting.len() <= self.max_resting {
            return None;
        }
        let Ticket(oldest) = self.resting.pop_front()?;
        Some(self.vacate(oldest))
    }

    /// Ends the rest of a key that is about to be ready or delayed, or forgotten.
    fn unrest(&mut self, slot: u32) {
        if self.phase(slot) == Phase::Resting {
            self.resting.take_out(Ticket(slot));
            self.slots.set_phase(slot, Phase::Idle);
        }
    }

    /// Forgets a key.
    #[inline]
    fn vacate(&mut self, slot: u32) -> K {
        let (hash, key) = self.slots.vacate(slot);
        self.pardon(slot);
        self.erase(slot, hash);
        key
    }

    /// Erases what is left of a key whose slot is vacant.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: see `State::take`")]
    fn erase(&mut self, slot: u32, hash: u32) {
        self.lower(slot);
        self.table.remove(hash, slot);
        self.forgotten += 1;
        self.shrink_after_spike();
    }
}

impl<K: Clone> State<K> {
    /// Hands out the key whose turn it is.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: a tenth of a worker's cycle")]
    pub(super) fn take(&mut self) -> Option<Taken<K>> {
        let Some(slot) = self.pop() else {
            self.note_pause();
            return None;
        };
        self.ready -= 1;
        let loan = self.slots.lend(slot);
        self.processing += 1;
        let priority = if self.levels.is_empty() { 0 } else { self.take_level(slot) };
        self.note(|timing| timing.get(slot));
        Some(Taken { slot, loan, priority })
    }

    #[inline]
    fn pop(&mut self) -> Option<u32> {
        let slots = &self.slots;
        self.line.pop(|slot| slots.phase(slot) == Some(Phase::Ready))
    }
}
