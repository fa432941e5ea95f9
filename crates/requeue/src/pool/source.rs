//! What a pool works on: a queue in memory, or a queue on a store.

use std::fmt::Debug;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use super::failure::Failure;
use super::handle::Stopped;
use crate::{Finish, Get, Lease, Queue};

/// A queue that a [`Pool`](super::Pool) can work on.
///
/// [`Queue`] implements it, and so does the queue on a store in the crate `requeue-store`.
/// The workers of a pool hold a [`Get`](Source::Get) or a [`Work`], never the source itself,
/// so that a source whose handles are all dropped can close.
pub trait Source: Clone + Debug + Send + Sync + 'static {
    /// The type of the keys.
    type Key: Clone + Debug + Send + Sync + 'static;
    /// A lease on one key.
    type Work: Work<Key = Self::Key, Next = Self::Get>;
    /// A future of the next lease; `None` if there will be none. Dropping it loses no key.
    ///
    /// If a poll panics, the worker drops the future, pauses, and calls
    /// [`get`](Source::get) again. If the pool has no handles any more, the worker polls the
    /// same future again.
    type Get: Future<Output = Option<Self::Work>> + Send + Unpin + 'static;

    /// Returns the name of the queue.
    fn name(&self) -> &str;

    /// Waits for a key.
    fn get(&self) -> Self::Get;

    /// Closes the queue: workers leave once no key is ready.
    fn close(&self);

    /// Closes the queue at once. Returns the keys that are leased, and the undelivered keys
    /// that would otherwise be lost.
    ///
    /// Both lists are of the same moment, and no key is delivered after it. A queue on a
    /// store keeps its undelivered keys and returns none.
    fn close_now(&self) -> Stopped<Self::Key>;

    /// Waits until the store has recorded how all leases ended. Called after
    /// [`close`](Self::close), when all workers have left.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    fn flush(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(ready(()))
    }
}

/// A lease, as a pool uses it.
pub trait Work: Sized + Send + 'static {
    /// The type of the key.
    type Key: Clone + Debug + Send + Sync + 'static;
    /// A future of the next lease.
    type Next;

    /// Returns the key.
    fn key(&self) -> &Self::Key;

    /// Returns how often in a row the key has failed.
    fn num_requeues(&self) -> u32;

    /// Returns the priority with which the key was queued.
    fn priority(&self) -> i32 {
        0
    }

    /// Returns how the lease can be lost, or `None` if it cannot.
    fn expiry(&self) -> Option<Arc<dyn Expiry>> {
        None
    }

    /// Ends the lease as `finish` says and waits for the next key.
    ///
    /// `failure` is why the run failed, if it did. The key is dead if `finish` is
    /// [`Finish::GiveUp`]. The lease ends even if the returned future is dropped without
    /// being polled.
    fn next(self, finish: Finish, failure: Option<&Failure>) -> Self::Next;
}

/// The expiry of a lease on a store, which a run watches.
pub trait Expiry: Send + Sync {
    /// Returns the fencing token of the lease.
    fn token(&self) -> u64;

    /// Returns when the lease expires unless it is extended; `None` if that is not known.
    fn deadline(&self) -> Option<Instant>;

    /// Returns whether the lease is lost.
    fn is_lost(&self) -> bool;

    /// Waits until the lease is lost.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    fn lost(&self) -> Pin<Box<dyn Future<Output = ()> + Send>>;
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

    fn close_now(&self) -> Stopped<K> {
        let (left, leased) = self.close_now_and_list_leased();
        Stopped::new(leased, left)
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

    fn priority(&self) -> i32 {
        self.priority()
    }

    fn next(self, finish: Finish, _: Option<&Failure>) -> Get<K> {
        self.next_with(finish)
    }
}
