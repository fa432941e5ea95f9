use std::future::{Ready, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Waker;
use std::thread;

use super::*;
use crate::rate::Limit;
use crate::testing::FakeClock;

const MS: Duration = Duration::from_millis(1);

/// Counts its calls, and is ready, busy or broken.
#[derive(Clone, Default)]
struct Inner {
    calls: Arc<AtomicU32>,
    busy: Arc<AtomicBool>,
    broken: Arc<AtomicBool>,
}

impl Service<()> for Inner {
    type Response = u32;
    type Error = &'static str;
    type Future = Ready<Result<u32, &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        if self.broken.load(Ordering::Relaxed) {
            Poll::Ready(Err("broken"))
        } else if self.busy.load(Ordering::Relaxed) {
            Poll::Pending
        } else {
            Poll::Ready(Ok(()))
        }
    }

    fn call(&mut self, (): ()) -> Self::Future {
        std::future::ready(Ok(self.calls.fetch_add(1, Ordering::Relaxed)))
    }
}

fn limited(per_second: f64, burst: u32) -> (RateLimit<Inner>, Limiter, FakeClock) {
    let clock = FakeClock::new();
    let limiter =
        Limiter::with_clock(Limit::per_second(per_second), burst, clock.clone());
    let layer = RateLimitLayer::new(limiter.clone());
    (layer.layer(Inner::default()), limiter, clock)
}

fn poll(service: &mut RateLimit<Inner>) -> Poll<Result<(), &'static str>> {
    service.poll_ready(&mut Context::from_waker(Waker::noop()))
}

const READY: Poll<Result<(), &'static str>> = Poll::Ready(Ok(()));

#[test]
fn clones_share_the_limiter() {
    // axum#3682: a limit of 5 let 1,500 requests through, with one state per clone.
    let (service, _limiter, clock) = limited(5.0, 5);
    let mut clones: Vec<_> = (0..1500).map(|_| service.clone()).collect();
    let mut let_through = || {
        clones.retain_mut(|service| {
            let ready = poll(service) == READY;
            if ready {
                drop(service.call(()));
            }
            !ready
        });
        service.get_ref().calls.load(Ordering::Relaxed)
    };
    assert_eq!(let_through(), 5);
    for second in 1..10 {
        clock.advance(Duration::from_secs(1));
        assert_eq!(let_through(), 5 + 5 * second);
    }
}

#[test]
fn services_can_be_shared_between_threads() {
    fn shareable<T: Send + Sync + Unpin>(_: &T) {}
    let (mut service, limiter, _clock) = limited(10.0, 1);
    assert!(limiter.allow());
    assert!(poll(&mut service).is_pending());
    shareable(&service);
}

#[test]
fn each_call_takes_a_token() {
    let (mut service, _limiter, clock) = limited(10.0, 1);
    assert_eq!(poll(&mut service), READY);
    assert_eq!(poll(&mut service), READY, "stays ready, and takes no second token");
    drop(service.call(()));
    assert!(poll(&mut service).is_pending());
    clock.advance(MS * 99);
    assert!(poll(&mut service).is_pending());
    clock.advance(MS);
    assert_eq!(poll(&mut service), READY);
}

#[test]
#[should_panic(expected = "called before poll_ready returned ready")]
fn call_of_a_service_that_is_not_ready_panics() {
    let (mut service, ..) = limited(10.0, 1);
    drop(service.call(()));
}

#[test]
#[should_panic(expected = "called before poll_ready returned ready")]
fn clone_of_a_ready_service_is_not_ready() {
    let (mut service, ..) = limited(10.0, 1);
    assert_eq!(poll(&mut service), READY);
    drop(service.clone().call(()));
}

#[test]
fn unused_readiness_returns_its_token_even_late() {
    let (service, limiter, clock) = limited(10.0, 3);
    for wait in [0, 1, 50, 1000] {
        let mut unused = service.clone();
        assert_eq!(poll(&mut unused), READY);
        assert!(limiter.tokens() < 3.0);
        clock.advance(MS * wait);
        drop(unused);
        assert!((limiter.tokens() - 3.0).abs() < f64::EPSILON, "after {wait} ms");
    }
}

