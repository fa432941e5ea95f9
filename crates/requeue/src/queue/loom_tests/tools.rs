//! Parts of the models: an executor, and a clock that tests move by hand.
//!
//! loom switches threads only at its own operations. State that is shared through std
//! changes between two of them, so a model sees it change at once. The time is an atomic of
//! loom, so every order of reading and moving it is tried.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering::{AcqRel, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64 as Plain};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use loom::sync::atomic::AtomicU64;
use loom::thread::{self, Thread};

use crate::clock::{Clock, SystemClock, Timer};

/// Tries every order of events in `threads`, with at most three switches that no thread
/// asked for, unless `LOOM_MAX_PREEMPTIONS` says otherwise.
pub(super) fn model(threads: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.check(threads);
}

/// Wakes one thread, if it sleeps on this.
///
/// Its caller may be late, and the thread at a lock by then: loom would take an `unpark`
/// for the release of that lock.
struct Signal {
    thread: Thread,
    given: AtomicBool,
    asleep: AtomicBool,
}

impl Signal {
    fn new() -> Arc<Self> {
        let thread = thread::current();
        let (given, asleep) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { thread, given, asleep })
    }

    fn wait(&self) {
        if !self.given.swap(false, SeqCst) {
            self.asleep.store(true, SeqCst);
            thread::park();
            self.asleep.store(false, SeqCst);
            self.given.store(false, SeqCst);
        }
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.given.store(true, SeqCst);
        if self.asleep.swap(false, SeqCst) {
            self.thread.unpark();
        }
    }
}

/// Runs `future` on this thread.
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let signal = Signal::new();
    let waker = Waker::from(Arc::clone(&signal));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => signal.wait(),
        }
    }
}

/// Polls `future` once, with a waker that does nothing.
pub(super) fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// A clock that stands still until a model moves it.
#[derive(Clone)]
pub(super) struct HandClock(Arc<Hands>);

struct Hands {
    start: Instant,
    passed: AtomicU64,
    /// Sleepers by name: when they wake up, and how to wake them.
    sleepers: Mutex<BTreeMap<u64, (Instant, Waker)>>,
    named: Plain,
}

impl HandClock {
    pub(super) fn new() -> Self {
        Self(Arc::new(Hands {
            start: SystemClock.now(),
            passed: AtomicU64::new(0),
            sleepers: Mutex::new(BTreeMap::new()),
            named: Plain::new(0),
        }))
    }

    /// Advances the time and wakes only the sleepers that are due.
    pub(super) fn advance(&self, step: Duration) {
        let nanos = u64::try_from(step.as_nanos()).unwrap();
        let before = self.0.passed.fetch_add(nanos, AcqRel);
        let now = self.0.start + Duration::from_nanos(before + nanos);
        let due = self.sleepers(|sleepers| {
            let all = std::mem::take(sleepers).into_iter();
            let (due, later): (BTreeMap<_, _>, _) =
                all.partition(|(_, (deadline, _))| *deadline <= now);
            *sleepers = later;
            due
        });
        for (_, waker) in due.into_values() {
            waker.wake();
        }
    }

    fn sleepers<T>(
        &self,
        change: impl FnOnce(&mut BTreeMap<u64, (Instant, Waker)>) -> T,
    ) -> T {
        change(&mut self.0.sleepers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn enlist(&self, deadline: Instant, waker: Waker) -> Sleeper {
        let name = self.0.named.fetch_add(1, SeqCst);
        self.sleepers(|sleepers| sleepers.insert(name, (deadline, waker)));
        Sleeper { clock: self.clone(), name }
    }
}

impl Clock for HandClock {
    fn now(&self) -> Instant {
        // A plain load may be served an old time, which no real clock shows.
        self.0.start + Duration::from_nanos(self.0.passed.fetch_add(0, AcqRel))
    }

    fn timer(&self, deadline: Instant) -> Timer {
        Timer::new(HandTimer { clock: self.clone(), deadline, sleeper: None })
    }

    fn park_until(&self, deadline: Instant) {
        let sleeper =
            self.enlist(deadline, Waker::from(Arc::new(Unpark(thread::current()))));
        if self.now() < deadline {
            thread::park();
        }
        drop(sleeper);
    }
}

/// For a thread that is enlisted only while it is not at a lock; see [`Signal`].
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// One who waits for a clock, until it is dropped.
struct Sleeper {
    clock: HandClock,
    name: u64,
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        drop(self.clock.sleepers(|sleepers| sleepers.remove(&self.name)));
    }
}

struct HandTimer {
    clock: HandClock,
    deadline: Instant,
    sleeper: Option<Sleeper>,
}

impl Future for HandTimer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.sleeper = Some(self.clock.enlist(self.deadline, cx.waker().clone()));
        let due = self.clock.now() >= self.deadline;
        if due { Poll::Ready(()) } else { Poll::Pending }
    }
}
