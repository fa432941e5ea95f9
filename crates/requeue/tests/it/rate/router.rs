//! The layers of the feature `tower` in a real axum router, without a network.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::Response;
use axum::routing::get;
use requeue::rate::{Keyed, KeyedRateLimitLayer, Limit, Limiter, RateLimitLayer};
use requeue::testing::FakeClock;
use tower::ServiceExt;

const SECOND: Duration = Duration::from_secs(1);

fn routes() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

fn request(user: &str) -> Request {
    let request = Request::get("/").header("user", user).body(Body::empty());
    request.expect("a valid request")
}

fn user(request: &Request) -> String {
    request.headers()["user"].to_str().expect("ASCII").to_owned()
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Sends a request that is answered at once.
#[track_caller]
fn answer(app: &Router, user: &str) -> Response {
    let mut response = pin!(app.clone().oneshot(request(user)));
    match poll(response.as_mut()) {
        Poll::Ready(Ok(response)) => response,
        Poll::Pending => panic!("the request waits"),
    }
}

fn keyed(limit: Limit, burst: u32) -> (Router, FakeClock) {
    let clock = FakeClock::new();
    let limiter = Keyed::with_clock(limit, burst, clock.clone());
    (routes().layer(KeyedRateLimitLayer::new(limiter, user)), clock)
}

#[test]
fn request_waits_for_a_token() {
    let clock = FakeClock::new();
    let limiter = Limiter::with_clock(Limit::per_second(1.0), 1, clock.clone());
    let app = routes().layer(RateLimitLayer::new(limiter));
    assert_eq!(answer(&app, "ann").status(), StatusCode::OK);

    let mut second = pin!(app.clone().oneshot(request("ann")));
    assert!(poll(second.as_mut()).is_pending());
    clock.advance(SECOND);
    let Poll::Ready(Ok(response)) = poll(second.as_mut()) else {
        panic!("a token came");
    };
    assert_eq!(response.status(), StatusCode::OK);
}

#[test]
fn cancelled_request_leaves_its_token_to_the_next() {
    let clock = FakeClock::new();
    let limiter = Limiter::with_clock(Limit::per_second(1.0), 1, clock.clone());
    let app = routes().layer(RateLimitLayer::new(limiter));
    assert_eq!(answer(&app, "ann").status(), StatusCode::OK);
    {
        let mut cancelled = pin!(app.clone().oneshot(request("ann")));
        assert!(poll(cancelled.as_mut()).is_pending());
    }
    clock.advance(SECOND);
    assert_eq!(answer(&app, "bob").status(), StatusCode::OK);
}

#[test]
fn request_above_the_limit_of_its_key_is_refused() {
    let (app, clock) = keyed(Limit::every(90 * SECOND), 1);
    assert_eq!(answer(&app, "ann").status(), StatusCode::OK);
    clock.advance(Duration::from_millis(100));
    let refused = answer(&app, "ann");
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.headers()[RETRY_AFTER], "90", "89.9 s, rounded up");
    assert_eq!(answer(&app, "bob").status(), StatusCode::OK);
    clock.advance(90 * SECOND);
    assert_eq!(answer(&app, "ann").status(), StatusCode::OK);
}

#[test]
fn refusal_for_good_has_no_time_to_retry() {
    let (app, _clock) = keyed(Limit::ZERO, 0);
    let refused = answer(&app, "ann");
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.headers().get(RETRY_AFTER), None);
}

#[test]
fn one_key_limits_all_requests_together() {
    let limiter = Keyed::with_clock(Limit::per_second(1.0), 1, FakeClock::new());
    let app = routes().layer(KeyedRateLimitLayer::new(limiter, |_: &Request| ()));
    assert_eq!(answer(&app, "ann").status(), StatusCode::OK);
    assert_eq!(answer(&app, "bob").status(), StatusCode::TOO_MANY_REQUESTS);
}

#[test]
fn both_layers_work_on_one_router() {
    let clock = FakeClock::new();
    let all = Limiter::with_clock(Limit::per_second(1.0), 2, clock.clone());
    let each = Keyed::with_clock(Limit::per_second(1.0), 1, clock);
    let app = routes()
        .layer(RateLimitLayer::new(all.clone()))
        .layer(KeyedRateLimitLayer::new(each, user));
    assert_eq!(answer(&app, "ann").status(), StatusCode::OK);
    assert_eq!(answer(&app, "ann").status(), StatusCode::TOO_MANY_REQUESTS);
    assert!((all.tokens() - 1.0).abs() < f64::EPSILON, "a refusal takes no token");
}
