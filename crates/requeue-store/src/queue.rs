//! The queue on a store, as programs use it.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::builder::SharedQueueBuilder;
use crate::client::Client;
use crate::{Error, ErrorKind, Owner, Store, StoreKey};

mod add;
mod add_error;
mod get;
mod inspect;
mod weak;

pub use add_error::AddError;
pub use weak::WeakSharedQueue;

/// A queue on a store, for keys that must survive their process or that several machines
/// share.
///
/// It has the rules and method names of [`requeue::Queue`]: a ready key is queued once, it
/// is processed by one worker at a time, and a key that is added while it is being processed
/// runs once more afterwards. The differences:
///
/// | | [`requeue::Queue`] | `SharedQueue` |
/// |---|---|---|
/// | calls | immediate, cannot fail | `async`, can fail |
/// | a worker dies | its leases are dropped and retried | its leases expire, and the keys are delivered again: at least once, not exactly once |
/// | closing | ends the queue | ends this handle; the keys stay in the store |
/// | backoff | a [retry policy](requeue::retry) | the same, or a [`Backoff`](crate::Backoff); the store counts the failures |
/// | order | configurable | by priority from -128 to 127, then first in, first out, in each partition |
///
/// To inspect and manage the queue, call the [`store`](Self::store) with the trait [`Store`]
/// in scope, for example `queue.store().dead(10).await`.
///
/// Calls made while another call is in flight are sent together. With that, tasks that each
/// add or finish one key are nearly as fast as batches.
///
/// Handles are cheap to clone. The last handle that is dropped
/// [closes](SharedQueue::close) the queue; leases continue. Use a [`WeakSharedQueue`] where
/// a handle must not keep the queue open.
///
/// # Examples
///
/// ```
/// use requeue_store::{Error, MemoryStore, SharedQueue};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let queue = SharedQueue::<String, _>::new(MemoryStore::new());
/// queue.add("default/web".to_owned()).await?;
/// if let Some(lease) = queue.get().await? {
///     assert_eq!(lease.key(), "default/web");
///     lease.succeed().await?;
/// }
/// # Ok::<(), Error>(())
/// # }).unwrap();
/// ```
pub struct SharedQueue<K, S: Store> {
    handle: Arc<OpenClient<S>>,
    key: PhantomData<fn() -> K>,
}

/// Owned by handles only, so that its drop is the drop of the last handle.
struct OpenClient<S: Store>(Arc<Client<S>>);

impl<S: Store> Drop for OpenClient<S> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<K: StoreKey, S: Store> SharedQueue<K, S> {
    /// Creates a queue on `store` with the default settings of the
    /// [builder](Self::builder).
    ///
    /// # Panics
    ///
    /// If called outside a tokio runtime.
    #[must_use]
    pub fn new(store: S) -> Self {
        Self::builder(store).build()
    }

    /// Starts to configure a queue on `store`.
    pub fn builder(store: S) -> SharedQueueBuilder<K, S> {
        SharedQueueBuilder::new(store)
    }

    pub(crate) fn from_client(client: Arc<Client<S>>) -> Self {
        Self { handle: Arc::new(OpenClient(client)), key: PhantomData }
    }

    pub(crate) fn client(&self) -> &Arc<Client<S>> {
        &self.handle.0
    }

    /// Returns a handle that does not keep the queue open.
    #[must_use]
    pub fn downgrade(&self) -> WeakSharedQueue<K, S> {
        WeakSharedQueue { handle: Arc::downgrade(&self.handle), key: PhantomData }
    }

    /// Returns the store.
    #[must_use]
    pub fn store(&self) -> &S {
        &self.client().store
    }

    /// Returns the name of this queue among the owners of leases.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.client().settings.owner
    }

    /// Closes this handle and its clones: they add and deliver no more keys. Idempotent.
    ///
    /// The keys stay in the store for other handles. Held leases continue and can be
    /// finished.
    #[doc(alias = "ShutDown")]
    pub fn close(&self) {
        self.client().close();
    }

    /// Returns whether this handle is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.client().is_closed()
    }

    /// Closes this handle, and waits until its leases have ended and the store has answered
    /// all calls.
    ///
    /// Unlike [`Queue::drain`](requeue::Queue::drain), it leaves ready keys in the store for
    /// other handles.
    ///
    /// # Cancel safety
    ///
    /// The handle is closed at the first poll. Dropping the future loses nothing.
    #[doc(alias = "ShutDownWithDrain")]
    pub async fn shutdown(&self) {
        self.close();
        self.client().idle().await;
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "this handle of the queue is closed")
}

impl<K, S: Store> Clone for SharedQueue<K, S> {
    fn clone(&self) -> Self {
        Self { handle: Arc::clone(&self.handle), key: PhantomData }
    }
}

impl<K, S: Store> fmt::Debug for SharedQueue<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedQueue")
            .field("store", &self.handle.0.store.describe())
            .finish_non_exhaustive()
    }
}
