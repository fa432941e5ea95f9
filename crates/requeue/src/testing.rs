//! A clock for tests that moves only by hand (feature `testing`).

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::clock::{Clock, SystemClock, Timer};
use crate::contain::contain;

/// A clock that stands still until [`advance`](FakeClock::advance) moves it.
///
/// Clones share the time, so a test keeps one and passes the others on. `advance` wakes every
/// thread and task whose deadline it reaches, and returns without waiting for them to run. A
/// test either waits for their effect, or checks state that is exact at any time, such as the
/// length of a queue.
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
pub struct FakeClock(Arc<Mutex<FakeTime>>);

struct FakeTime {
    now: Instant,
    /// Timers by deadline, then by the order of arming.
    timers: BTreeMap<TimerId, Waker>,
    armed_so_far: u64,
    /// Callers of [`FakeClock::wait_for_timers`]. They are woken whenever a timer is armed.
    watchers: Vec<Waker>,
}

type TimerId = (Instant, u64);

impl FakeClock {
    /// Creates a clock. It starts at an arbitrary time.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(FakeTime {
            now: SystemClock.now(),
            timers: BTreeMap::new(),
            armed_so_far: 0,
            watchers: Vec::new(),
        })))
    }

    /// Returns the time of the clock.
    pub fn now(&self) -> Instant {
        self.state().now
    }

    /// Advances the clock by `step` and wakes every thread and task whose deadline it reaches.
    ///
    /// # Panics
    ///
    /// If the time exceeds the range of [`Instant`].
    #[doc(alias = "Step")]
    #[track_caller]
    pub fn advance(&self, step: Duration) {
        let due = self.state().step(step);
        wake_all(due);
    }

    /// Returns the number of threads and tasks that wait for this clock.
    #[doc(alias = "Waiters")]
    pub fn timers(&self) -> usize {
        self.state().timers.len()
    }

    /// Waits until at least `count` threads and tasks wait for this clock.
    ///
    /// Call it before [`advance`](Self::advance) if a worker in another task must be asleep by
    /// then.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use requeue::Queue;
    /// use requeue::testing::FakeClock;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let clock = FakeClock::new();
    /// let queue = Queue::builder().clock(clock.clone()).build();
    /// queue.add_after("later", Duration::from_secs(3600));
    /// let worker = tokio::spawn(async move { queue.get().await.map(|lease| *lease) });
    /// clock.wait_for_timers(1).await; // the worker sleeps
    /// clock.advance(Duration::from_secs(3600));
    /// assert_eq!(worker.await.unwrap(), Some("later"));
    /// # });
    /// ```
    pub async fn wait_for_timers(&self, count: usize) {
        poll_fn(|cx| self.poll_timers(count, cx)).await;
    }

    /// Blocks this thread until at least `count` threads and tasks wait for this clock.
    ///
    /// See [`wait_for_timers`](Self::wait_for_timers).
    pub fn wait_for_timers_blocking(&self, count: usize) {
        let waker = unpark_current();
        let mut waiting = pin!(self.wait_for_timers(count));
        while waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            thread::park();
        }
    }

    fn poll_timers(&self, count: usize, cx: &mut Context<'_>) -> Poll<()> {
        // The waker is user code: cloned before the lock is taken.
        let waker = cx.waker().clone();
        let mut state = self.state();
        if state.timers.len() >= count {
            drop(state);
            return Poll::Ready(());
        }
        state.watchers.push(waker);
        Poll::Pending
    }

    fn state(&self) -> MutexGuard<'_, FakeTime> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Arms a timer, unless its deadline has been reached.
    fn arm(&self, deadline: Instant, waker: Waker) -> Option<TimerId> {
        let mut state = self.state();
        if deadline <= state.now {
            // The waker is user code: dropped after the lock is released.
            drop(state);
            return None;
        }
        let id = state.arm(deadline, waker);
        let watchers = std::mem::take(&mut state.watchers);
        drop(state);
        wake_all(watchers);
        Some(id)
    }

    fn disarm(&self, id: TimerId) {
        let waker = self.state().timers.remove(&id);
        drop(waker);
    }
}

/// Calls each waker. A panic must not stop the others.
fn wake_all(wakers: Vec<Waker>) {
    for waker in wakers {
        contain(|| waker.wake());
    }
}

impl FakeTime {
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
        let state = self.state();
        f.debug_struct("FakeClock")
            .field("now", &state.now)
            .field("timers", &state.timers.len())
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
        if let Some(id) = self.arm(deadline, unpark_current()) {
            thread::park();
            self.disarm(id);
        }
    }
}

/// Unparks its thread.
struct Unpark(Thread);

fn unpark_current() -> Waker {
    Waker::from(Arc::new(Unpark(thread::current())))
}

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
