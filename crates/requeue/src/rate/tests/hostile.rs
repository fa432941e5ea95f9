//! Wakers that call back or panic.

use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::rate::{Limit, Limiter, WaitError};
use crate::testing::FakeClock;

const MS: Duration = Duration::from_millis(1);

fn empty() -> (FakeClock, Limiter) {
    let clock = FakeClock::new();
    let limiter = Limiter::with_clock(Limit::per_second(10.0), 1, clock.clone());
    (clock, limiter.with_tokens(0))
}

fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>, waker: &Waker) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(waker))
}

type Wait = Pin<Box<dyn Future<Output = Result<(), WaitError>> + Send>>;

fn wait(limiter: &Limiter) -> Wait {
    let limiter = limiter.clone();
    Box::pin(async move { limiter.wait().await })
}

/// Calls the limiter whenever it is woken or dropped, and polls another wait.
struct Reentrant {
    limiter: Limiter,
    other: Mutex<Option<Wait>>,
    calls: AtomicU32,
}

impl Reentrant {
    fn call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.limiter.allow();
        let other = self.other.try_lock().ok().and_then(|mut other| other.take());
        if let Some(mut other) = other {
            assert!(!matches!(poll(&mut other, Waker::noop()), Poll::Ready(Err(_))));
            self.limiter.set_limit(self.limiter.limit());
            drop(other);
        }
    }
}

impl Wake for Reentrant {
    fn wake(self: Arc<Self>) {
        self.call();
    }
}

impl Drop for Reentrant {
    fn drop(&mut self) {
        self.call();
    }
}

#[test]
fn wakers_may_call_the_limiter_when_woken_or_dropped() {
    let (clock, limiter) = empty();
    let reentrant = Arc::new(Reentrant {
        limiter: limiter.clone(),
        other: Mutex::new(Some(wait(&limiter))),
        calls: AtomicU32::new(0),
    });
    let waker = Waker::from(reentrant);
    let mut waits: Vec<_> = (0..3).map(|_| wait(&limiter)).collect();
    for wait in &mut waits {
        assert!(poll(wait, &waker).is_pending());
    }
    drop(waits.remove(0));
    drop(waker);
    for wait in &mut waits {
        assert!(poll(wait, Waker::noop()).is_pending());
    }
    clock.advance(MS * 1000);
    assert!(waits.iter_mut().all(|wait| poll(wait, Waker::noop()).is_ready()));
}

/// Panics when it is woken.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("hostile");
    }
}

struct Counts(AtomicU32);

impl Wake for Counts {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn panicking_waker_loses_no_wake_up_of_others() {
    let (clock, limiter) = empty();
    let counts = Arc::new(Counts(AtomicU32::new(0)));
    let (panics, counting) =
        (Waker::from(Arc::new(Panics)), Waker::from(Arc::clone(&counts)));
    let mut waits: Vec<_> = (0..4).map(|_| wait(&limiter)).collect();
    for (wait, waker) in waits.iter_mut().zip([&counting, &panics, &counting, &panics]) {
        assert!(poll(wait, waker).is_pending());
    }
    limiter.set_limit(Limit::per_second(10.0));
    limiter.set_limit(Limit::INF);
    assert_eq!(counts.0.load(Ordering::Relaxed), 2);
    assert!(waits.iter_mut().all(|wait| poll(wait, Waker::noop()).is_ready()));
    assert!(limiter.allow());
    drop(clock);
}

#[test]
fn waiter_dropped_after_its_wake_up_passes_it_on() {
    let (clock, limiter) = empty();
    let counts: Vec<_> = (0..3).map(|_| Arc::new(Counts(AtomicU32::new(0)))).collect();
    let woken = |place: usize| counts[place].0.load(Ordering::Relaxed);
    let mut waits: Vec<_> = (0..3).map(|_| Some(wait(&limiter))).collect();
    for (wait, counter) in waits.iter_mut().zip(&counts) {
        let waker = Waker::from(Arc::clone(counter));
        assert!(poll(wait.as_mut().unwrap(), &waker).is_pending());
    }
    waits[0] = None;
    assert_eq!((woken(1), woken(2)), (1, 0));
    waits[1] = None; // was woken and has not polled
    assert_eq!(woken(2), 1);
    let mut last = waits[2].take().unwrap();
    assert!(poll(&mut last, Waker::noop()).is_pending());
    clock.advance(MS * 100);
    assert!(poll(&mut last, Waker::noop()).is_ready());
}
