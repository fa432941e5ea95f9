//! The queue on a store as something that a pool works on.

use std::fmt::{Debug, Formatter, Result as FmtResult};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use requeue::pool::{Expiry, Failure, Source, Stopped, Work};
use requeue::{Clock, Finish};

use crate::engine::Engine;
use crate::getters::handed;
use crate::held::HeldLease;
use crate::lease::{Finishing, SharedLease};
use crate::queue::decode;
use crate::{SharedQueue, Store, StoreKey};

/// A pool on a queue that is shared.
///
/// A handler that fails is retried by the queue's [`Backoff`](crate::Backoff); a key that
/// failed for good goes to the dead of the store, so that people find it there. A run whose
/// lease is lost is cancelled if it is a task. While the store cannot be reached the workers
/// wait for it, and [`on_error`](crate::SharedQueueBuilder::on_error) hears of it; an error that
/// trying again cannot mend closes the handle, and the workers leave. It also hears of a key
/// that cannot be decoded, which goes to the dead. What a stopped or drained pool leaves
/// behind stays in the store and is not listed.
impl<K, S> Source for SharedQueue<K, S>
where
    K: StoreKey + Clone + Debug + Send + Sync + 'static,
    S: Store,
{
    type Key = K;
    type Work = SharedLease<K, S>;
    type Get = SharedGet<K, S>;

    fn name(&self) -> &str {
        &self.engine().terms.name
    }

    fn get(&self) -> SharedGet<K, S> {
        SharedGet::new(Arc::clone(self.engine()), None)
    }

    fn close(&self) {
        self.close();
    }

    fn close_now(&self) -> Stopped<K> {
        self.close();
        let leased = self.engine().held.running();
        let keys = leased.iter().filter_map(|key| K::decode(key).ok());
        Stopped::new(keys.collect(), Vec::new())
    }

    fn flush(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let engine = Arc::clone(self.engine());
        Box::pin(async move { engine.rest().await })
    }
}

impl<K, S> Work for SharedLease<K, S>
where
    K: StoreKey + Clone + Debug + Send + Sync + 'static,
    S: Store,
{
    type Key = K;
    type Next = SharedGet<K, S>;

    fn key(&self) -> &K {
        self.key()
    }

    fn num_requeues(&self) -> u32 {
        self.num_requeues()
    }

    fn priority(&self) -> i32 {
        self.priority()
    }

    fn expiry(&self) -> Option<Arc<dyn Expiry>> {
        Some(Arc::new(self.expiry()))
    }

    fn next(self, finish: Finish, failure: Option<&Failure>) -> SharedGet<K, S> {
        let failure = failure.map(ToString::to_string).unwrap_or_default();
        let finishing = self.with_error(failure).finish(finish);
        SharedGet::new(Arc::clone(finishing.engine()), Some(finishing))
    }
}

/// The expiry of one lease, as this process knows it.
pub(crate) struct LeaseExpiry {
    pub(crate) held: Arc<HeldLease>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Expiry for LeaseExpiry {
    fn token(&self) -> u64 {
        self.held.hold.token.0
    }

    fn deadline(&self) -> Option<Instant> {
        self.held.fence()
    }

    fn is_lost(&self) -> bool {
        self.held.is_lost(&*self.clock)
    }

    fn lost(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let (held, clock) = (Arc::clone(&self.held), Arc::clone(&self.clock));
        Box::pin(async move { held.lost(&*clock).await })
    }
}

/// A worker of a pool that waits for a key of a [`SharedQueue`].
///
/// # Cancel safety
///
/// Dropping it loses no key.
#[must_use = "futures do nothing unless polled"]
pub struct SharedGet<K, S: Store> {
    next: Next<SharedLease<K, S>>,
}

type Next<T> = Pin<Box<dyn Future<Output = Option<T>> + Send>>;

impl<K, S> SharedGet<K, S>
where
    K: StoreKey + Send + 'static,
    S: Store,
{
    /// Waits for the next key. That the last one has ended is awaited at the same time,
    /// only to tell of errors.
    fn new(engine: Arc<Engine<S>>, last: Option<Finishing<S>>) -> Self {
        let mut receiver = engine.get();
        let next = async move {
            if let Some(Err(error)) = settle(last).await {
                engine.report(&error);
            }
            loop {
                match handed(receiver).await {
                    Ok(raw) => match decode(raw?) {
                        Ok(lease) => return Some(lease),
                        Err(error) => engine.report(&error),
                    },
                    Err(error) if error.is_transient() => {}
                    Err(error) => {
                        engine.report(&error);
                        engine.close();
                    }
                }
                receiver = engine.get();
            }
        };
        Self { next: Box::pin(next) }
    }
}

async fn settle<S: Store>(
    last: Option<Finishing<S>>,
) -> Option<Result<crate::Finished, crate::Error>> {
    Some(last?.await)
}

impl<K, S: Store> Future for SharedGet<K, S> {
    type Output = Option<SharedLease<K, S>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.next.as_mut().poll(cx)
    }
}

impl<K, S: Store> Debug for SharedGet<K, S> {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        f.debug_struct("SharedGet").finish_non_exhaustive()
    }
}
