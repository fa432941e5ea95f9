//! Batches: calls that are made while another is in flight go together in the next.
//!
//! There is no timer. A lone call is sent alone and at once. Under load each call carries
//! everything that was pushed during the one before: many callers share a round trip.
//!
//! Every request has its own result. Requests that failed and may succeed later are repeated
//! by a second task, so that they do not delay new ones.
//!
//! # Invariants
//!
//! 1. `sending` is true exactly while a [`SendGuard`] exists, and `repeating` exactly while
//!    a [`RepeatGuard`] exists. A call that adds an item and finds the flag false returns a
//!    guard for a task, so every item has a task to send it.
//! 2. Every pushed item is sent, even if its caller stopped waiting, unless the guard is
//!    dropped.
//! 3. Every caller gets an answer, an error, or a dropped channel. A guard that is dropped
//!    because its task panicked or its runtime is gone fails all waiting callers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};

use super::outage::Outage;
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
    /// Notified when an item joins the failed ones.
    joined: Notify,
}

#[derive(Debug)]
struct OutboxState<I, O, G> {
    waiting: VecDeque<(I, Caller<O, G>)>,
    sending: bool,
    /// Items to be repeated, each at its time.
    failed: VecDeque<(I, Caller<O, G>)>,
    repeating: bool,
    batches_in_flight: usize,
}

/// A caller that waits for an answer.
#[derive(Debug)]
struct Caller<O, G> {
    sender: oneshot::Sender<Result<O, Error>>,
    since: Instant,
    /// The failed attempts so far.
    outage: Outage,
    /// The time of the next attempt after a failed one.
    next: Instant,
    /// Whether an earlier attempt may have been executed.
    in_doubt: bool,
    guard: G,
}

impl<O, G> Caller<O, G> {
    fn answer(self, answer: Result<O, Error>) {
        drop(self.guard);
        // A caller that stopped waiting needs no answer.
        drop(self.sender.send(answer));
    }

    /// Records a failed attempt. Returns whether patience lasts until the next.
    fn postpone(&mut self, error: &Error, now: Instant, patience: Duration) -> bool {
        self.in_doubt |= error.kind() == ErrorKind::Unknown;
        let next = now.checked_add(self.outage.next_pause(now));
        self.next = next.unwrap_or(now);
        !self.outage.exceeds(patience, self.since, next)
    }
}

impl<I, O, G> Clone for Batcher<I, O, G> {
    fn clone(&self) -> Self {
        Self { outbox: Arc::clone(&self.outbox) }
    }
}

impl<I, O, G> Batcher<I, O, G> {
    /// Creates a batcher that notifies `idle` each time it becomes idle.
    pub(crate) fn new(idle: Arc<Notify>) -> Self {
        let state = OutboxState {
            waiting: VecDeque::new(),
            sending: false,
            failed: VecDeque::new(),
            repeating: false,
            batches_in_flight: 0,
        };
        let (state, joined) = (Mutex::new(state), Notify::new());
        Self { outbox: Arc::new(Outbox { state, idle, joined }) }
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
        let caller = Caller {
            sender,
            since: now,
            outage: Outage::default(),
            next: now,
            in_doubt: false,
            guard,
        };
        self.waiting.push_back((item, caller));
        answer
    }

    fn is_idle(&self) -> bool {
        !self.sending && !self.repeating && self.batches_in_flight == 0
    }
}

impl<I, O, G> Outbox<I, O, G> {
    fn change<T>(&self, change: impl FnOnce(&mut OutboxState<I, O, G>) -> T) -> T {
        let (changed, idle) = {
            let mut state = lock(&self.state);
            let changed = change(&mut state);
            (changed, state.is_idle())
        };
        if idle {
            self.idle.notify_waiters();
        }
        changed
    }
}

/// Held by the task that sends new items until none is left.
#[derive(Debug)]
#[must_use = "callers wait for its batches"]
pub(crate) struct SendGuard<I, O, G> {
    outbox: Arc<Outbox<I, O, G>>,
    finished: bool,
}

impl<I, O, G> SendGuard<I, O, G> {
    /// Takes the next batch. Without one, the guard is finished: invariant 1.
    pub(crate) fn take(&mut self) -> Option<Batch<I, O, G>> {
        let taken = self.outbox.change(|state| {
            let size = state.waiting.len().min(MAX_BATCH);
            state.sending = size > 0;
            state.batches_in_flight += usize::from(size > 0);
            (size > 0).then(|| state.waiting.drain(..size).unzip())
        });
        self.finished = taken.is_none();
        taken.map(|(items, callers)| Batch::new(items, callers, &self.outbox))
    }
}

/// Keeps invariant 3.
impl<I, O, G> Drop for SendGuard<I, O, G> {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let left = self.outbox.change(|state| {
            state.sending = false;
            std::mem::take(&mut state.waiting)
        });
        for (_, caller) in left {
            caller.answer(Err(task_ended(ErrorKind::Closed)));
        }
    }
}

/// Held by the task that repeats failed items until none is left.
#[derive(Debug)]
#[must_use = "callers wait for its batches"]
pub(crate) struct RepeatGuard<I, O, G> {
    outbox: Arc<Outbox<I, O, G>>,
    finished: bool,
}

impl<I, O, G> RepeatGuard<I, O, G> {
    /// Waits until an item joins the failed ones.
    pub(crate) async fn joined(&self) {
        self.outbox.joined.notified().await;
    }

