//! Who waits for a key, in the order in which they came.
//!
//! # Invariants
//!
//! 1. `fetching` is true exactly while there is a [`Turn`]. Whoever finds it false is given
//!    one, for a task that fetches keys for those who wait.
//! 2. After [`Getters::close`] nobody waits: who comes is told at once.
//! 3. A turn that is dropped before nobody waits, because its task panicked or its runtime
//!    is gone, tells all who do.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use crate::batch::stopped;
use crate::sync::lock;
use crate::{Error, ErrorKind};

/// What somebody who waits is told: a key, or that there will be none.
pub(crate) type Handout<T> = Result<Option<T>, Error>;

/// Those who wait.
#[derive(Debug)]
pub(crate) struct Getters<T> {
    line: Arc<Mutex<Line<T>>>,
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
        Self { line: Arc::new(Mutex::new(line)) }
    }

    /// Joins the line: where the key will be, and the turn to fetch, if nobody has it.
    pub(crate) fn join(&self) -> (oneshot::Receiver<Handout<T>>, Option<Turn<T>>) {
        let (sender, receiver) = oneshot::channel();
        let mut line = lock(&self.line);
        if line.closed {
            drop(sender.send(Ok(None)));
            return (receiver, None);
        }
        line.waiting.push_back(sender);
        let taken = std::mem::replace(&mut line.fetching, true);
        (receiver, (!taken).then(|| Turn { line: Arc::clone(&self.line), over: false }))
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

/// The right and the duty to fetch keys, until nobody waits.
#[derive(Debug)]
#[must_use = "somebody waits for keys"]
pub(crate) struct Turn<T> {
    line: Arc<Mutex<Line<T>>>,
    over: bool,
}

impl<T> Turn<T> {
    /// How many wait. If nobody does, the turn is over: invariant 1.
    pub(crate) fn wanted(&mut self) -> usize {
        let mut line = lock(&self.line);
        line.waiting.retain(|sender| !sender.is_closed());
        line.fetching = !line.waiting.is_empty();
        self.over = !line.fetching;
        line.waiting.len()
    }
}

/// Keeps invariant 3.
impl<T> Drop for Turn<T> {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let mut line = lock(&self.line);
        line.fetching = false;
        for sender in line.waiting.drain(..) {
            drop(sender.send(Err(stopped(ErrorKind::Closed))));
        }
    }
}

/// Waits for a key.
pub(crate) async fn handed<T>(receiver: oneshot::Receiver<Handout<T>>) -> Handout<T> {
    receiver.await.unwrap_or_else(|_| Err(stopped(ErrorKind::Closed)))
}
