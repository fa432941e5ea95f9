//! A clock whose time passes only while a thread waits for it.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use shuttle::sync::{Condvar, Mutex, MutexGuard};
use shuttle::thread::{self, JoinHandle, Thread};

use crate::clock::{Clock, SystemClock, Timer};

/// Clones share the time.
#[derive(Clone)]
pub(super) struct LeapClock(Arc<Shared>);

struct Shared {
    hands: Mutex<Hands>,
    /// Notified of every new timer, and of the end.
    changed: Condvar,
}

struct Hands {
    now: Instant,
    timers: Vec<(u64, Instant, Waker)>,
    named: u64,
    stopped: bool,
}

impl Hands {
    /// Takes out the wakers of timers that are due.
    fn due(&mut self) -> Vec<Waker> {
        let now = self.now;
        let (due, later) =
            self.timers.drain(..).partition(|(_, deadline, _)| *deadline <= now);
        self.timers = later;
        due.into_iter().map(|(_, _, waker): (_, _, Waker)| waker).collect()
    }
}

impl LeapClock {
    pub(super) fn new() -> Self {
        let hands = Hands {
            now: SystemClock.now(),
            timers: Vec::new(),
            named: 0,
            stopped: false,
        };
        Self(Arc::new(Shared { hands: Mutex::new(hands), changed: Condvar::new() }))
    }

    /// Starts a thread that leaps to the next deadline whenever there is one.
    pub(super) fn start(&self) -> JoinHandle<()> {
        let clock = self.clone();
        thread::spawn(move || while clock.leap() {})
    }

    pub(super) fn stop(&self) {
        self.hands().stopped = true;
        self.0.changed.notify_all();
    }

    /// Moves time on.
    pub(super) fn advance(&self, step: Duration) {
        let mut hands = self.hands();
        hands.now += step;
        let due = hands.due();
        drop(hands);
        due.into_iter().for_each(Waker::wake);
    }

    /// Waits for a timer and moves time to it; `false` once stopped.
    fn leap(&self) -> bool {
        let mut hands = self.hands();
        while hands.timers.is_empty() && !hands.stopped {
            hands = self.0.changed.wait(hands).unwrap_or_else(PoisonError::into_inner);
        }
        let next = hands.timers.iter().map(|(_, deadline, _)| *deadline).min();
        hands.now = hands.now.max(next.unwrap_or(hands.now));
        let (due, going) = (hands.due(), !hands.stopped);
        drop(hands);
        due.into_iter().for_each(Waker::wake);
        going
    }

    fn hands(&self) -> MutexGuard<'_, Hands> {
        self.0.hands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets a timer, unless its moment has come.
    fn arm(&self, deadline: Instant, waker: Waker) -> Option<Armed> {
        let mut hands = self.hands();
        if deadline <= hands.now {
            return None;
        }
        hands.named += 1;
        let name = hands.named;
        hands.timers.push((name, deadline, waker));
        drop(hands);
        self.0.changed.notify_all();
        Some(Armed { clock: self.clone(), name })
    }
}

/// A timer that runs until it is dropped.
struct Armed {
    clock: LeapClock,
    name: u64,
}

impl Drop for Armed {
    fn drop(&mut self) {
        self.clock.hands().timers.retain(|(name, ..)| *name != self.name);
    }
}

impl Clock for LeapClock {
    fn now(&self) -> Instant {
        self.hands().now
    }

    fn timer(&self, deadline: Instant) -> Timer {
        Timer::new(LeapTimer { clock: self.clone(), deadline, armed: None })
    }

    fn park_until(&self, deadline: Instant) {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let armed = self.arm(deadline, waker);
        if armed.is_some() {
            thread::park();
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

struct LeapTimer {
    clock: LeapClock,
    deadline: Instant,
    armed: Option<Armed>,
}

impl Future for LeapTimer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.armed = self.clock.arm(self.deadline, cx.waker().clone());
        if self.armed.is_some() { Poll::Pending } else { Poll::Ready(()) }
    }
}
