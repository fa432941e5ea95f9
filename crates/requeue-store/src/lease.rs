//! The right to work on one key of a store, and the ways to end it.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::batch::{Answer, answered};
use crate::engine::Engine;
use crate::held::HeldLease;
use crate::meter::{Begun, Meter};
use crate::{Backoff, Ending, Error, Finished, Grant, Store, Token};

/// A lease whose key is still bytes. Dropping it releases the key.
pub(crate) struct RawLease<S: Store> {
    pub(crate) grant: Grant,
    held: Arc<HeldLease>,
    engine: Arc<Engine<S>>,
    /// When a worker was given it, if that is measured.
    begun: Option<Begun>,
    ended: bool,
}

impl<S: Store> RawLease<S> {
    pub(crate) fn new(
        engine: Arc<Engine<S>>,
        grant: Grant,
        held: Arc<HeldLease>,
    ) -> Self {
        Self { grant, held, engine, begun: None, ended: false }
    }

    /// A worker is given the key now.
    pub(crate) fn begin(&mut self) {
        let now = || self.engine.terms.clock.now();
        let waited = self.grant.waited;
        self.begun = self.engine.measure(|meter| meter.began(now(), waited));
    }

    pub(crate) fn engine(&self) -> &Arc<Engine<S>> {
        &self.engine
    }

    fn lost(&self) -> impl Future<Output = ()> + Send + use<S> {
        let held = Arc::clone(&self.held);
        let clock = Arc::clone(&self.engine.terms.clock);
        async move { held.lost(&*clock).await }
    }

    pub(crate) fn end(mut self, ending: Ending) -> Answer<Finished> {
        self.ended = true;
        self.end_now(ending)
    }

    fn end_now(&mut self, ending: Ending) -> Answer<Finished> {
        if let Some(begun) = self.begun.take() {
            let now = self.engine.terms.clock.now();
            self.engine.measure(|meter| meter.ended(begun, now));
        }
        let leaving = self.held.end(&self.engine.held);
        self.engine.end(self.held.hold.clone(), ending, leaving)
    }
}

impl<S: Store> Drop for RawLease<S> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let ending = if std::thread::panicking() {
            self.engine.measure(Meter::panicked);
            let backoff = self.engine.terms.backoff;
            Ending::Retry { backoff, error: "the worker panicked".to_owned() }
        } else {
            Ending::Release
        };
        drop(self.end_now(ending));
    }
}

impl<S: Store> fmt::Debug for RawLease<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawLease").field("grant", &self.grant).finish_non_exhaustive()
    }
}

/// A key of a store that was handed out, and the right to work on it for a while.
///
/// While the lease lasts, nobody else is given its key. It is extended in the background
/// for as long as it exists, so work may take longer than the lease; only if the process
/// stalls, or the store cannot be reached, is it lost. [`lost`](SharedLease::lost) says so,
/// a little before the store would give the key to another. What the work changes outside
/// can be guarded by its [`token`](SharedLease::token).
///
/// | to say | call | the key's failures |
/// |---|---|---|
/// | it went well | [`succeed`](SharedLease::succeed) | are forgotten |
/// | it failed, try again later | [`retry`](SharedLease::retry) | are one more |
/// | come again at a given time | [`retry_after`](SharedLease::retry_after) | are forgotten |
/// | it failed for good | [`bury`](SharedLease::bury) | go with it to the dead |
/// | neither well nor badly | [`done`](SharedLease::done) | are kept |
/// | it was not begun | [`release`](SharedLease::release), or drop it | are kept |
///
/// Each of these takes effect when it is called; awaiting what it returns tells the
/// outcome. An end of a lease that was lost changes nothing and is answered with
/// [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost).
///
/// Unlike [`requeue::Lease`], a lease that is dropped is released and not done: the process
/// may be on its way out, and the key must not be lost. Dropped while its thread panics, it
/// is retried.
#[must_use = "a lease that is dropped is released at once"]
pub struct SharedLease<K, S: Store> {
    key: K,
    raw: RawLease<S>,
    /// Waits for the loss on behalf of [`poll_lost`](Self::poll_lost).
    watch: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<K, S: Store> SharedLease<K, S> {
    pub(crate) fn new(key: K, raw: RawLease<S>) -> Self {
        Self { key, raw, watch: None }
    }

    /// The key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// The number of this grant, greater than that of every earlier grant of the key: a
    /// fencing token for whatever the work changes.
    pub fn token(&self) -> Token {
        self.raw.grant.token
    }

    /// How often the key was handed out since a lease of it last ended by its holder, this
    /// time included.
    pub fn deliveries(&self) -> u32 {
        self.raw.grant.deliveries
    }

    /// How often in a row the key has failed.
    #[doc(alias = "NumRequeues")]
    pub fn num_requeues(&self) -> u32 {
        self.raw.grant.failures
    }

    /// The priority with which the key came.
    #[doc(alias = "GetWithPriority")]
    pub fn priority(&self) -> i32 {
        self.raw.grant.priority.into()
    }

    /// Whether the work must stop, since the lease has run out or is about to.
    pub fn is_lost(&self) -> bool {
        self.raw.held.is_lost(&*self.raw.engine.terms.clock)
    }

    /// Waits until the work must stop; for ever, if all goes well.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<K, S> {
        self.raw.lost()
    }