/// Two events happened at once although the burst was 1: an unused token came back in full
/// after the next one had been used.
#[test]
fn readiness_returned_late_mints_nothing() {
    let (service, limiter, clock) = limited(10.0, 1);
    let mut unused = service.clone();
    assert_eq!(poll(&mut unused), READY);
    clock.advance(MS * 100); // another token has come
    assert!(limiter.allow());
    drop(unused);
    assert!(!limiter.allow());

    let (service, limiter, clock) = limited(10.0, 2);
    let mut unused = service.clone();
    assert_eq!(poll(&mut unused), READY);
    clock.advance(MS * 50);
    assert!(limiter.allow());
    drop(unused);
    assert!(limiter.allow(), "the burst permits two at once");
    assert!(!limiter.allow());
}

#[test]
fn cancelled_wait_returns_its_token() {
    let (service, limiter, clock) = limited(10.0, 1);
    assert!(limiter.allow());
    let mut waiting = service.clone();
    assert!(poll(&mut waiting).is_pending());
    assert_eq!(limiter.peek(), Ok(MS * 200));
    drop(waiting);
    assert_eq!(limiter.peek(), Ok(MS * 100));

    let mut overdue = service.clone();
    assert!(poll(&mut overdue).is_pending());
    clock.advance(MS * 150);
    drop(overdue);
    assert!(limiter.allow());
}

#[test]
fn busy_service_takes_no_token() {
    let (mut service, limiter, _clock) = limited(10.0, 1);
    let busy = Arc::clone(&service.get_ref().busy);
    busy.store(true, Ordering::Relaxed);
    assert!(poll(&mut service).is_pending());
    assert!((limiter.tokens() - 1.0).abs() < f64::EPSILON);
    busy.store(false, Ordering::Relaxed);
    assert_eq!(poll(&mut service), READY);
}

#[test]
fn errors_of_the_service_take_no_token() {
    let (mut service, limiter, _clock) = limited(10.0, 1);
    service.get_mut().broken.store(true, Ordering::Relaxed);
    assert_eq!(poll(&mut service), Poll::Ready(Err("broken")));
    assert!((limiter.tokens() - 1.0).abs() < f64::EPSILON);
}

#[test]
fn refused_service_asks_again_later() {
    for (rate, burst) in [(0.0, 0), (10.0, 0)] {
        let (mut service, limiter, clock) = limited(rate, burst);
        assert!(poll(&mut service).is_pending());
        limiter.set_limit(Limit::INF);
        assert!(poll(&mut service).is_pending());
        clock.advance(ASK_AGAIN);
        assert_eq!(poll(&mut service), READY);
        drop(service.call(()));
        assert_eq!(poll(&mut service), READY, "the limit is infinite");
    }
}

#[test]
fn waiting_service_is_woken_when_its_token_comes() {
    let (mut service, _limiter, clock) = limited(10.0, 1);
    thread::scope(|scope| {
        let caller = scope.spawn(|| {
            futures_executor::block_on(async {
                for _ in 0..2 {
                    poll_fn(|cx| service.poll_ready(cx)).await?;
                    service.call(()).await?;
                }
                Ok::<(), &'static str>(())
            })
        });
        clock.wait_for_timers_blocking(1);
        clock.advance(MS * 100);
        assert_eq!(caller.join().unwrap(), Ok(()));
    });
    assert_eq!(service.into_inner().calls.load(Ordering::Relaxed), 2);
}

#[test]
fn threads_with_unused_readiness_never_exceed_the_limit() {
    let (service, _limiter, clock) = limited(1e6, 20);
    thread::scope(|scope| {
        for thread in 0..4_u32 {
            let (service, clock) = (service.clone(), clock.clone());
            scope.spawn(move || {
                for round in 0..3000 {
                    let mut service = service.clone();
                    if poll(&mut service) == READY && (round + thread) % 3 != 0 {
                        drop(service.call(()));
                    }
                    clock.advance(Duration::from_nanos(25));
                }
            });
        }
    });
    // 12,000 steps of 25 ns are 300 µs.
    let calls = service.get_ref().calls.load(Ordering::Relaxed);
    // How many are wasted depends on the schedule, so only the upper bound is checked.
    assert!((1..=320).contains(&calls), "{calls}");
}

#[test]
fn unused_readiness_wastes_few_tokens() {
    let (service, _limiter, clock) = limited(1e6, 20);
    for round in 0..12_000 {
        let mut service = service.clone();
        if poll(&mut service) == READY && round % 3 != 0 {
            drop(service.call(()));
        }
        clock.advance(Duration::from_nanos(25));
    }
    let calls = service.get_ref().calls.load(Ordering::Relaxed);
    assert!((200..=320).contains(&calls), "{calls}");
}
