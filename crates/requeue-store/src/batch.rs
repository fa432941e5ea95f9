//! Calls that go together: while one is on its way, those that come form the next.
//!
//! There is no timer in it. A call that comes alone goes alone and at once; under load each
//! call carries all that came since the one before, and a round trip is shared by many.
//!
//! # Invariants
//!
//! 1. `sending` is true exactly while there is a [`Turn`]. Whoever finds it false is given
//!    one, for a task that takes batches with it: nothing waits without a task that will
//!    send it.
//! 2. Everything that was pushed is sent, even if nobody waits for the answer any more,
//!    unless the patience for it ends before, or its turn is dropped.
//! 3. Everybody is told: by an answer, by an error, or by the drop of what they wait in. A
//!    turn that is dropped, because its task panicked or its runtime is gone, tells all who
//!    are in line.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio::sync::{Notify, oneshot};

use crate::sync::lock;
use crate::{Error, ErrorKind};

/// The most that one call carries: a script of Redis stays below a few milliseconds.
const MAX_BATCH: usize = 256;

/// Where the answer for one will be.
pub(crate) type Answer<O> = oneshot::Receiver<Result<O, Error>>;

/// Those for several.
pub(crate) type Answers<O> = Vec<Answer<O>>;

/// Things `I` that are to be sent, and who waits for the answers `O`. With each goes
/// something `G` that is dropped before its sender is told.
#[derive(Debug)]
pub(crate) struct Batcher<I, O, G = ()> {
    line: Arc<Line<I, O, G>>,
}

#[derive(Debug)]
struct Line<I, O, G> {
    state: Mutex<State<I, O, G>>,
    /// Told when nothing waits and nothing is on its way.
    idle: Arc<Notify>,
}

#[derive(Debug)]
struct State<I, O, G> {
    waiting: VecDeque<(I, Asker<O, G>)>,
    sending: bool,
    /// Batches that are there.
    under_way: usize,
}

/// One who waits for an answer.
#[derive(Debug)]
struct Asker<O, G> {
    sender: oneshot::Sender<Result<O, Error>>,
    since: Instant,
    keep: G,
}

impl<O, G> Asker<O, G> {
    fn tell(self, answer: Result<O, Error>) {
        drop(self.keep);
        // Who has gone is not missed.
        drop(self.sender.send(answer));
    }
}

impl<I, O, G> Batcher<I, O, G> {
    /// One that tells `idle` when it has nothing to do any more.
    pub(crate) fn new(idle: Arc<Notify>) -> Self {
        let state = State { waiting: VecDeque::new(), sending: false, under_way: 0 };
        Self { line: Arc::new(Line { state: Mutex::new(state), idle }) }
    }

    /// Puts something in line: where its answer will be, and the turn, if nobody has it.
    pub(crate) fn push(
        &self,
        item: I,
        keep: G,
        now: Instant,
    ) -> (Answer<O>, Option<Turn<I, O, G>>) {
        let mut state = lock(&self.line.state);
        let answer = state.put(item, keep, now);
        (answer, self.turn(&mut state))
    }

    /// As [`push`](Self::push) for several at once.
    pub(crate) fn push_all(
        &self,
        items: impl IntoIterator<Item = (I, G)>,
        now: Instant,
    ) -> (Answers<O>, Option<Turn<I, O, G>>) {
        let mut state = lock(&self.line.state);
        let put = |(item, keep)| state.put(item, keep, now);
        let answers: Vec<_> = items.into_iter().map(put).collect();
        let turn = if answers.is_empty() { None } else { self.turn(&mut state) };
        (answers, turn)
    }

    /// Keeps invariant 1.
    fn turn(&self, state: &mut State<I, O, G>) -> Option<Turn<I, O, G>> {
        let taken = std::mem::replace(&mut state.sending, true);
        (!taken).then(|| Turn { line: Arc::clone(&self.line), over: false })
    }

    /// Whether nothing waits and nothing is on its way.
    pub(crate) fn is_idle(&self) -> bool {
        lock(&self.line.state).is_idle()
    }
}

impl<I, O, G> State<I, O, G> {
    fn put(&mut self, item: I, keep: G, now: Instant) -> Answer<O> {
        let (sender, answer) = oneshot::channel();
        self.waiting.push_back((item, Asker { sender, since: now, keep }));
        answer
    }

    fn is_idle(&self) -> bool {
        !self.sending && self.under_way == 0
    }
}

impl<I, O, G> Line<I, O, G> {
    fn change(&self, change: impl FnOnce(&mut State<I, O, G>)) {
        let idle = {
            let mut state = lock(&self.state);
            change(&mut state);
            state.is_idle()
        };
        if idle {
            self.idle.notify_waiters();
        }
    }
}

/// The right and the duty to take batches, until there is none.
#[derive(Debug)]
#[must_use = "somebody waits for what it takes"]
pub(crate) struct Turn<I, O, G> {
    line: Arc<Line<I, O, G>>,
    over: bool,
}

