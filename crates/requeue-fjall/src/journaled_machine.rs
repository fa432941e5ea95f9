//! The queue in memory, and the changes that are not on disk yet.
//!
//! Calls change the [`Machine`] one at a time. Their changes are collected in a [`Group`],
//! which is written as a unit. If several calls of a group change one key, only its last
//! state is written.
//!
//! A change is *durable* if its caller is answered only once it is on disk. Deliveries and
//! the ends of delays are *buffered*: callers do not wait for them. A buffered change never
//! removes a key from the queue. A call that finds a key therefore has to wait for durable
//! changes only.
//!
//! # Invariants
//!
//! 1. The disk, overlaid with the group `in_flight` and then with the group `next`, equals
//!    what the machine would persist.
//! 2. Groups are written one at a time, in the order in which they were taken.
//! 3. No delivered token exceeds the watermark on disk. A group that contains a new
//!    watermark is durable.

use std::sync::Arc;

use requeue_store::machine::Machine;
use requeue_store::{EngineTime, Key, LeaseRequest, Leased, TakeRequest, Taken};

use crate::commit::CommitWait;
use crate::group::Group;
use crate::journal::Durability;
use crate::record::{QueueState, Record};

/// How far the watermark is set ahead of the last token, in microseconds.
///
/// A minute: the watermark is written rarely, and the tokens after a restart stay close to
/// the clock.
const WATERMARK_LEAD: u64 = 60_000_000;

/// The number of unwritten keys from which callers wait.
const MAX_UNWRITTEN_KEYS: usize = 1 << 16;

/// A machine that collects its changes for the journal.
#[derive(Debug)]
pub(crate) struct JournaledMachine {
    machine: Machine,
    queue_state: QueueState,
    watermark_on_disk: u64,
    /// Collects changes until the committer takes it.
    next: Group,
    /// Being written by the committer.
    in_flight: Option<Arc<Group>>,
    lifecycle: Lifecycle,
    /// The disk is full. Calls that change something are refused.
    pub(crate) is_full: bool,
    /// The committer sleeps and must be woken for the next group.
    pub(crate) committer_is_idle: bool,
}

/// Whether the store accepts calls, and why not.
#[derive(Clone, Debug)]
pub(crate) enum Lifecycle {
    Open,
    /// Closed by the user. Collected changes are still written.
    Closed,
    /// A write failed, with this cause.
    Poisoned(Arc<str>),
}

/// The group that must be committed before a call returns. The later group is the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Dependency {
    Nothing,
    InFlightGroup,
    NextGroup,
}

impl JournaledMachine {
    /// Restores the queue from its records.
    pub(crate) fn restore(records: Vec<Record>, now: EngineTime) -> Self {
        let (mut keys, mut queue_state) = (Vec::new(), QueueState::default());
        for record in records {
            match record {
                Record::QueueState(stored) => queue_state = stored,
                Record::Key(key, stored) => keys.push((key, stored)),
            }
        }
        let mut machine = Machine::restore(keys);
        machine.raise_token(queue_state.watermark);
        machine.set_paused(queue_state.paused);
        // If the clock was set back, no time has passed.
        machine.set_rate_debt(
            queue_state.debt.saturating_sub(now.since(queue_state.at)),
            now,
        );
        let elapsed = now.since(queue_state.at);
        for (name, debt) in std::mem::take(&mut queue_state.limiters) {
            machine.set_limiter_debt(name, debt.saturating_sub(elapsed), now);
        }
        machine.track_changes();
        Self {
            machine,
            watermark_on_disk: queue_state.watermark,
            queue_state,
            next: Group::with_capacity(0),
            in_flight: None,
            lifecycle: Lifecycle::Open,
            is_full: false,
            committer_is_idle: false,
        }
    }

    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    pub(crate) fn lifecycle(&self) -> &Lifecycle {
        &self.lifecycle
    }

    /// Returns the commit to wait for if there are too many unwritten changes.
    pub(crate) fn wait_for_room(&self) -> Option<CommitWait> {
        (self.next.len() >= MAX_UNWRITTEN_KEYS).then(|| self.next.wait())
    }

    /// Returns whether there are changes for the committer to take.
    pub(crate) fn has_changes(&self) -> bool {
        !self.next.is_empty()
    }

    /// Takes the collected changes for writing and starts the next group.
    pub(crate) fn take_group(&mut self, now: EngineTime) -> Arc<Group> {
        let debt = self.machine.rate_debt(now);
        let limiters = self.machine.limiter_debts(now);
        let limiters: Vec<_> =
            limiters.map(|(name, debt)| (name.to_owned(), debt)).collect();
        let has_debt = !debt.is_zero() || !limiters.is_empty();
        if has_debt || self.next.queue_state().is_some() {
            let state =
                QueueState { at: now, debt, limiters, ..self.queue_state.clone() };
            self.next.put_queue_state(state, Durability::Buffered);
        }
        let next = Group::with_capacity(self.next.len());
        let group = Arc::new(std::mem::replace(&mut self.next, next));
        self.in_flight = Some(Arc::clone(&group));
        group
    }

    /// Records that the group in flight is written.
    pub(crate) fn group_written(&mut self) {
        let written = self.in_flight.take();
        if let Some(state) = written.as_ref().and_then(|group| group.queue_state()) {
            self.watermark_on_disk = state.watermark;
        }
    }

