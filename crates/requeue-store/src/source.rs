//! The queue on a store as the source of a pool.

use std::fmt::{Debug, Formatter, Result as FmtResult};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use requeue::pool::{Expiry, Failure, Source, Stopped, Work};
use requeue::{Clock, Finish};

use crate::client::Client;
use crate::client::getters::delivered;
use crate::client::held_leases::HeldLease;
use crate::lease::{Finishing, RawLease, SharedLease};
use crate::{Error, Finished, SharedQueue, Store, StoreKey};

/// Lets a [`Pool`](requeue::pool::Pool) work on a shared queue.
///
/// A failed key is retried with the queue's [`Backoff`](crate::Backoff) or
/// [policy](crate::SharedQueueBuilder::retry), and a key that failed for good moves to the
/// dead keys of the store. The run of a task is cancelled if its lease is lost.
///
/// Transient errors of the store never end a pool. The workers wait, and
/// [`on_error`](crate::SharedQueueBuilder::on_error) is called for each failed attempt. An
/// error of [`Class::GiveUp`](crate::Class::GiveUp) closes the handle, and the workers end.
/// A stopped or drained pool leaves the remaining keys in the store and lists none of them.
impl<K, S> Source for SharedQueue<K, S>
where
    K: StoreKey + Clone + Debug + Send + Sync + 'static,
    S: Store,
{
    type Key = K;
    type Work = SharedLease<K, S>;
    type Get = SharedGet<K, S>;

    fn name(&self) -> &str {
        &self.client().settings.name
    }

    fn get(&self) -> SharedGet<K, S> {
        SharedGet::new(Arc::clone(self.client()), None)
    }

    fn close(&self) {
        self.close();
    }

    fn close_now(&self) -> Stopped<K> {
        self.close();
        let leased = self.client().held.running();
        let keys = leased.iter().filter_map(|key| K::decode(key).ok());
        Stopped::new(keys.collect(), Vec::new())
    }

    fn flush(&self) -> BoxFuture<()> {
        let client = Arc::clone(self.client());
        Box::pin(async move { client.flushed().await })
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
        SharedGet::new(Arc::clone(finishing.client()), Some(finishing))
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

    fn lost(&self) -> BoxFuture<()> {
        let (held, clock) = (Arc::clone(&self.held), Arc::clone(&self.clock));
        Box::pin(async move { held.lost(&*clock).await })
    }
}

/// Waits for a key of a [`SharedQueue`], for a worker of a pool.
///
/// # Cancel safety
///
/// Dropping it loses no key.
#[must_use = "futures do nothing unless polled"]
pub struct SharedGet<K, S: Store> {
    next: BoxFuture<Option<SharedLease<K, S>>>,
}

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl<K, S> SharedGet<K, S>
where
    K: StoreKey + Send + 'static,
    S: Store,
{
    /// Waits for the next key. The answer to the last finish is awaited only to report its
    /// error, while the next key is fetched.
    fn new(client: Arc<Client<S>>, last: Option<Finishing<S>>) -> Self {
        let next = async move {
            let mut receiver = client.get(1);
            if let Some(Err(error)) = finished(last).await {
                client.report(&error);
            }
            loop {
                match delivered(receiver).await {
                    Ok(raw) if raw.is_empty() => return None,
                    Ok(raw) => {
                        let lease = raw.into_iter().find_map(RawLease::decode);
                        if lease.is_some() {
                            return lease;
                        }
                    }
                    // The client has reported it and tries again.
                    Err(error) if error.is_transient() => {}
                    Err(error) => {
                        client.report(&error);
                        client.close();
                    }
                }
                receiver = client.get(1);
            }
        };
        Self { next: Box::pin(next) }
    }
}

async fn finished<S: Store>(
    last: Option<Finishing<S>>,
) -> Option<Result<Finished, Error>> {
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
