//! A tower layer whose services wait for a limiter (feature `tower`).
//!
//! # Invariants
//!
//! 1. A service lines up only when the inner service is ready, and is ready only with a token
//!    that may be used.
//! 2. Each call uses one token. An unused token goes back to the limiter.
//! 3. Futures are kept in a mutex that is never locked. It makes the service `Sync`, which a
//!    timer is not.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tower_layer::Layer;
use tower_service::Service;

use super::bucket::{Claim, Request};
use super::limiter::{Limiter, SharedBucket};
use super::line::Held;
use super::line::wait::WaitInLine;
use super::moment::nanos;
use crate::clock::Timer;

/// A tower layer that makes each call wait for a token of a [`Limiter`].
///
/// All services of one layer, and all their clones, share the limiter. So it also limits
/// servers that clone the service for each connection or request. The limit can change while
/// they run, through a clone of the limiter.
///
/// A service becomes ready when its call may start, so back-pressure, load shedding and
/// timeouts work as usual. Waiting services line up as callers of [`Limiter::wait`] do: a
/// dropped service leaves the line and costs the ones behind it nothing. A ready service that
/// is dropped without a call gives its token back, as far as the burst permits.
///
/// To refuse requests instead of waiting, use [`KeyedRateLimitLayer`](super::KeyedRateLimitLayer).
///
/// # Examples
///
/// ```
/// use requeue::rate::{Limit, Limiter, RateLimitLayer};
/// use tower_layer::Layer;
/// # use std::convert::Infallible;
/// # use std::future::{Ready, poll_fn, ready};
/// # use std::task::{Context, Poll};
/// use tower_service::Service;
/// # #[derive(Clone)]
/// # struct Echo;
/// # impl Service<u32> for Echo {
/// #     type Response = u32;
/// #     type Error = Infallible;
/// #     type Future = Ready<Result<u32, Infallible>>;
/// #     fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
/// #         Poll::Ready(Ok(()))
/// #     }
/// #     fn call(&mut self, n: u32) -> Self::Future {
/// #         ready(Ok(n))
/// #     }
/// # }
///
/// # futures_executor::block_on(async {
/// let limiter = Limiter::new(Limit::per_second(100.0), 2);
/// let service = RateLimitLayer::new(limiter.clone()).layer(Echo);
/// for n in 0..4 {
///     let mut service = service.clone(); // as a server does
///     poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
///     assert_eq!(service.call(n).await, Ok(n));
/// }
/// assert!(limiter.tokens() < 2.0);
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct RateLimitLayer {
    limiter: Limiter,
}

impl RateLimitLayer {
    /// Limits services by `limiter`, which may have other users.
    pub fn new(limiter: Limiter) -> Self {
        Self { limiter }
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit::new(inner, self.limiter.clone())
    }
}

/// A service whose calls wait for a token of a [`Limiter`]; created by [`RateLimitLayer`].
///
/// A clone shares the limiter, but not the readiness or the position in line. If the limiter
/// can never give a token at its current limit and burst, the service is not ready and asks
/// again every second.
///
/// # Panics
///
/// `call` panics if `poll_ready` has not returned ready, as the contract of [`Service`]
/// permits: the limiter has not let such a call through.
#[derive(Clone)]
pub struct RateLimit<S> {
    inner: S,
    permit: CallPermit,
}

impl<S> RateLimit<S> {
    /// Makes calls of `inner` wait for tokens of `limiter`.
    pub fn new(inner: S, limiter: Limiter) -> Self {
        Self { inner, permit: CallPermit { limiter, state: PermitState::Idle } }
    }

    /// Returns a reference to the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns a mutable reference to the inner service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the inner service. An unused token goes back to the limiter.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S: Service<R>, R> Service<R> for RateLimit<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        // Before the token (invariant 1): tokens held for a busy service would all be used at
        // once when it becomes ready.
        ready!(self.inner.poll_ready(cx))?;
        self.permit.poll(cx).map(Ok)
    }

    #[track_caller]
    fn call(&mut self, request: R) -> S::Future {
        assert!(self.permit.use_up(), "called before poll_ready returned ready");
        self.inner.call(request)
    }
}

impl<S: fmt::Debug> fmt::Debug for RateLimit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("inner", &self.inner)
            .field("limiter", &self.permit.limiter)
            .finish()
    }
}

/// What one service needs for its next call.
struct CallPermit {
    limiter: Limiter,
    state: PermitState,
}

enum PermitState {
    /// Has no token and is not in line.
    Idle,
    /// Is in line, and becomes `Ready` when its token may be used.
    Waiting(Mutex<WaitInLine<Arc<SharedBucket>>>),
    /// May call. `None` if the limit was infinite, so that no token was taken.
    Ready(Option<Claim>),
    /// Was refused, and becomes `Idle` when it is time to ask again.
    Refused(Mutex<Timer>),
}

/// How long to wait before asking again after a refusal.
const ASK_AGAIN: Duration = Duration::from_secs(1);

impl CallPermit {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            self.state = match &mut self.state {
                PermitState::Idle => self.take_or_line_up(),
                PermitState::Waiting(wait) => match ready!(poll_in(wait, cx)) {
                    Ok(Held { claim, .. }) => PermitState::Ready(claim),
                    Err(_) => self.ask_later(),
                },
                PermitState::Ready(_) => return Poll::Ready(()),
                PermitState::Refused(timer) => {
                    ready!(poll_in(timer, cx));
                    PermitState::Idle
                }
            };
        }
    }

    fn take_or_line_up(&self) -> PermitState {
        let bucket = self.limiter.shared();
        let at = bucket.now();
        match bucket.take_in_turn(Request::at_once(at, 1)) {
            Ok(grant) => PermitState::Ready(grant.claim),
            Err(_) => PermitState::Waiting(Mutex::new(WaitInLine::new(
                Arc::clone(bucket),
                Request::patient(at, 1),
            ))),
        }
    }

    fn ask_later(&self) -> PermitState {
        let bucket = self.limiter.shared();
        let at = bucket.now().given().plus(nanos(ASK_AGAIN));
        PermitState::Refused(Mutex::new(bucket.clock().timer(bucket.instant(at))))
    }

    /// Uses the token for a call. Returns `false` without one.
    fn use_up(&mut self) -> bool {
        let ready = matches!(self.state, PermitState::Ready(_));
        if ready {
            self.state = PermitState::Idle;
        }
        ready
    }
}

/// Invariant 3.
fn poll_in<F: Future + Unpin>(
    future: &mut Mutex<F>,
    cx: &mut Context<'_>,
) -> Poll<F::Output> {
    Pin::new(future.get_mut().unwrap_or_else(PoisonError::into_inner)).poll(cx)
}

/// Invariant 2. Dropping a wait leaves the line.
impl Drop for CallPermit {
    fn drop(&mut self) {
        if let PermitState::Ready(Some(claim)) =
            mem::replace(&mut self.state, PermitState::Idle)
        {
            self.limiter.shared().return_unused(claim);
        }
    }
}

impl Clone for CallPermit {
    fn clone(&self) -> Self {
        Self { limiter: self.limiter.clone(), state: PermitState::Idle }
    }
}

#[cfg(test)]
mod tests;
