//! The line and the shared bucket together, in every order of events.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use loom::thread;

use super::*;
use crate::clock::{SystemClock, Timer};
use crate::rate::WaitError;

/// A clock that stands still, and whose timers never fire.
struct Still(Instant);

impl Clock for Still {
    fn now(&self) -> Instant {
        self.0
    }

    fn timer(&self, _: Instant) -> Timer {
        Timer::new(pending())
    }
}

/// Whether a task was woken. Read only after all threads have ended.
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

type Wait = Pin<Box<dyn Future<Output = Result<(), WaitError>> + Send>>;

/// A wait of one task.
struct Task {
    wait: Wait,
    woken: Arc<Flag>,
}

impl Task {
    fn new(limiter: &Limiter) -> Self {
        let limiter = limiter.clone();
        let wait = Box::pin(async move { limiter.wait().await });
        Self { wait, woken: Arc::new(Flag(AtomicBool::new(false))) }
    }

    fn poll(&mut self) -> Poll<Result<(), WaitError>> {
        let waker = Waker::from(Arc::clone(&self.woken));
        self.wait.as_mut().poll(&mut Context::from_waker(&waker))
    }

    fn is_woken(&self) -> bool {
        self.woken.0.load(Ordering::SeqCst)
    }
}

/// An empty limiter of one token per second.
fn empty() -> Limiter {
    let clock = Still(SystemClock.now());
    Limiter::with_clock(Limit::per_second(1.0), 1, clock).with_tokens(0)
}

fn model(threads: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.check(threads);
}

#[test]
fn waiter_that_joins_while_the_limit_rises_sees_it_or_is_woken() {
    model(|| {
        let limiter = empty();
        let mut task = Task::new(&limiter);
        let joins = thread::spawn(move || (task.poll(), task));
        limiter.set_limit(Limit::INF);
        let (polled, mut task) = joins.join().unwrap();
        assert!(polled.is_ready() || task.is_woken());
        assert!(polled.is_ready() || task.poll().is_ready());
    });
}

#[test]
fn waiter_that_joins_while_another_leaves_moves_up() {
    model(|| {
        let limiter = empty();
        let (mut first, mut second) = (Task::new(&limiter), Task::new(&limiter));
        assert!(first.poll().is_pending());
        let joins = thread::spawn(move || (second.poll(), second));
        drop(first);
        let (polled, mut second) = joins.join().unwrap();
        assert!(polled.is_pending());
        // One token is reserved for the waiter, and its timer is right.
        assert_eq!(limiter.peek(), Ok(Duration::from_secs(2)));
        let (ready, asleep) = limiter.shared.first_sleep().unwrap();
        assert!(second.is_woken() || asleep <= ready);
        assert!(second.poll().is_pending());
    });
}

#[test]
fn allow_next_to_a_waiter_mints_nothing() {
    model(|| {
        let clock = Still(SystemClock.now());
        let limiter = Limiter::with_clock(Limit::per_second(1.0), 1, clock);
        let mut task = Task::new(&limiter);
        let joins = thread::spawn(move || task.poll().is_ready());
        let allowed = limiter.allow();
        assert!(joins.join().unwrap() != allowed, "one of them has the token");
    });
}