    /// Returns the time of the next attempt. Without one, the guard is finished:
    /// invariant 1.
    pub(crate) fn next(&mut self) -> Option<Instant> {
        let next = self.outbox.change(|state| {
            state.repeating = !state.failed.is_empty();
            state.failed.iter().map(|(_, caller)| caller.next).min()
        });
        self.finished = next.is_none();
        next
    }

    /// Takes items whose time has come.
    pub(crate) fn take_due(&self, now: Instant) -> Option<Batch<I, O, G>> {
        let (items, callers): (Vec<_>, Vec<_>) = self.outbox.change(|state| {
            let (mut due, mut rest) = (Vec::new(), VecDeque::new());
            for (item, caller) in state.failed.drain(..) {
                if caller.next <= now && due.len() < MAX_BATCH {
                    due.push((item, caller));
                } else {
                    rest.push_back((item, caller));
                }
            }
            state.failed = rest;
            state.batches_in_flight += usize::from(!due.is_empty());
            due.into_iter().unzip()
        });
        (!items.is_empty()).then(|| Batch::new(items, callers, &self.outbox))
    }

    /// Postpones the items whose time has come without sending them: the store does not
    /// answer. Fails callers whose patience ends before.
    pub(crate) fn postpone_due(&self, error: &Error, now: Instant, patience: Duration) {
        let over = self.outbox.change(|state| {
            let (mut over, mut rest) = (Vec::new(), VecDeque::new());
            for (item, mut caller) in state.failed.drain(..) {
                let is_due = caller.next <= now;
                // It was not sent, so its outcome is not in doubt.
                let in_doubt = caller.in_doubt;
                let goes_on = !is_due || caller.postpone(error, now, patience);
                caller.in_doubt = in_doubt;
                if goes_on {
                    rest.push_back((item, caller));
                } else {
                    over.push(caller);
                }
            }
            state.failed = rest;
            over
        });
        for caller in over {
            caller.answer(Err(error.clone()));
        }
    }
}

/// Keeps invariant 3.
impl<I, O, G> Drop for RepeatGuard<I, O, G> {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let left = self.outbox.change(|state| {
            state.repeating = false;
            std::mem::take(&mut state.failed)
        });
        for (_, caller) in left {
            caller.answer(Err(task_ended(ErrorKind::Unknown)));
        }
    }
}

/// The items of one call.
#[derive(Debug)]
#[must_use = "callers wait for its answers"]
pub(crate) struct Batch<I, O, G> {
    items: Vec<I>,
    callers: Vec<Caller<O, G>>,
    outbox: Arc<Outbox<I, O, G>>,
}

impl<I, O, G> Batch<I, O, G> {
    fn new(
        items: Vec<I>,
        callers: Vec<Caller<O, G>>,
        outbox: &Arc<Outbox<I, O, G>>,
    ) -> Self {
        Self { items, callers, outbox: Arc::clone(outbox) }
    }

    pub(crate) fn items(&self) -> &[I] {
        &self.items
    }

    /// Passes on the answers, as `judge` sees them, and the errors that are not transient.
    /// Postpones the other items. Returns them, unless the patience of all of them ends.
    ///
    /// `judge` also receives whether an earlier attempt may have been executed. `explain`
    /// rewords the error of a caller whose patience ends.
    pub(crate) fn answer<T>(
        mut self,
        answers: Vec<Result<T, Error>>,
        judge: impl Fn(&I, T, bool) -> Result<O, Error>,
        explain: impl Fn(&I, Error) -> Error,
        now: Instant,
        patience: Duration,
    ) -> Option<Self> {
        let (asked, given) = (self.items.len(), answers.len());
        if asked != given {
            let text = format!("the store gave {given} answers to {asked} requests");
            self.fail(&Error::new(ErrorKind::Corrupt, text));
            return None;
        }
        let items = std::mem::take(&mut self.items).into_iter();
        let callers = std::mem::take(&mut self.callers);
        for ((item, mut caller), answer) in items.zip(callers).zip(answers) {
            match answer {
                Ok(answer) => {
                    let judged = judge(&item, answer, caller.in_doubt);
                    caller.answer(judged);
                }
                Err(error)
                    if error.is_transient() && caller.postpone(&error, now, patience) =>
                {
                    self.items.push(item);
                    self.callers.push(caller);
                }
                Err(error) => caller.answer(Err(explain(&item, error))),
            }
        }
        (!self.items.is_empty()).then_some(self)
    }

    /// Fails all callers.
    fn fail(mut self, error: &Error) {
        self.items.clear();
        for caller in self.callers.drain(..) {
            caller.answer(Err(error.clone()));
        }
    }

    /// Adds the items to the failed ones. If no task repeats these, returns a guard for one.
    pub(crate) fn repeat_later(mut self) -> Option<RepeatGuard<I, O, G>> {
        let items = std::mem::take(&mut self.items).into_iter();
        let failed = items.zip(std::mem::take(&mut self.callers));
        let was_repeating = self.outbox.change(|state| {
            state.failed.extend(failed);
            std::mem::replace(&mut state.repeating, true)
        });
        self.outbox.joined.notify_one();
        let guard = || RepeatGuard { outbox: Arc::clone(&self.outbox), finished: false };
        (!was_repeating).then(guard)
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
