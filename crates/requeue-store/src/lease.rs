//! A leased key of a store, and the ways to finish it.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use requeue::Finish;

use crate::client::Client;
use crate::client::batch::{Answer, answered};
use crate::client::held_leases::HeldLease;
use crate::client::meter::{Meter, RunStart};
use crate::source::LeaseExpiry;
use crate::{Error, FinishRequest, Finished, Grant, Store, StoreKey, Token};

/// A lease whose key is still bytes.
pub(crate) struct RawLease<S: Store> {
    pub(crate) grant: Grant,
    held: Arc<HeldLease>,
    client: Arc<Client<S>>,
    /// When a worker received the key, if the queue is measured.
    begun: Option<RunStart>,
    /// How the lease ends if it is dropped. `None` once it has ended.
    on_drop: Option<Finish>,
    /// The error that people read if the run failed.
    error: String,
}

impl<S: Store> RawLease<S> {
    /// A lease that no worker has received yet. Dropping it releases the key.
    pub(crate) fn new(
        client: Arc<Client<S>>,
        grant: Grant,
        held: Arc<HeldLease>,
    ) -> Self {
        Self {
            grant,
            held,
            client,
            begun: None,
            on_drop: Some(Finish::Release),
            error: String::new(),
        }
    }

    /// Decodes the key for a worker that receives it now.
    ///
    /// A key that cannot be decoded moves to the dead, because no worker of this queue could
    /// ever process it, and is reported.
    pub(crate) fn decode<K: StoreKey>(mut self) -> Option<SharedLease<K, S>> {
        match K::decode(&self.grant.key) {
            Ok(key) => {
                self.begin();
                Some(SharedLease { key, raw: self })
            }
            Err(error) => {
                self.client.report(&error);
                self.error = error.to_string();
                drop(self.finish(Finish::GiveUp));
                None
            }
        }
    }

    fn begin(&mut self) {
        let now = || self.client.settings.clock.now();
        let waited = self.grant.waited;
        self.begun = self.client.measure(|meter| meter.began(now(), waited));
        self.on_drop = Some(self.client.settings.on_drop);
    }

    fn lost(&self) -> impl Future<Output = ()> + Send + use<S> {
        let held = Arc::clone(&self.held);
        let clock = Arc::clone(&self.client.settings.clock);
        async move { held.lost(&*clock).await }
    }

    fn finish(mut self, finish: Finish) -> Answer<Finished> {
        self.on_drop = None;
        self.send(finish)
    }

    fn send(&mut self, finish: Finish) -> Answer<Finished> {
        if let Some(begun) = self.begun.take() {
            let now = self.client.settings.clock.now();
            self.client.measure(|meter| meter.ended(begun, now));
        }
        let guard = self.held.finish(&self.client.held);
        let hold = self.held.hold.clone();
        let settings = &self.client.settings;
        let backoff = if finish == Finish::Retry {
            settings.backoff_after(self.grant.failures)
        } else {
            settings.backoff
        };
        let error = std::mem::take(&mut self.error);
        self.client.finish(FinishRequest { hold, finish, backoff, error }, guard)
    }
}

impl<S: Store> Drop for RawLease<S> {
    fn drop(&mut self) {
        let Some(finish) = self.on_drop.take() else { return };
        if std::thread::panicking() {
            self.client.measure(Meter::panicked);
            "the worker panicked".clone_into(&mut self.error);
        } else if self.error.is_empty() {
            "the worker dropped the lease".clone_into(&mut self.error);
        }
        drop(self.send(finish));
    }
}

impl<S: Store> fmt::Debug for RawLease<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawLease").field("grant", &self.grant).finish_non_exhaustive()
    }
}

