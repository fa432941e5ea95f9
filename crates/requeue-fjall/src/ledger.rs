//! The queue in memory, and what of it is not on disk yet.
//!
//! Calls change the [`Machine`] one after the other, and what they changed is gathered in a
//! [`Group`] that is written as one. Of a key that several calls of a group change only the
//! last state is written.
//!
//! A change is *firm* if its caller is answered when it is on disk, and otherwise *soft*:
//! grants, and what becomes ready by itself. A soft change never takes a key out of the
//! queue, so whoever finds a key there has only to wait for firm ones.
//!
//! # Invariants
//!
//! 1. What was on disk, with `writing` and then `group` laid over it, is what the machine
//!    would keep.
//! 2. Groups are written in the order in which they were taken, one at a time.
//! 3. No token that is greater than the mark on disk is told to anybody. A group with the
//!    state is firm.

use std::sync::Arc;

use requeue_store::machine::Machine;
use requeue_store::{Key, LeaseRequest, Leased, Moment};

use crate::group::Group;
use crate::outcome::Ticket;
use crate::record::{Record, State};

/// How far ahead of the last token the mark is put, in microseconds: a minute, so that it
/// is written rarely, and the tokens of the next life are not far from its clock.
const AHEAD: u64 = 60_000_000;

/// How many keys may wait to be written before callers wait for room.
const ROOM: usize = 1 << 16;

/// See the module.
#[derive(Debug)]
pub(crate) struct Ledger {
    machine: Machine,
    state: State,
    /// The mark that is on disk.
    safe_mark: u64,
    group: Group,
    writing: Option<Arc<Group>>,
    stage: Stage,
    /// Whoever writes sleeps until it is told of a group.
    pub(crate) idle: bool,
}

/// Whether the store takes calls.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
    /// It does.
    Open,
    /// It was closed; what was acknowledged is on disk.
    Closed,
    /// The disk failed.
    Poisoned(Arc<str>),
}

/// What a call waits for before it is answered, the later the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wait {
    Nothing,
    Writing,
    Group,
}

impl Ledger {
    /// Fills the queue with what was kept.
    pub(crate) fn restore(records: Vec<Record>, now: Moment) -> Self {
        let (mut keys, mut state) = (Vec::new(), State::default());
        for record in records {
            match record {
                Record::State(kept) => state = kept,
                Record::Key(key, kept) => keys.push((key, kept)),
            }
        }
        let mut machine = Machine::restore(keys);
        machine.raise_token(state.mark);
        machine.set_paused(state.paused);
        // If the clock was set back, no time has passed.
        machine.owe(state.debt.saturating_sub(now.since(state.at)), now);
        machine.follow();
        Self {
            machine,
            state,
            safe_mark: state.mark,
            group: Group::new(),
            writing: None,
            stage: Stage::Open,
            idle: false,
        }
    }

    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    pub(crate) fn stage(&self) -> &Stage {
        &self.stage
    }

    /// The group that must be written before there is room for more, if there is none now.
    pub(crate) fn crowded(&self) -> Option<Ticket> {
        (self.group.len() >= ROOM).then(|| self.group.ticket())
    }

    /// Whether there is something to write.
    pub(crate) fn has_group(&self) -> bool {
        !self.group.is_empty()
    }

    /// Takes what is to be written next, after which others begin the next group.
    pub(crate) fn take_group(&mut self, now: Moment) -> Arc<Group> {
        let debt = self.machine.debt(now);
        if !debt.is_zero() || self.group.state.is_some() {
            self.group.state = Some(State { at: now, debt, ..self.state });
        }
        let next = self.group.next();
        let group = Arc::new(std::mem::replace(&mut self.group, next));
        self.writing = Some(Arc::clone(&group));
        group
    }

    /// Notes that the group that was taken is written.
    pub(crate) fn wrote(&mut self) {
        let mark = self.writing.take().and_then(|group| Some(group.state?.mark));
        self.safe_mark = mark.unwrap_or(self.safe_mark);
    }

    /// Takes no more calls. What is not written yet still is.
    pub(crate) fn close(&mut self) {
        if matches!(self.stage, Stage::Open) {
            self.stage = Stage::Closed;
        }
    }

