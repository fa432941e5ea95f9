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

use requeue_store::machine::{Lasting, Machine};
use requeue_store::{Key, LeaseRequest, Leased, Moment};
use tokio::sync::watch;

use crate::journal::{Reach, Write};
use crate::record::{self, Record, State};

/// How far ahead of the last token the mark is put, in microseconds: a minute, so that it
/// is written rarely, and the tokens of the next life are not far from its clock.
const AHEAD: u64 = 60_000_000;

/// How many keys may wait to be written before callers wait for room.
const ROOM: usize = 1 << 16;

/// How a group came out: what went wrong, if anything did.
pub(crate) type Outcome = Result<(), Arc<str>>;

/// The wait for a group.
pub(crate) type Ticket = watch::Receiver<Option<Outcome>>;

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

/// What is written together.
#[derive(Debug)]
pub(crate) struct Group {
    changes: foldhash::HashMap<Key, Change>,
    state: Option<State>,
    /// Somebody waits for it.
    firm: bool,
    done: watch::Sender<Option<Outcome>>,
}

#[derive(Debug)]
struct Change {
    kept: Option<Lasting>,
    firm: bool,
}

/// What a call waits for before it is answered, the later the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wait {
    Nothing,
    Writing,
    Group,
}

impl Group {
    fn new() -> Self {
        let (changes, done) = (foldhash::HashMap::default(), watch::Sender::new(None));
        Self { changes, state: None, firm: false, done }
    }

    fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.state.is_none()
    }

    fn put(&mut self, key: Key, kept: Option<Lasting>, firm: bool) {
        self.firm |= firm;
        let before = self.changes.get(&key).is_some_and(|change| change.firm);
        self.changes.insert(key, Change { kept, firm: firm || before });
    }

    fn has_firm(&self, key: &Key) -> bool {
        self.changes.get(key).is_some_and(|change| change.firm)
    }

    /// How far it must get.
    pub(crate) fn reach(&self) -> Reach {
        if self.firm { Reach::Disk } else { Reach::System }
    }

    /// Its records.
    pub(crate) fn writes(&self) -> Vec<Write> {
        let keys = self.changes.iter().map(|(key, change)| Write {
            name: record::key_name(key),
            value: change.kept.as_ref().map(record::encode_key),
        });
        let state = self.state.as_ref().map(|state| Write {
            name: record::state_name(),
            value: Some(record::encode_state(state)),
        });
        keys.chain(state).collect()
    }

    /// Tells those who wait how it came out.
    pub(crate) fn end(&self, outcome: Outcome) {
        self.done.send_replace(Some(outcome));
    }
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
        (self.group.changes.len() >= ROOM).then(|| self.group.done.subscribe())
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
        let group = Arc::new(std::mem::replace(&mut self.group, Group::new()));
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
            Wait::Writing => {
                self.ledger.writing.as_ref().map(|group| group.done.subscribe())
            }
            Wait::Group => Some(self.ledger.group.done.subscribe()),
        }
    }

    /// Does something to one key that is acknowledged once it is on disk. If it changes
    /// nothing, what it found must be on disk.
    pub(crate) fn on_key<T>(
        &mut self,
        key: &Key,
        act: impl FnOnce(&mut Machine, Moment) -> T,
    ) -> T {
        let before = self.ledger.machine.lasting(key);
        let answer = act(&mut self.ledger.machine, self.now);
        let mut changes = self.ledger.machine.take_changes();
        changes.retain(|(changed, kept)| changed != key || *kept != before);
        if changes.is_empty() {
            self.follow(key);
        }
        self.put(changes, true);
        answer
    }

    /// Does something to any keys that is acknowledged once it is on disk.
    pub(crate) fn firmly<T>(&mut self, act: impl FnOnce(&mut Machine, Moment) -> T) -> T {
        self.act(act, true)
    }

    /// Does something to any keys that nobody waits for.
    pub(crate) fn softly<T>(&mut self, act: impl FnOnce(&mut Machine, Moment) -> T) -> T {
        self.act(act, false)
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

    fn act<T>(&mut self, act: impl FnOnce(&mut Machine, Moment) -> T, firm: bool) -> T {
        let answer = act(&mut self.ledger.machine, self.now);
        let changes = self.ledger.machine.take_changes();
        self.put(changes, firm);
        answer
    }

    fn put(&mut self, changes: Vec<(Key, Option<Lasting>)>, firm: bool) {
        if firm && !changes.is_empty() {
            self.wait = Wait::Group;
        }
        for (key, kept) in changes {
            self.ledger.group.put(key, kept, firm);
        }
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
