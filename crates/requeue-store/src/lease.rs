//! A leased key of a store, and the ways to finish it.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use requeue::Finish;

use crate::batch::{Answer, answered};
use crate::engine::Engine;
use crate::held::HeldLease;
use crate::meter::{Begun, Meter};
use crate::source::LeaseExpiry;
use crate::{Error, FinishRequest, Finished, Grant, Store, Token};

/// A lease whose key is still bytes.
pub(crate) struct RawLease<S: Store> {
    pub(crate) grant: Grant,
    held: Arc<HeldLease>,
    engine: Arc<Engine<S>>,
    /// When a worker received the key, if the queue is measured.
    begun: Option<Begun>,
    /// How the lease ends if it is dropped. `None` once it has ended.
    on_drop: Option<Finish>,
    /// What people read if the run failed.
    error: String,
}

impl<S: Store> RawLease<S> {
    /// A lease that no worker has received yet. Dropping it releases the key.
    pub(crate) fn new(
        engine: Arc<Engine<S>>,
        grant: Grant,
        held: Arc<HeldLease>,
    ) -> Self {
        Self {
            grant,
            held,
            engine,
            begun: None,
            on_drop: Some(Finish::Release),
            error: String::new(),
        }
    }

    /// A worker receives the key now.
    pub(crate) fn begin(&mut self) {
        let now = || self.engine.terms.clock.now();
        let waited = self.grant.waited;
        self.begun = self.engine.measure(|meter| meter.began(now(), waited));
        self.on_drop = Some(self.engine.terms.on_drop);
    }

    pub(crate) fn engine(&self) -> &Arc<Engine<S>> {
        &self.engine
    }

    fn lost(&self) -> impl Future<Output = ()> + Send + use<S> {
        let held = Arc::clone(&self.held);
        let clock = Arc::clone(&self.engine.terms.clock);
        async move { held.lost(&*clock).await }
    }

    pub(crate) fn set_error(&mut self, error: String) {
        self.error = error;
    }

    pub(crate) fn finish(mut self, finish: Finish) -> Answer<Finished> {
        self.on_drop = None;
        self.send(finish)
    }

    fn send(&mut self, finish: Finish) -> Answer<Finished> {
        if let Some(begun) = self.begun.take() {
            let now = self.engine.terms.clock.now();
            self.engine.measure(|meter| meter.ended(begun, now));
        }
        let leaving = self.held.end(&self.engine.held);
        let (hold, backoff) = (self.held.hold.clone(), self.engine.terms.backoff);
        let error = std::mem::take(&mut self.error);
        self.engine.finish(FinishRequest { hold, finish, backoff, error }, leaving)
    }
}

impl<S: Store> Drop for RawLease<S> {
    fn drop(&mut self) {
        let Some(finish) = self.on_drop.take() else { return };
        if std::thread::panicking() {
            self.engine.measure(Meter::panicked);
            self.error = "the worker panicked".to_owned();
        } else if self.error.is_empty() {
            self.error = "the worker dropped the lease".to_owned();
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
    pub(crate) fn new(key: K, raw: RawLease<S>) -> Self {
        Self { key, raw }
    }

    /// Returns the key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Returns the fencing token of this lease. It is greater than the token of every
    /// earlier lease of the key.
    pub fn token(&self) -> Token {
        self.raw.grant.token
    }

    /// Returns how often the key was delivered since a worker last finished it, this time
    /// included.
    pub fn deliveries(&self) -> u32 {
        self.raw.grant.deliveries
    }

    /// Returns how often the key has failed since its failures were last forgotten.
    #[doc(alias = "NumRequeues")]
    pub fn num_requeues(&self) -> u32 {
        self.raw.grant.failures
    }

    /// Returns the priority with which the key was queued.
    #[doc(alias = "GetWithPriority")]
    pub fn priority(&self) -> i32 {
        self.raw.grant.priority.into()
    }

    /// Returns whether the work must stop: the lease has expired or is about to.
    pub fn is_lost(&self) -> bool {
        self.raw.held.is_lost(&*self.raw.engine.terms.clock)
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
        let clock = Arc::clone(&self.raw.engine.terms.clock);
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
        self.raw.set_error(error.to_string());
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
    /// [backoff](crate::Backoff) chooses.
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
        let engine = Arc::clone(self.raw.engine());
        let answer = self.raw.finish(finish);
        Finishing { answer: Box::pin(answered(answer)), engine }
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
    engine: Arc<Engine<S>>,
}

impl<S: Store> Finishing<S> {
    pub(crate) fn engine(&self) -> &Arc<Engine<S>> {
        &self.engine
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
