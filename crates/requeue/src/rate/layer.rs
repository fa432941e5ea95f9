//! A limiter around services of `tower` (feature `tower`).
//!
//! # Invariants
//!
//! 1. A token is taken only for a service that is ready otherwise, and the service is
//!    ready only with a token that may be used.
//! 2. Each call uses one token. A token that no call used goes back to the limiter.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tower_layer::Layer;
use tower_service::Service;

use super::bucket::{Ask, Claim, Grant, Patience};
use super::limiter::Limiter;
use super::moment::{FOREVER, Moment, nanos};
use crate::clock::Timer;

/// Puts a [`Limiter`] in front of services: each call waits for a token.
///
/// All services of one layer, and all their clones, share the limiter. So it also limits
/// servers that clone the service for each connection or request, and the limit can be
/// changed while they run, through a clone of the limiter.
///
/// A service is ready once it may be called: back pressure, load shedding and timeouts
/// around it work as they should. Readiness that is not used is given back, be it by a
/// service that is dropped, or one that gave up waiting.
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
/// A clone shares the limiter and has a readiness of its own. With a limiter that has no
/// token to give, now or later, the service is not ready; it looks again every second,
/// since limits can change.
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

/// The way of one service to its next call.
struct Turn {
    limiter: Limiter,
    stage: Stage,
}

enum Stage {
    /// Has nothing and wants nothing.
    Idle,
    /// Has a token of the future, and becomes `Ready` when that may be used.
    Waiting { claim: Claim, until: Moment, timer: Timer },
    /// May call. `taken` if that took a token, and not if there was no limit.
    Ready { taken: bool },
    /// Was refused for good, and becomes `Idle` when it is time to ask again.
    Refused { timer: Timer },
}

/// How long to wait before asking a limiter again that has refused for good.
const ASK_AGAIN: Duration = Duration::from_secs(1);

impl Turn {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match &mut self.stage {
                Stage::Idle => self.stage = self.ask(),
                Stage::Waiting { until, timer, .. } => {
                    let until = *until;
                    if self.limiter.now().given() >= until {
                        self.stage = Stage::Ready { taken: true };
                    } else {
                        ready!(Pin::new(&mut *timer).poll(cx));
                        // Should it have been early, the next round waits for the rest.
                        *timer = self.limiter.clock().timer(self.limiter.instant(until));
                    }
                }
                Stage::Ready { .. } => return Poll::Ready(()),
                Stage::Refused { timer } => {
                    ready!(Pin::new(timer).poll(cx));
                    self.stage = Stage::Idle;
                }
            }
        }
    }

    /// Takes a token, now or from the future.
    fn ask(&self) -> Stage {
        let now = self.limiter.now();
        let patience = Patience::UpTo(FOREVER);
        let timer = |until| self.limiter.clock().timer(self.limiter.instant(until));
        match self.limiter.take(Ask { at: now, n: 1, patience }) {
            Ok(Grant { ready, claim: Some(claim) }) if ready > now.given() => {
                Stage::Waiting { claim, until: ready, timer: timer(ready) }
            }
            Ok(grant) => Stage::Ready { taken: grant.claim.is_some() },
            Err(_) => Stage::Refused { timer: timer(now.given().plus(nanos(ASK_AGAIN))) },
        }
    }

    /// Whether this turn had come; then it is over.
    fn use_up(&mut self) -> bool {
        let ready = matches!(self.stage, Stage::Ready { .. });
        if ready {
            self.stage = Stage::Idle;
        }
        ready
    }
}

/// Invariant 2.
impl Drop for Turn {
    fn drop(&mut self) {
        match mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Waiting { claim, until, .. } => {
                let now = self.limiter.now();
                if now.given() <= until {
                    self.limiter.give_back(claim, now);
                } else {
                    self.limiter.put_back(1);
                }
            }
            Stage::Ready { taken: true } => self.limiter.put_back(1),
            Stage::Ready { taken: false } | Stage::Idle | Stage::Refused { .. } => {}
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