impl<I, O, G> Turn<I, O, G> {
    /// The next batch to send. Without one, the turn is over: invariant 1.
    pub(crate) fn take(&mut self) -> Option<Batch<I, O, G>> {
        let mut state = lock(&self.line.state);
        let size = state.waiting.len().min(MAX_BATCH);
        if size > 0 {
            state.under_way += 1;
            let (items, askers) = state.waiting.drain(..size).unzip();
            let line = Arc::clone(&self.line);
            return Some(Batch { items, askers, in_doubt: false, line });
        }
        (self.over, state.sending) = (true, false);
        let idle = state.is_idle();
        drop(state);
        if idle {
            self.line.idle.notify_waiters();
        }
        None
    }

    /// Tells those in line of an error who have waited for too long. Nothing was sent of
    /// theirs.
    pub(crate) fn give_up(&self, is_over: impl Fn(Instant) -> bool, error: &Error) {
        let mut given_up = Vec::new();
        {
            let mut state = lock(&self.line.state);
            while state.waiting.front().is_some_and(|(_, asker)| is_over(asker.since)) {
                given_up.extend(state.waiting.pop_front());
            }
        }
        for (_, asker) in given_up {
            asker.tell(Err(Error::new(ErrorKind::Unavailable, error.to_string())));
        }
    }
}

/// Keeps invariant 3.
impl<I, O, G> Drop for Turn<I, O, G> {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let mut left = VecDeque::new();
        self.line.change(|state| {
            state.sending = false;
            left = std::mem::take(&mut state.waiting);
        });
        for (_, asker) in left {
            asker.tell(Err(stopped(ErrorKind::Closed)));
        }
    }
}

/// What goes in one call.
#[derive(Debug)]
#[must_use = "somebody waits for the answers"]
pub(crate) struct Batch<I, O, G> {
    items: Vec<I>,
    askers: Vec<Asker<O, G>>,
    /// Whether an earlier attempt to send it may have been carried out.
    pub(crate) in_doubt: bool,
    line: Arc<Line<I, O, G>>,
}

impl<I, O, G> Batch<I, O, G> {
    pub(crate) fn items(&self) -> &[I] {
        &self.items
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Tells everybody what `judge` makes of the answers, and gives back those that it makes
    /// nothing of.
    pub(crate) fn answer<T>(
        mut self,
        answers: Vec<T>,
        judge: impl Fn(&I, T) -> Option<Result<O, Error>>,
    ) -> Option<Self> {
        let (asked, given) = (self.items.len(), answers.len());
        if asked != given {
            let text = format!("the store gave {given} answers to {asked} questions");
            self.fail(&Error::new(ErrorKind::Corrupt, text));
            return None;
        }
        let items = std::mem::take(&mut self.items).into_iter();
        let askers = std::mem::take(&mut self.askers);
        for ((item, asker), answer) in items.zip(askers).zip(answers) {
            if let Some(told) = judge(&item, answer) {
                asker.tell(told);
            } else {
                self.items.push(item);
                self.askers.push(asker);
            }
        }
        (!self.is_empty()).then_some(self)
    }

    /// Tells everybody of an error.
    pub(crate) fn fail(mut self, error: &Error) {
        self.items.clear();
        for asker in self.askers.drain(..) {
            asker.tell(Err(error.duplicate()));
        }
    }

    /// Tells those of an error who have waited for too long.
    pub(crate) fn give_up(&mut self, is_over: impl Fn(Instant) -> bool, error: &Error) {
        let items = std::mem::take(&mut self.items).into_iter();
        let askers = std::mem::take(&mut self.askers);
        for (item, asker) in items.zip(askers) {
            if is_over(asker.since) {
                asker.tell(Err(error.duplicate()));
            } else {
                self.items.push(item);
                self.askers.push(asker);
            }
        }
    }

    /// Both halves; the second one is empty if there is only one in the batch.
    pub(crate) fn halves(mut self) -> (Self, Self) {
        let middle = self.items.len().div_ceil(2);
        let items = self.items.split_off(middle);
        let askers = self.askers.split_off(middle);
        self.line.change(|state| state.under_way += 1);
        let (in_doubt, line) = (self.in_doubt, Arc::clone(&self.line));
        let second = Self { items, askers, in_doubt, line };
        (self, second)
    }
}

impl<I, O, G> Drop for Batch<I, O, G> {
    fn drop(&mut self) {
        // What is dropped without an answer goes first: who waits for rest may count it.
        self.askers.clear();
        self.line.change(|state| state.under_way -= 1);
    }
}

/// What is told when a task that talks to the store ends before its work.
pub(crate) fn stopped(kind: ErrorKind) -> Error {
    let text = "the task of the queue that talks to the store has ended: its runtime was \
                shut down, or it panicked";
    Error::new(kind, text)
}

/// Waits for an answer.
pub(crate) async fn answered<O>(answer: Answer<O>) -> Result<O, Error> {
    answer.await.unwrap_or_else(|_| Err(stopped(ErrorKind::Unknown)))
}

#[cfg(test)]
mod tests;
