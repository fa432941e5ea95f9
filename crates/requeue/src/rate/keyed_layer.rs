//! A tower layer that refuses HTTP requests above the limit of their key (feature `tower`).

use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{HeaderValue, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::keyed::Keyed;

/// A tower layer that answers `429 Too Many Requests` above the limit of a key.
///
/// A function extracts the key from the request: a user, an API token, an address. If the key
/// has no token left, the inner service is not called. The response has an empty body, and the
/// header `Retry-After` with the seconds until the next token, rounded up. The header is
/// missing if a token never comes.
///
/// It works for every service of [`http::Request`] whose response body implements [`Default`],
/// such as those of axum, tonic and hyper. All services of one layer, and all their clones,
/// share the limiter. Limits can change while they run, through a clone of the limiter.
///
/// To limit all requests together, return `()` as the key. To wait instead of refusing, use
/// [`RateLimitLayer`](super::RateLimitLayer).
///
/// # Examples
///
/// ```
/// use axum::Router;
/// use axum::extract::Request;
/// use axum::http::StatusCode;
/// use axum::routing::get;
/// use requeue::rate::{Keyed, KeyedRateLimitLayer, Limit};
/// # use axum::body::Body;
/// # use tower::ServiceExt;
///
/// // One request per minute for each API token; requests without one share a key.
/// let limiter = Keyed::<Option<String>>::new(Limit::per_second(1.0 / 60.0), 1);
/// let api_token = |request: &Request| {
///     let token = request.headers().get("x-api-token")?;
///     token.to_str().ok().map(str::to_owned)
/// };
/// let app: Router = Router::new()
///     .route("/", get(|| async { "hello" }))
///     .layer(KeyedRateLimitLayer::new(limiter, api_token));
///
/// # futures_executor::block_on(async {
/// let request = |token| {
///     Request::get("/").header("x-api-token", token).body(Body::empty()).unwrap()
/// };
/// let first = app.clone().oneshot(request("ann")).await.unwrap();
/// assert_eq!(first.status(), StatusCode::OK);
/// let second = app.clone().oneshot(request("ann")).await.unwrap();
/// assert_eq!(second.status(), StatusCode::TOO_MANY_REQUESTS);
/// assert_eq!(second.headers()["retry-after"], "60");
/// let other = app.clone().oneshot(request("bob")).await.unwrap();
/// assert_eq!(other.status(), StatusCode::OK);
/// # });
/// ```
pub struct KeyedRateLimitLayer<K, F> {
    limiter: Keyed<K>,
    key: F,
}

impl<K, F> KeyedRateLimitLayer<K, F> {
    /// Limits requests by `limiter` and the key that `key` returns for each of them.
    pub fn new<B>(limiter: Keyed<K>, key: F) -> Self
    where
        F: Fn(&Request<B>) -> K,
    {
        Self { limiter, key }
    }
}

impl<S, K, F: Clone> Layer<S> for KeyedRateLimitLayer<K, F> {
    type Service = KeyedRateLimit<S, K, F>;

    fn layer(&self, inner: S) -> Self::Service {
        KeyedRateLimit { inner, limiter: self.limiter.clone(), key: self.key.clone() }
    }
}

impl<K, F: Clone> Clone for KeyedRateLimitLayer<K, F> {
    fn clone(&self) -> Self {
        Self { limiter: self.limiter.clone(), key: self.key.clone() }
    }
}

impl<K, F> fmt::Debug for KeyedRateLimitLayer<K, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedRateLimitLayer")
            .field("limiter", &self.limiter)
            .finish_non_exhaustive()
    }
}

/// A service that refuses requests above the limit of their key; created by
/// [`KeyedRateLimitLayer`].
pub struct KeyedRateLimit<S, K, F> {
    inner: S,
    limiter: Keyed<K>,
    key: F,
}

impl<S, K, F> KeyedRateLimit<S, K, F> {
    /// Returns a reference to the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns a mutable reference to the inner service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, K, F, B, R> Service<Request<B>> for KeyedRateLimit<S, K, F>
where
    S: Service<Request<B>, Response = Response<R>>,
    K: Clone + Eq + Hash,
    F: Fn(&Request<B>) -> K,
    R: Default,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = KeyedRateLimitFuture<S::Future, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let key = (self.key)(&request);
        let outcome = if self.limiter.allow(&key) {
            CallOutcome::Allowed { response: self.inner.call(request) }
        } else {
            let retry_after = self.limiter.peek(&key).ok();
            CallOutcome::Refused { retry_after }
        };
        KeyedRateLimitFuture { outcome, body: PhantomData }
    }
}

impl<S: Clone, K, F: Clone> Clone for KeyedRateLimit<S, K, F> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            limiter: self.limiter.clone(),
            key: self.key.clone(),
        }
    }
}

impl<S: fmt::Debug, K, F> fmt::Debug for KeyedRateLimit<S, K, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedRateLimit")
            .field("inner", &self.inner)
            .field("limiter", &self.limiter)
            .finish_non_exhaustive()
    }
}

pin_project! {
    /// The response future of [`KeyedRateLimit`].
    #[must_use = "futures do nothing unless polled"]
    pub struct KeyedRateLimitFuture<F, R> {
        #[pin]
        outcome: CallOutcome<F>,
        body: PhantomData<fn() -> R>,
    }
}

pin_project! {
    #[project = CallOutcomeProjection]
    enum CallOutcome<F> {
        Allowed { #[pin] response: F },
        Refused { retry_after: Option<Duration> },
    }
}

impl<F, R, E> Future for KeyedRateLimitFuture<F, R>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: Default,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        match self.project().outcome.project() {
            CallOutcomeProjection::Allowed { response } => response.poll(cx),
            CallOutcomeProjection::Refused { retry_after } => {
                Poll::Ready(Ok(too_many_requests(*retry_after)))
            }
        }
    }
}

impl<F, R> fmt::Debug for KeyedRateLimitFuture<F, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedRateLimitFuture").finish_non_exhaustive()
    }
}

fn too_many_requests<R: Default>(retry_after: Option<Duration>) -> Response<R> {
    let mut response = Response::new(R::default());
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    if let Some(wait) = retry_after {
        let seconds = wait.as_nanos().div_ceil(1_000_000_000).max(1);
        let seconds = u64::try_from(seconds).unwrap_or(u64::MAX);
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
