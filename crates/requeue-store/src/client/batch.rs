//! Batches: calls that are made while another is in flight go together in the next.
//!
//! There is no timer. A lone call is sent alone and at once. Under load each call carries
//! everything that was pushed during the one before: many callers share a round trip.
//!
//! # Invariants
//!
//! 1. `sending` is true exactly while a [`SendGuard`] exists. A push that finds it false
//!    returns a guard for a task that sends batches, so every item has a task to send it.
//! 2. Every pushed item is sent, even if its caller stopped waiting, unless its patience
//!    ends first or the guard is dropped.
//! 3. Every caller gets an answer, an error, or a dropped channel. A guard that is dropped
//!    because its task panicked or its runtime is gone fails all waiting callers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio::sync::{Notify, oneshot};

use crate::sync::lock;
use crate::{Error, ErrorKind};

/// The largest batch. It keeps a script on Redis below a few milliseconds.
const MAX_BATCH: usize = 256;

/// Receives the answer for one item.
pub(crate) type Answer<O> = oneshot::Receiver<Result<O, Error>>;

/// Receives the answers for several items.
type Answers<O> = Vec<Answer<O>>;

/// Collects items `I` into batches and passes the answers `O` to their callers.
///
/// Each item has a guard `G`, which is dropped before its caller gets the answer.
#[derive(Debug)]
pub(crate) struct Batcher<I, O, G = ()> {
    outbox: Arc<Outbox<I, O, G>>,
}

#[derive(Debug)]
struct Outbox<I, O, G> {
    state: Mutex<OutboxState<I, O, G>>,
    /// Notified when the batcher becomes idle.
    idle: Arc<Notify>,
}

#[derive(Debug)]
struct OutboxState<I, O, G> {
    waiting: VecDeque<(I, Caller<O, G>)>,
    sending: bool,
    batches_in_flight: usize,
}

/// A caller that waits for an answer.
#[derive(Debug)]
struct Caller<O, G> {
    sender: oneshot::Sender<Result<O, Error>>,
    since: Instant,
    guard: G,
}

impl<O, G> Caller<O, G> {
    fn answer(self, answer: Result<O, Error>) {
        drop(self.guard);
        // A caller that stopped waiting needs no answer.
        drop(self.sender.send(answer));
    }
}

impl<I, O, G> Batcher<I, O, G> {
    /// Creates a batcher that notifies `idle` each time it becomes idle.
    pub(crate) fn new(idle: Arc<Notify>) -> Self {
        let state = OutboxState {
            waiting: VecDeque::new(),
            sending: false,
            batches_in_flight: 0,
        };
        Self { outbox: Arc::new(Outbox { state: Mutex::new(state), idle }) }
    }

    /// Adds an item to the next batch. If no task is sending, also returns a guard for one.
    pub(crate) fn push(
        &self,
        item: I,
        guard: G,
        now: Instant,
    ) -> (Answer<O>, Option<SendGuard<I, O, G>>) {
        let mut state = lock(&self.outbox.state);
        let answer = state.push(item, guard, now);
        (answer, self.send_guard(&mut state))
    }

    /// As [`push`](Self::push) for several items.
    pub(crate) fn push_all(
        &self,
        items: impl IntoIterator<Item = (I, G)>,
        now: Instant,
    ) -> (Answers<O>, Option<SendGuard<I, O, G>>) {
        let mut state = lock(&self.outbox.state);
        let push = |(item, guard)| state.push(item, guard, now);
        let answers: Vec<_> = items.into_iter().map(push).collect();
        let guard = if answers.is_empty() { None } else { self.send_guard(&mut state) };
        (answers, guard)
    }

    /// Keeps invariant 1.
    fn send_guard(&self, state: &mut OutboxState<I, O, G>) -> Option<SendGuard<I, O, G>> {
        let was_sending = std::mem::replace(&mut state.sending, true);
        let guard = || SendGuard { outbox: Arc::clone(&self.outbox), finished: false };
        (!was_sending).then(guard)
    }

    /// Returns whether no item is waiting or in flight.
    pub(crate) fn is_idle(&self) -> bool {
        lock(&self.outbox.state).is_idle()
    }
}

impl<I, O, G> OutboxState<I, O, G> {
    fn push(&mut self, item: I, guard: G, now: Instant) -> Answer<O> {
        let (sender, answer) = oneshot::channel();
        self.waiting.push_back((item, Caller { sender, since: now, guard }));
        answer
    }

    fn is_idle(&self) -> bool {
        !self.sending && self.batches_in_flight == 0
    }
}

