//! Getters: callers that wait for keys, in the order in which they came.
//!
//! # Invariants
//!
//! 1. `fetching` is true exactly while a [`FetchGuard`] exists. A getter that finds it
//!    false receives a guard for a task that fetches keys for all getters.
//! 2. After [`Getters::close`] no getter waits: new ones are answered at once.
//! 3. A guard that is dropped while getters wait, because its task panicked or its runtime
//!    is gone, fails all of them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use super::batch::task_ended;
use crate::sync::lock;
use crate::{Error, ErrorKind};

/// What a getter receives: at least one key, or none if the queue is closed.
pub(crate) type Delivery<T> = Result<Vec<T>, Error>;

/// The waiting getters.
#[derive(Debug)]
pub(crate) struct Getters<T> {
    waiting: Arc<Mutex<Waiting<T>>>,
}

#[derive(Debug)]
struct Waiting<T> {
    getters: VecDeque<Getter<T>>,
    fetching: bool,
    closed: bool,
}

#[derive(Debug)]
struct Getter<T> {
    sender: oneshot::Sender<Delivery<T>>,
    max: usize,
}

impl<T> Getters<T> {
    pub(crate) fn new() -> Self {
        let waiting =
            Waiting { getters: VecDeque::new(), fetching: false, closed: false };
        Self { waiting: Arc::new(Mutex::new(waiting)) }
    }

    /// Adds a getter of up to `max` keys. If no task is fetching, also returns a guard for
    /// one.
    pub(crate) fn join(
        &self,
        max: usize,
    ) -> (oneshot::Receiver<Delivery<T>>, Option<FetchGuard<T>>) {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = lock(&self.waiting);
        if waiting.closed {
            drop(sender.send(Ok(Vec::new())));
            return (receiver, None);
        }
        waiting.getters.push_back(Getter { sender, max });
        let was_fetching = std::mem::replace(&mut waiting.fetching, true);
        let guard = || FetchGuard { waiting: Arc::clone(&self.waiting), finished: false };
        (receiver, (!was_fetching).then(guard))
    }

    /// Returns the number of waiting getters, for metrics.
    pub(crate) fn count(&self) -> usize {
        let waiting = lock(&self.waiting);
        waiting.getters.iter().filter(|getter| !getter.sender.is_closed()).count()
    }

    /// Gives keys to the first getters that still wait. Returns the rest.
    pub(crate) fn deliver(&self, mut keys: Vec<T>) -> Vec<T> {
        while !keys.is_empty() {
            let Some(getter) = lock(&self.waiting).getters.pop_front() else { break };
            let rest = keys.split_off(keys.len().min(getter.max));
            let delivered = std::mem::replace(&mut keys, rest);
            if let Err(Ok(refused)) = getter.sender.send(Ok(delivered)) {
                drop(keys.splice(..0, refused));
            }
        }
        keys
    }

    /// Fails all waiting getters.
    pub(crate) fn fail(&self, error: &Error) {
        for getter in lock(&self.waiting).getters.drain(..) {
            drop(getter.sender.send(Err(error.clone())));
        }
    }

    /// Answers all getters, waiting and future ones, that there are no more keys.
    pub(crate) fn close(&self) {
        let mut waiting = lock(&self.waiting);
        waiting.closed = true;
        for getter in waiting.getters.drain(..) {
            drop(getter.sender.send(Ok(Vec::new())));
        }
    }
}

/// Held by the task that fetches keys until no getter waits.
#[derive(Debug)]
#[must_use = "getters wait for keys"]
pub(crate) struct FetchGuard<T> {
    waiting: Arc<Mutex<Waiting<T>>>,
    finished: bool,
}

impl<T> FetchGuard<T> {
    /// Returns how many keys the getters want. If none, the guard is finished: invariant 1.
    pub(crate) fn wanted(&mut self) -> usize {
        let mut waiting = lock(&self.waiting);
        waiting.getters.retain(|getter| !getter.sender.is_closed());
        waiting.fetching = !waiting.getters.is_empty();
        self.finished = !waiting.fetching;
        waiting.getters.iter().fold(0, |sum, getter| sum.saturating_add(getter.max))
    }
}

/// Keeps invariant 3.
impl<T> Drop for FetchGuard<T> {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let mut waiting = lock(&self.waiting);
        waiting.fetching = false;
        for getter in waiting.getters.drain(..) {
            drop(getter.sender.send(Err(task_ended(ErrorKind::Closed))));
        }
    }
}

/// Waits for keys.
pub(crate) async fn delivered<T>(
    receiver: oneshot::Receiver<Delivery<T>>,
) -> Delivery<T> {
    receiver.await.unwrap_or_else(|_| Err(task_ended(ErrorKind::Closed)))
}