/// Exclusive access to one key of a store, for a limited time.
///
/// No other worker receives the key while the lease lasts. The queue extends the lease in
/// the background, so work may take longer than one lease. The lease is lost only if the
/// process stalls or cannot reach the store; [`lost`](SharedLease::lost) reports that
/// shortly before the store may deliver the key to another worker. Guard changes that the
/// work makes elsewhere with the [`token`](SharedLease::token).
///
/// A lease ends in the same ways as a [`requeue::Lease`]:
///
/// | the run | call | failures |
/// |---|---|---|
/// | succeeded | [`succeed`](SharedLease::succeed) | forgotten |
/// | succeeded; run it again after a delay | [`requeue_after`](SharedLease::requeue_after) | forgotten |
/// | failed; the backoff chooses the delay | [`retry`](SharedLease::retry) | counted |
/// | failed; the delay is known | [`retry_after`](SharedLease::retry_after) | counted |
/// | failed for good | [`give_up`](SharedLease::give_up) | kept with the dead key |
/// | did not happen | [`release`](SharedLease::release) | kept |
/// | ended, nothing else | [`done`](SharedLease::done) | kept |
///
/// The lease ends when the method is called. Await the returned [`Finishing`] to learn the
/// result. Finishing a lost lease changes nothing and returns
/// [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost).
///
/// A dropped lease is retried: the failure counts, and the key runs again after its
/// backoff. [`SharedQueueBuilder::on_drop`](crate::SharedQueueBuilder::on_drop) changes
/// that.
#[must_use = "a lease that is dropped is retried"]
pub struct SharedLease<K, S: Store> {
    key: K,
    raw: RawLease<S>,
}

impl<K, S: Store> SharedLease<K, S> {
    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Returns the fencing token of this lease. It is greater than the token of every
    /// earlier lease of the key.
    #[must_use]
    pub fn token(&self) -> Token {
        self.raw.grant.token
    }

    /// Returns how often the key was delivered since a worker last finished it, this time
    /// included.
    #[must_use]
    pub fn deliveries(&self) -> u32 {
        self.raw.grant.deliveries
    }

    /// Returns how often the key has failed since its failures were last forgotten.
    #[doc(alias = "NumRequeues")]
    #[must_use]
    pub fn num_requeues(&self) -> u32 {
        self.raw.grant.failures
    }

    /// Returns the priority with which the key was queued.
    #[doc(alias = "GetWithPriority")]
    #[must_use]
    pub fn priority(&self) -> i32 {
        self.raw.grant.priority.into()
    }

