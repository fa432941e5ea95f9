//! Who waits for a key, in the order in which they came.
//!
//! # Invariants
//!
//! 1. `fetching` is true exactly while a task fetches keys for those who wait. Whoever
//!    finds it false sets it and starts one.
//! 2. After [`Getters::close`] nobody waits: who comes is told at once.

use std::collections::VecDeque;
use std::sync::Mutex;

use tokio::sync::oneshot;

use crate::sync::lock;
use crate::{Error, ErrorKind};

/// What somebody who waits is told: a key, or that there will be none.
pub(crate) type Handout<T> = Result<Option<T>, Error>;

/// Those who wait.
#[derive(Debug)]
pub(crate) struct Getters<T> {
    line: Mutex<Line<T>>,
}

#[derive(Debug)]
struct Line<T> {
    waiting: VecDeque<oneshot::Sender<Handout<T>>>,
    fetching: bool,
    closed: bool,
}

impl<T> Getters<T> {
    pub(crate) fn new() -> Self {
        let line = Line { waiting: VecDeque::new(), fetching: false, closed: false };
        Self { line: Mutex::new(line) }
    }

    /// Joins the line: where the key will be, and whether the caller is to start a task
    /// that fetches.
    pub(crate) fn join(&self) -> (oneshot::Receiver<Handout<T>>, bool) {
        let (sender, receiver) = oneshot::channel();
        let mut line = lock(&self.line);
        if line.closed {
            drop(sender.send(Ok(None)));
            return (receiver, false);
        }
        line.waiting.push_back(sender);
        let start = !std::mem::replace(&mut line.fetching, true);
        (receiver, start)
    }

    /// How many wait. If nobody does, the task that asks must end: invariant 1.
    pub(crate) fn wanted(&self) -> usize {
        let mut line = lock(&self.line);
        line.waiting.retain(|sender| !sender.is_closed());
        line.fetching = !line.waiting.is_empty();
        line.waiting.len()
    }

    /// How many wait, for whoever counts them.
    pub(crate) fn waiting(&self) -> usize {
        let line = lock(&self.line);
        line.waiting.iter().filter(|sender| !sender.is_closed()).count()
    }

    /// Gives a key to the first who still waits, or back if nobody does.
    pub(crate) fn hand(&self, mut key: T) -> Option<T> {
        loop {
            let next = lock(&self.line).waiting.pop_front();
            let Some(sender) = next else { return Some(key) };
            match sender.send(Ok(Some(key))) {
                Err(Ok(Some(refused))) => key = refused,
                Ok(()) | Err(Ok(None) | Err(_)) => return None,
            }
        }
    }

    /// Tells all who wait of an error.
    pub(crate) fn fail(&self, error: &Error) {
        for sender in lock(&self.line).waiting.drain(..) {
            drop(sender.send(Err(error.duplicate())));
        }
    }

    /// Tells all who wait, and all who come, that there will be no key.
    pub(crate) fn close(&self) {
        let mut line = lock(&self.line);
        line.closed = true;
        for sender in line.waiting.drain(..) {
            drop(sender.send(Ok(None)));
        }
    }
}

/// Waits for a key.
pub(crate) async fn handed<T>(receiver: oneshot::Receiver<Handout<T>>) -> Handout<T> {
    receiver.await.unwrap_or_else(|_| {
        let text = "the runtime of the queue was shut down";
        Err(Error::new(ErrorKind::Closed, text))
    })
}