    /// Refuses further calls. Collected changes are still written.
    pub(crate) fn close(&mut self) {
        if matches!(self.lifecycle, Lifecycle::Open) {
            self.lifecycle = Lifecycle::Closed;
        }
    }

    /// Refuses further calls, and fails the callers that wait for the next group.
    pub(crate) fn poison(&mut self, cause: &Arc<str>) {
        self.lifecycle = Lifecycle::Poisoned(Arc::clone(cause));
        self.next.complete(Err(Arc::clone(cause)));
    }
}

/// One call while it holds the lock.
#[derive(Debug)]
pub(crate) struct Operation<'a> {
    journaled: &'a mut JournaledMachine,
    now: EngineTime,
    dependency: Dependency,
}

impl<'a> Operation<'a> {
    pub(crate) fn new(journaled: &'a mut JournaledMachine, now: EngineTime) -> Self {
        Self { journaled, now, dependency: Dependency::Nothing }
    }

    /// Returns the commit to wait for before the call returns.
    pub(crate) fn wait(self) -> Option<CommitWait> {
        match self.dependency {
            Dependency::Nothing => None,
            Dependency::InFlightGroup => {
                self.journaled.in_flight.as_ref().map(|group| group.wait())
            }
            Dependency::NextGroup => Some(self.journaled.next.wait()),
        }
    }

    /// Changes one key durably. If nothing changes, the state it found must become durable.
    pub(crate) fn durable_on_key<T>(
        &mut self,
        key: &Key,
        act: impl FnOnce(&mut Machine, EngineTime) -> T,
    ) -> T {
        let before =
            cfg!(debug_assertions).then(|| self.journaled.machine.persisted(key));
        let (answer, changed) = self.run(act, Durability::Durable);
        debug_assert!(
            before
                .is_none_or(|it| changed == (it != self.journaled.machine.persisted(key))),
            "the machine reports a change if and only if the record of the key differs"
        );
        if !changed {
            self.depend_on_changes_of(key);
        }
        answer
    }

    /// Changes any keys durably.
    pub(crate) fn durable<T>(
        &mut self,
        act: impl FnOnce(&mut Machine, EngineTime) -> T,
    ) -> T {
        self.run(act, Durability::Durable).0
    }

    /// Changes any keys without waiting for the disk.
    pub(crate) fn buffered<T>(
        &mut self,
        act: impl FnOnce(&mut Machine, EngineTime) -> T,
    ) -> T {
        self.run(act, Durability::Buffered).0
    }

    /// Leases keys, and keeps the watermark ahead of their tokens (invariant 3).
    pub(crate) fn lease(&mut self, request: &LeaseRequest) -> Leased {
        let leased = self.buffered(|machine, now| machine.lease(request, now));
        if let Some(grant) = leased.grants.last() {
            self.raise_watermark(grant.token.0);
        }
        leased
    }

    /// Takes tokens of a shared limiter. They are part of the next write.
    pub(crate) fn take(&mut self, request: &TakeRequest) -> Taken {
        let taken = self.buffered(|machine, now| machine.take(request, now));
        if matches!(taken, Taken::Granted { .. }) {
            let state = self.journaled.queue_state.clone();
            self.journaled.next.put_queue_state(state, Durability::Buffered);
        }
        taken
    }

    /// Pauses or resumes the queue durably.
    pub(crate) fn set_paused(&mut self, paused: bool) {
        self.journaled.machine.set_paused(paused);
        self.journaled.queue_state.paused = paused;
        self.put_queue_state();
        self.dependency = Dependency::NextGroup;
    }

    /// Runs `act` and collects its changes. Returns whether there were any.
    fn run<T>(
        &mut self,
        act: impl FnOnce(&mut Machine, EngineTime) -> T,
        durability: Durability,
    ) -> (T, bool) {
        let JournaledMachine { machine, next, .. } = &mut *self.journaled;
        let answer = act(machine, self.now);
        let mut changed = false;
        machine.drain_changes(|key, record| {
            changed = true;
            next.put(key, record, durability);
        });
        if changed && durability == Durability::Durable {
            self.dependency = Dependency::NextGroup;
        }
        (answer, changed)
    }

    fn put_queue_state(&mut self) {
        let state = self.journaled.queue_state.clone();
        self.journaled.next.put_queue_state(state, Durability::Durable);
    }

    fn depend_on_changes_of(&mut self, key: &Key) {
        let JournaledMachine { next, in_flight, .. } = &*self.journaled;
        let dependency = if next.has_durable_change(key) {
            Dependency::NextGroup
        } else if in_flight.as_ref().is_some_and(|group| group.has_durable_change(key)) {
            Dependency::InFlightGroup
        } else {
            Dependency::Nothing
        };
        self.dependency = self.dependency.max(dependency);
    }

    /// Moves the watermark ahead of `token` in time, and waits for it if it is not on disk.
    fn raise_watermark(&mut self, token: u64) {
        let watermark = self.journaled.queue_state.watermark;
        if token > watermark.saturating_sub(WATERMARK_LEAD / 2) {
            self.journaled.queue_state.watermark = token.saturating_add(WATERMARK_LEAD);
            self.put_queue_state();
        }
        if token > self.journaled.watermark_on_disk {
            let dependency = match self.journaled.next.queue_state() {
                Some(_) => Dependency::NextGroup,
                None => Dependency::InFlightGroup,
            };
            self.dependency = self.dependency.max(dependency);
        }
    }
}
