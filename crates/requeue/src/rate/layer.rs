//! A limiter around services of `tower` (feature `tower`).
//!
//! # Invariants
//!
//! 1. A service lines up only when the inner service is ready, and is ready only with a
//!    token that may be used.
//! 2. Each call uses one token. A token that no call used goes back to the limiter.
//! 3. Futures are kept in a mutex that is never locked: it makes the service `Sync`,
//!    although a timer is not.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tower_layer::Layer;
use tower_service::Service;

use super::bucket::{Ask, Claim, Patience};
use super::limiter::{Limiter, held};
use super::line::Held;
use super::moment::{FOREVER, nanos};
use super::waiting::Waiting;
use crate::clock::Timer;

/// Puts a [`Limiter`] in front of services: each call waits for a token.
///
/// All services of one layer, and all their clones, share the limiter. So it also limits
/// servers that clone the service for each connection or request, and the limit can be
/// changed while they run, through a clone of the limiter.
///
/// A service becomes ready when its call may start, so back-pressure, load shedding and
/// timeouts work as usual. Services that wait line up as callers of [`Limiter::wait`] do:
/// a service that is dropped leaves the line, and costs the ones behind it nothing. A ready
/// service that is dropped without a call gives its token back, as far as the burst permits.
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
    /// Limits services by `limiter`, which others may use as well.
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

/// A service whose calls wait for a token of a [`Limiter`]; made by [`RateLimitLayer`].
///
/// A clone shares the limiter, but not the readiness or the place in line. If the limiter
/// can never give a token at its present limit and burst, the service is not ready and asks
/// again every second.
///
/// # Panics
///
/// `call` panics unless `poll_ready` has said that the service is ready, as the contract
/// of [`Service`] allows: such a call would be one that the limiter has not let through.
#[derive(Clone)]
pub struct RateLimit<S> {
    inner: S,
    turn: Turn,
}

impl<S> RateLimit<S> {
    /// Makes calls of `inner` wait for tokens of `limiter`.
    pub fn new(inner: S, limiter: Limiter) -> Self {
        Self { inner, turn: Turn { limiter, stage: Stage::Idle } }
    }

    /// The service inside.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The service inside, to change.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Takes the service out, and gives back a token that was not used.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S: Service<R>, R> Service<R> for RateLimit<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        // Before the token (invariant 1): tokens kept for a service that is busy would be
        // used all at once when it no longer is.
        ready!(self.inner.poll_ready(cx))?;
        self.turn.poll(cx).map(Ok)
    }

    #[track_caller]
    fn call(&mut self, request: R) -> S::Future {
        assert!(self.turn.use_up(), "called before poll_ready said that it is ready");
        self.inner.call(request)
    }
}

impl<S: fmt::Debug> fmt::Debug for RateLimit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("inner", &self.inner)
            .field("limiter", &self.turn.limiter)
            .finish()
    }
}

/// The progress of one service to its next call.
struct Turn {
    limiter: Limiter,
    stage: Stage,
}

enum Stage {
    /// Has no token and no place in line.
    Idle,
    /// Has a place in line, and becomes `Ready` when its token may be used.
    Waiting(Mutex<Waiting<Limiter>>),
    /// May call. `None` if an infinite limit took no token.
    Ready(Option<Claim>),
    /// Was refused, and becomes `Idle` when it is time to ask again.
    Refused(Mutex<Timer>),
}

/// How long to wait before asking a limiter again that has refused.
const ASK_AGAIN: Duration = Duration::from_secs(1);

impl Turn {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            self.stage = match &mut self.stage {
                Stage::Idle => self.ask(),
                Stage::Waiting(waiting) => match ready!(poll_in(waiting, cx)) {
                    Ok(Held { claim, .. }) => Stage::Ready(claim),
                    Err(_) => self.ask_later(),
                },
                Stage::Ready(_) => return Poll::Ready(()),
                Stage::Refused(timer) => {
                    ready!(poll_in(timer, cx));
                    Stage::Idle
                }
            };
        }
    }

    /// Takes a token that is available, or lines up.
    fn ask(&self) -> Stage {
        let ask = Ask { at: self.limiter.now(), n: 1, patience: Patience::UpTo(FOREVER) };
        match self.limiter.take_in_turn(Ask { patience: Patience::None, ..ask }) {
            Ok(grant) => Stage::Ready(held(grant).claim),
            Err(_) => Stage::Waiting(Mutex::new(Waiting::new(self.limiter.clone(), ask))),
        }
    }

    fn ask_later(&self) -> Stage {
        let at = self.limiter.now().given().plus(nanos(ASK_AGAIN));
        let timer = self.limiter.clock().timer(self.limiter.instant(at));
        Stage::Refused(Mutex::new(timer))
    }

    /// Uses the token for a call. Returns `false` without one.
    fn use_up(&mut self) -> bool {
        let ready = matches!(self.stage, Stage::Ready(_));
        if ready {
            self.stage = Stage::Idle;
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

/// Invariant 2. A place in line is left by dropping it.
impl Drop for Turn {
    fn drop(&mut self) {
        if let Stage::Ready(Some(claim)) = mem::replace(&mut self.stage, Stage::Idle) {
            self.limiter.return_unused(claim);
        }
    }
}

impl Clone for Turn {
    fn clone(&self) -> Self {
        Self { limiter: self.limiter.clone(), stage: Stage::Idle }
    }
}

#[cfg(test)]
mod tests;