    /// Returns whether the work must stop: the lease has expired or is about to.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.raw.held.is_lost(&*self.raw.client.settings.clock)
    }

    /// Waits until the work must stop. If the lease is not lost, that is forever.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<K, S> {
        self.raw.lost()
    }

    pub(crate) fn expiry(&self) -> LeaseExpiry {
        let clock = Arc::clone(&self.raw.client.settings.clock);
        LeaseExpiry { held: Arc::clone(&self.raw.held), clock }
    }

    /// Sets the error that people read about the key if its run failed.
    ///
    /// The store keeps it with a key that is retried or given up, for example for
    /// `requeue look`. Other finishes ignore it.
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue_store::{Error, MemoryStore, SharedQueue, Store};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let queue = SharedQueue::<String, _>::new(MemoryStore::new());
    /// queue.add("default/web".to_owned()).await?;
    /// if let Some(lease) = queue.get().await? {
    ///     lease.with_error("connection refused").retry().await?;
    /// }
    /// assert_eq!(queue.store().failing(1).await?[0].error, "connection refused");
    /// # Ok::<(), Error>(())
    /// # }).unwrap();
    /// ```
    pub fn with_error(mut self, error: impl fmt::Display) -> Self {
        self.raw.error = error.to_string();
        self
    }

    /// Ends the lease after a success: the failures of the key are forgotten.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`](crate::ErrorKind::LeaseLost) if the lease had expired.
    /// [`Unknown`](crate::ErrorKind::Unknown) or
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if the store could not be reached for
    /// as long as the queue's [patience](crate::SharedQueueBuilder::patience) lasts, and
    /// [`Busy`](crate::ErrorKind::Busy) if a transaction locked the key for that long. The
    /// lease then expires.
    ///
    /// # Cancel safety
    ///
    /// The lease ends even if the future is dropped.
    #[doc(alias = "Forget")]
    pub fn succeed(self) -> Finishing<S> {
        self.finish(Finish::Succeed)
    }

    /// Ends the lease after a success and adds the key again after `delay`.
    ///
    /// The failures of the key are forgotten.
    ///
    /// # Errors
    ///
    /// As [`succeed`](Self::succeed).
    #[doc(alias = "AddAfter")]
    #[doc(alias = "RequeueAfter")]
    pub fn requeue_after(self, delay: Duration) -> Finishing<S> {
        self.finish(Finish::RequeueAfter(delay))
    }

    /// Ends the lease after a failure: the key is retried after a delay that the queue's
    /// [backoff](crate::Backoff) or [policy](crate::SharedQueueBuilder::retry) chooses.
    ///
    /// # Errors
    ///
    /// As [`succeed`](Self::succeed).
    #[doc(alias = "AddRateLimited")]
    pub fn retry(self) -> Finishing<S> {
        self.finish(Finish::Retry)
    }

    /// Ends the lease after a failure: the key is retried after `delay`.
    ///
    /// The failure counts as one of [`retry`](Self::retry).
    ///
    /// # Errors
    ///
    /// As [`succeed`](Self::succeed).
    pub fn retry_after(self, delay: Duration) -> Finishing<S> {
        self.finish(Finish::RetryAfter(delay))
    }

    /// Ends the lease after a permanent failure: the key moves to the dead keys.
    ///
    /// If the key was added during the lease, it becomes ready instead, and its failures
    /// are forgotten.
    ///
    /// # Errors
    ///
    /// As [`succeed`](Self::succeed).
    #[doc(alias = "TerminalError")]
    pub fn give_up(self) -> Finishing<S> {
        self.finish(Finish::GiveUp)
    }

    /// Ends the lease of a key that was not processed: it is ready again at once.
    ///
    /// The delivery does not count, and the key keeps its failures.
    ///
    /// # Errors
    ///
    /// As [`succeed`](Self::succeed).
    pub fn release(self) -> Finishing<S> {
        self.finish(Finish::Release)
    }

    /// Ends the lease and does nothing else: the key keeps its failures.
    ///
    /// # Errors
    ///
    /// As [`succeed`](Self::succeed).
    #[doc(alias = "Done")]
    pub fn done(self) -> Finishing<S> {
        self.finish(Finish::Done)
    }

    /// Ends the lease as `finish` says. Each of the methods above is one variant.
    ///
    /// # Errors
    ///
    /// As [`succeed`](Self::succeed).
    pub fn finish(self, finish: Finish) -> Finishing<S> {
        let client = Arc::clone(&self.raw.client);
        let answer = self.raw.finish(finish);
        Finishing { answer: Box::pin(answered(answer)), client }
    }
}

impl<K, S: Store> Deref for SharedLease<K, S> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.key
    }
}

impl<K: fmt::Debug, S: Store> fmt::Debug for SharedLease<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedLease")
            .field("key", &self.key)
            .field("token", &self.token())
            .finish_non_exhaustive()
    }
}

/// Waits until the store has ended a lease. Returned by the finishes of [`SharedLease`].
///
/// # Cancel safety
///
/// The lease ends even if this is dropped; only the result is lost.
pub struct Finishing<S: Store> {
    answer: Pin<Box<dyn Future<Output = Result<Finished, Error>> + Send>>,
    client: Arc<Client<S>>,
}

impl<S: Store> Finishing<S> {
    pub(crate) fn client(&self) -> &Arc<Client<S>> {
        &self.client
    }
}

impl<S: Store> Future for Finishing<S> {
    type Output = Result<Finished, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.answer.as_mut().poll(cx)
    }
}

impl<S: Store> fmt::Debug for Finishing<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finishing").finish_non_exhaustive()
    }
}
