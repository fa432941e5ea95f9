//! A clock for tests that moves only by hand (feature `testing`).

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::clock::{Clock, SystemClock, Timer};
use crate::contain::contain;

/// A clock that stands still until [`advance`](FakeClock::advance) moves it.
///
/// Clones share the time, so a test keeps one and passes the others on. `advance` wakes every
/// thread and task whose deadline has been reached before it returns. They run on their own:
/// a test waits for the effect, or checks state that is exact at any time, such as the length
/// of a queue.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use requeue::testing::FakeClock;
/// use requeue::Queue;
///
/// let clock = FakeClock::new();
/// let queue = Queue::builder().clock(clock.clone()).build();
/// queue.add_after("later", Duration::from_secs(3600));
/// assert_eq!(queue.len(), 0);
/// clock.advance(Duration::from_secs(3600));
/// assert_eq!(queue.len(), 1);
/// ```
#[derive(Clone)]
pub struct FakeClock(Arc<Shared>);

struct Shared {
    hands: Mutex<Hands>,
    /// Notified whenever a timer is armed, for [`FakeClock::wait_for_timers`].
    armed: Condvar,
}

struct Hands {
    now: Instant,
    /// Timers by deadline, then by the order of arming.
    timers: BTreeMap<(Instant, u64), Waker>,
    armed_so_far: u64,
}

type TimerId = (Instant, u64);

impl FakeClock {
    /// Creates a clock. It starts at an arbitrary moment.
    pub fn new() -> Self {
        let hands =
            Hands { now: SystemClock.now(), timers: BTreeMap::new(), armed_so_far: 0 };
        Self(Arc::new(Shared { hands: Mutex::new(hands), armed: Condvar::new() }))
    }

    /// Returns the time of the clock.
    pub fn now(&self) -> Instant {
        self.hands().now
    }

    /// Advances the clock by `step` and wakes every thread and task whose deadline it reaches.
    ///
    /// # Panics
    ///
    /// If the time exceeds the range of [`Instant`].
    #[doc(alias = "Step")]
    #[track_caller]
    pub fn advance(&self, step: Duration) {
        let due = self.hands().step(step);
        for waker in due {
            contain(|| waker.wake());
        }
    }

    /// Returns the number of threads and tasks that wait for this clock.
    #[doc(alias = "Waiters")]
    pub fn timers(&self) -> usize {
        self.hands().timers.len()
    }

    /// Blocks until at least `count` threads and tasks wait for this clock.
    ///
    /// Use it before `advance`, if a worker in another thread must be asleep by then.
    pub fn wait_for_timers(&self, count: usize) {
        let mut hands = self.hands();
        while hands.timers.len() < count {
            hands = self.0.armed.wait(hands).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn hands(&self) -> MutexGuard<'_, Hands> {
        self.0.hands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Arms a timer, unless its moment has come already.
    fn arm(&self, deadline: Instant, waker: Waker) -> Option<TimerId> {
        let mut hands = self.hands();
        if deadline <= hands.now {
            // The waker is foreign code: dropped after the lock is released.
            drop(hands);
            return None;
        }
        let id = hands.arm(deadline, waker);
        drop(hands);
        self.0.armed.notify_all();
        Some(id)
    }

    fn disarm(&self, id: TimerId) {
        let waker = self.hands().timers.remove(&id);
        drop(waker);
    }
}

impl Hands {
    #[track_caller]
    fn step(&mut self, step: Duration) -> Vec<Waker> {
        self.now = self.now.checked_add(step).expect("the fake clock went past Instant");
        let later = self.timers.split_off(&(self.now, u64::MAX));
        std::mem::replace(&mut self.timers, later).into_values().collect()
    }

    fn arm(&mut self, deadline: Instant, waker: Waker) -> TimerId {
        self.armed_so_far += 1;
        let id = (deadline, self.armed_so_far);
        self.timers.insert(id, waker);
        id
    }
}

impl Default for FakeClock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for FakeClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hands = self.hands();
        f.debug_struct("FakeClock")
            .field("now", &hands.now)
            .field("timers", &hands.timers.len())
            .finish()
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Instant {
        FakeClock::now(self)
    }

    fn timer(&self, deadline: Instant) -> Timer {
        Timer::new(FakeTimer { clock: self.clone(), deadline, armed: None })
    }

    fn park_until(&self, deadline: Instant) {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        if let Some(id) = self.arm(deadline, waker) {
            thread::park();
            self.disarm(id);
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

struct FakeTimer {
    clock: FakeClock,
    deadline: Instant,
    armed: Option<TimerId>,
}

impl FakeTimer {
    fn disarm(&mut self) {
        if let Some(id) = self.armed.take() {
            self.clock.disarm(id);
        }
    }
}

impl Future for FakeTimer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.disarm();
        self.armed = self.clock.arm(self.deadline, cx.waker().clone());
        if self.armed.is_some() { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl Drop for FakeTimer {
    fn drop(&mut self) {
        self.disarm();
    }
}