    /// Takes no more calls, and tells those who wait.
    pub(crate) fn poison(&mut self, cause: &Arc<str>) {
        self.stage = Stage::Poisoned(Arc::clone(cause));
        self.group.end(Err(Arc::clone(cause)));
    }
}

/// One call, under the lock: what it did, and what it waits for.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    ledger: &'a mut Ledger,
    pub(crate) now: Moment,
    wait: Wait,
}

impl<'a> Turn<'a> {
    pub(crate) fn new(ledger: &'a mut Ledger, now: Moment) -> Self {
        Self { ledger, now, wait: Wait::Nothing }
    }

    /// What is to be awaited before the call is answered.
    pub(crate) fn ticket(self) -> Option<Ticket> {
        match self.wait {
            Wait::Nothing => None,
            Wait::Writing => self.ledger.writing.as_ref().map(|group| group.ticket()),
            Wait::Group => Some(self.ledger.group.ticket()),
        }
    }

    /// Does something to one key that is acknowledged once it is on disk. If it changes
    /// nothing, what it found must be on disk.
    pub(crate) fn on_key<T>(
        &mut self,
        key: &Key,
        act: impl FnOnce(&mut Machine, Moment) -> T,
    ) -> T {
        let before = cfg!(debug_assertions).then(|| self.ledger.machine.lasting(key));
        let (answer, changed) = self.act(act, true);
        debug_assert!(
            before.is_none_or(|it| changed == (it != self.ledger.machine.lasting(key))),
            "the machine tells exactly what has changed"
        );
        if !changed {
            self.follow(key);
        }
        answer
    }

    /// Does something to any keys that is acknowledged once it is on disk.
    pub(crate) fn firmly<T>(&mut self, act: impl FnOnce(&mut Machine, Moment) -> T) -> T {
        self.act(act, true).0
    }

    /// Does something to any keys that nobody waits for.
    pub(crate) fn softly<T>(&mut self, act: impl FnOnce(&mut Machine, Moment) -> T) -> T {
        self.act(act, false).0
    }

    /// Hands out keys: invariant 3.
    pub(crate) fn lease(&mut self, request: &LeaseRequest) -> Leased {
        let leased = self.softly(|machine, now| machine.lease(request, now));
        if let Some(grant) = leased.grants.last() {
            self.raise_mark(grant.token.0);
        }
        leased
    }

    /// Pauses or resumes.
    pub(crate) fn set_paused(&mut self, paused: bool) {
        self.ledger.machine.set_paused(paused);
        self.ledger.state.paused = paused;
        self.put_state();
        self.wait = Wait::Group;
    }

    /// Does something, and gathers what that changed: whether it changed anything.
    fn act<T>(
        &mut self,
        act: impl FnOnce(&mut Machine, Moment) -> T,
        firm: bool,
    ) -> (T, bool) {
        let Ledger { machine, group, .. } = &mut *self.ledger;
        let answer = act(machine, self.now);
        let mut changed = false;
        machine.drain_changes(|key, kept| {
            changed = true;
            group.put(key, kept, firm);
        });
        if firm && changed {
            self.wait = Wait::Group;
        }
        (answer, changed)
    }

    /// Has the state written to disk with the next group, waited for or not.
    fn put_state(&mut self) {
        self.ledger.group.state = Some(self.ledger.state);
        self.ledger.group.firm = true;
    }

    fn follow(&mut self, key: &Key) {
        let wait = if self.ledger.group.has_firm(key) {
            Wait::Group
        } else if self.ledger.writing.as_ref().is_some_and(|group| group.has_firm(key)) {
            Wait::Writing
        } else {
            Wait::Nothing
        };
        self.wait = self.wait.max(wait);
    }

    /// Sees to it that the mark on disk is not below `token` when that is told, and ahead
    /// of the next ones.
    fn raise_mark(&mut self, token: u64) {
        if token > self.ledger.state.mark.saturating_sub(AHEAD / 2) {
            self.ledger.state.mark = token.saturating_add(AHEAD);
            self.put_state();
        }
        if token > self.ledger.safe_mark {
            let pending = self.ledger.group.state.is_some();
            let wait = if pending { Wait::Group } else { Wait::Writing };
            self.wait = self.wait.max(wait);
        }
    }
}