impl<I, O, G> Outbox<I, O, G> {
    fn change(&self, change: impl FnOnce(&mut OutboxState<I, O, G>)) {
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

/// Held by the task that sends batches until no item is left.
#[derive(Debug)]
#[must_use = "callers wait for its batches"]
pub(crate) struct SendGuard<I, O, G> {
    outbox: Arc<Outbox<I, O, G>>,
    finished: bool,
}

impl<I, O, G> SendGuard<I, O, G> {
    /// Takes the next batch. Without one, the guard is finished: invariant 1.
    pub(crate) fn take(&mut self) -> Option<Batch<I, O, G>> {
        let mut state = lock(&self.outbox.state);
        let size = state.waiting.len().min(MAX_BATCH);
        if size > 0 {
            state.batches_in_flight += 1;
            let (items, callers) = state.waiting.drain(..size).unzip();
            let outbox = Arc::clone(&self.outbox);
            return Some(Batch { items, callers, in_doubt: false, outbox });
        }
        (self.finished, state.sending) = (true, false);
        let idle = state.is_idle();
        drop(state);
        if idle {
            self.outbox.idle.notify_waiters();
        }
        None
    }

    /// Fails waiting callers whose patience has ended. Their items have not been sent.
    pub(crate) fn fail_impatient(
        &self,
        is_over: impl Fn(Instant) -> bool,
        error: &Error,
    ) {
        let mut failed = Vec::new();
        {
            let mut state = lock(&self.outbox.state);
            while state.waiting.front().is_some_and(|(_, caller)| is_over(caller.since)) {
                failed.extend(state.waiting.pop_front());
            }
        }
        for (_, caller) in failed {
            caller.answer(Err(Error::new(ErrorKind::Unavailable, error.to_string())));
        }
    }
}

/// Keeps invariant 3.
impl<I, O, G> Drop for SendGuard<I, O, G> {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let mut left = VecDeque::new();
        self.outbox.change(|state| {
            state.sending = false;
            left = std::mem::take(&mut state.waiting);
        });
        for (_, caller) in left {
            caller.answer(Err(task_ended(ErrorKind::Closed)));
        }
    }
}

/// The items of one call.
#[derive(Debug)]
#[must_use = "callers wait for its answers"]
pub(crate) struct Batch<I, O, G> {
    items: Vec<I>,
    callers: Vec<Caller<O, G>>,
    /// Whether an earlier attempt to send it may have been executed.
    pub(crate) in_doubt: bool,
    outbox: Arc<Outbox<I, O, G>>,
}

impl<I, O, G> Batch<I, O, G> {
    pub(crate) fn items(&self) -> &[I] {
        &self.items
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Passes on the answers that `judge` accepts. Returns the rest, to be sent again.
    pub(crate) fn answer<T>(
        mut self,
        answers: Vec<T>,
        judge: impl Fn(&I, T) -> Option<Result<O, Error>>,
    ) -> Option<Self> {
        let (asked, given) = (self.items.len(), answers.len());
        if asked != given {
            let text = format!("the store gave {given} answers to {asked} requests");
            self.fail(&Error::new(ErrorKind::Corrupt, text));
            return None;
        }
        let items = std::mem::take(&mut self.items).into_iter();
        let callers = std::mem::take(&mut self.callers);
        for ((item, caller), answer) in items.zip(callers).zip(answers) {
            if let Some(answer) = judge(&item, answer) {
                caller.answer(answer);
            } else {
                self.items.push(item);
                self.callers.push(caller);
            }
        }
        (!self.is_empty()).then_some(self)
    }

    /// Fails all callers.
    pub(crate) fn fail(mut self, error: &Error) {
        self.items.clear();
        for caller in self.callers.drain(..) {
            caller.answer(Err(error.duplicate()));
        }
    }

    /// Fails callers whose patience has ended.
    pub(crate) fn fail_impatient(
        &mut self,
        is_over: impl Fn(Instant) -> bool,
        error: &Error,
    ) {
        let items = std::mem::take(&mut self.items).into_iter();
        let callers = std::mem::take(&mut self.callers);
        for (item, caller) in items.zip(callers) {
            if is_over(caller.since) {
                caller.answer(Err(error.duplicate()));
            } else {
                self.items.push(item);
                self.callers.push(caller);
            }
        }
    }

    /// Splits the batch in two. The second half of a batch of one is empty.
    pub(crate) fn halves(mut self) -> (Self, Self) {
        let middle = self.items.len().div_ceil(2);
        let items = self.items.split_off(middle);
        let callers = self.callers.split_off(middle);
        self.outbox.change(|state| state.batches_in_flight += 1);
        let (in_doubt, outbox) = (self.in_doubt, Arc::clone(&self.outbox));
        let second = Self { items, callers, in_doubt, outbox };
        (self, second)
    }
}

impl<I, O, G> Drop for Batch<I, O, G> {
    fn drop(&mut self) {
        // Guards go first: a caller that waits until the client is idle may count them.
        self.callers.clear();
        self.outbox.change(|state| state.batches_in_flight -= 1);
    }
}

/// The error of callers whose background task ended before its work.
pub(crate) fn task_ended(kind: ErrorKind) -> Error {
    let text = "a background task of the queue ended: its runtime was shut down, or it \
                panicked";
    Error::new(kind, text)
}

/// Waits for an answer.
pub(crate) async fn answered<O>(answer: Answer<O>) -> Result<O, Error> {
    answer.await.unwrap_or_else(|_| Err(task_ended(ErrorKind::Unknown)))
}

#[cfg(test)]
mod tests;