    pub(crate) fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.watch.is_none() {
            self.watch = Some(Box::pin(self.raw.lost()));
        }
        self.watch.as_mut().map_or(Poll::Pending, |watch| watch.as_mut().poll(cx))
    }

    /// Ends the lease: it went well.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`](crate::ErrorKind::LeaseLost) if it was not held any more,
    /// [`Unknown`](crate::ErrorKind::Unknown) or
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if the store could not be reached for
    /// as long as the queue's patience lasts, [`Busy`](crate::ErrorKind::Busy) if a
    /// transaction had the key for all of that time: the lease then runs out by itself.
    ///
    /// # Cancel safety
    ///
    /// The lease ends even if the future is dropped.
    pub fn succeed(self) -> Finishing<S> {
        self.end(Ending::Succeed)
    }

    /// Ends the lease: it failed, and comes again when the queue's backoff says. `error` is
    /// what people see in `requeue status`.
    ///
    /// # Errors
    ///
    /// As [`succeed`](Self::succeed).
    pub fn retry(self, error: impl fmt::Display) -> Finishing<S> {
        let backoff = self.backoff();
        self.end(Ending::Retry { backoff, error: error.to_string() })
    }

    /// Ends the lease: the key comes again after `delay`.
    ///
    /// # Errors
    ///
    /// As [`succeed`](Self::succeed).
    pub fn retry_after(self, delay: Duration) -> Finishing<S> {
        self.end(Ending::RetryAfter(delay))
    }

    /// Ends the lease: it failed for good. The key goes to the dead, unless it was added
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// As [`succeed`](Self::succeed).
    pub fn bury(self, reason: impl fmt::Display) -> Finishing<S> {
        self.end(Ending::Bury { reason: reason.to_string() })
    }

    /// Ends the lease, neither well nor badly.
    ///
    /// # Errors
    ///
    /// As [`succeed`](Self::succeed).
    pub fn done(self) -> Finishing<S> {
        self.end(Ending::Done)
    }

    /// Ends the lease as if it had never been: the key is ready again.
    ///
    /// # Errors
    ///
    /// As [`succeed`](Self::succeed).
    pub fn release(self) -> Finishing<S> {
        self.end(Ending::Release)
    }

    pub(crate) fn backoff(&self) -> Backoff {
        self.raw.engine.terms.backoff
    }

    pub(crate) fn end(self, ending: Ending) -> Finishing<S> {
        let engine = Arc::clone(self.raw.engine());
        let answer = self.raw.end(ending);
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

/// The end of a lease, on its way to the store: from the methods of [`SharedLease`].
///
/// # Cancel safety
///
/// The lease ends even if this is dropped; the outcome is then not known.
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
