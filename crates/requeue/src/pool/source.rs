//! What a pool works on: a queue in memory, or any other that hands out keys in the same
//! way.

use std::fmt::{self, Debug};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::metrics::Ended;
use crate::{Finish, Get, Lease, Queue};

/// A queue that a [`Pool`](super::Pool) can work on.
///
/// [`Queue`] is one, and so is the queue on a store of the crate `requeue-store`. The
/// workers of a pool hold its [`Get`](Source::Get) or its [`Work`], never the source
/// itself, so that a source whose handles are all dropped can close.
pub trait Source: Clone + Debug + Send + Sync + 'static {
    /// What the queue is of.
    type Key: Clone + Debug + Send + Sync + 'static;
    /// The right to work on one key.
    type Work: Work<Key = Self::Key, Next = Self::Get>;
    /// Waits for a key; `None` if there will be none. Dropping it loses no key.
    ///
    /// If a poll panics, the worker drops the future, pauses, and calls
    /// [`get`](Source::get) again. If the pool has no handles any more, it polls the same
    /// future again.
    type Get: Future<Output = Option<Self::Work>> + Send + Unpin + 'static;

    /// What the queue is called.
    fn name(&self) -> &str;

    /// Waits for a key.
    fn get(&self) -> Self::Get;

    /// Has workers leave once nothing is ready.
    fn close(&self);

    /// Has workers leave at once, and gives back the keys that nobody was given and that
    /// would be lost otherwise: none if they are kept elsewhere.
    fn close_now(&self) -> Vec<Self::Key>;

    /// Waits until what workers said has reached where the keys are kept, and no key is on
    /// its way to a worker, once it is closed and the workers have left. Dropping it loses
    /// nothing. In memory that is so at once.
    fn settled(&self) -> Settled {
        Box::pin(std::future::ready(()))
    }
}

/// What [`Source::settled`] gives.
pub type Settled = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The right to work on one key: what a lease is to a pool.
pub trait Work: Sized + Send + 'static {
    /// What it is the right to work on.
    type Key;
    /// Waits for the next key.
    type Next;

    /// The key.
    fn key(&self) -> &Self::Key;

    /// How often in a row the key has failed.
    fn num_requeues(&self) -> u32;

    /// Ready once the right is lost before the work has ended; a run that is a task is
    /// then cancelled. A lease in memory is never lost.
    fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let _: &Context<'_> = cx;
        Poll::Pending
    }

    /// Ends the work as `conclusion` says and waits for the next key. The work has ended
    /// even if what this returns is dropped without being polled.
    fn next(self, conclusion: &Conclusion<'_>) -> Self::Next;
}

/// How a run ended, and what is to become of its key.
#[non_exhaustive]
pub struct Conclusion<'a> {
    /// How the lease ends.
    pub finish: Finish,
    /// What happened.
    pub ended: Ended,
    /// The error, if the run failed. Formatting it does not panic.
    pub failure: Option<&'a dyn fmt::Display>,
    /// The key failed for good.
    pub dead: bool,
}

impl Conclusion<'_> {
    /// Returns the conclusion of a run that was dropped before it ended.
    pub(super) fn interrupted() -> Self {
        Self {
            finish: Finish::Release,
            ended: Ended::Cancelled,
            failure: None,
            dead: false,
        }
    }
}

impl Debug for Conclusion<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conclusion")
            .field("finish", &self.finish)
            .field("ended", &self.ended)
            .field("failure", &self.failure.map(ToString::to_string))
            .field("dead", &self.dead)
            .finish()
    }
}

impl<K: Clone + Debug + Send + Sync + 'static> Source for Queue<K> {
    type Key = K;
    type Work = Lease<K>;
    type Get = Get<K>;

    fn name(&self) -> &str {
        self.name()
    }

    fn get(&self) -> Get<K> {
        self.get()
    }

    fn close(&self) {
        self.close();
    }

    fn close_now(&self) -> Vec<K> {
        self.close_now()
    }
}

impl<K: Clone + Debug + Send + Sync + 'static> Work for Lease<K> {
    type Key = K;
    type Next = Get<K>;

    fn key(&self) -> &K {
        self.key()
    }

    fn num_requeues(&self) -> u32 {
        self.num_requeues()
    }

    fn next(self, conclusion: &Conclusion<'_>) -> Get<K> {
        self.next_with(conclusion.finish)
    }
}
