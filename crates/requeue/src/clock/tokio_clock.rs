//! A clock that follows the time of a tokio runtime (feature `tokio`).

use std::fmt;
use std::thread;
use std::time::Instant;

use tokio::runtime::Handle;
use tokio::time::sleep_until;

use super::{Clock, Timer};

/// The clock of a tokio runtime, including its paused time.
///
/// Use it in tests that run with `#[tokio::test(start_paused = true)]`: queues, limiters and
/// pools then follow `tokio::time::advance` and the automatic advance of an idle runtime,
/// together with all other timers of the test. Outside of tests
/// [`SystemClock`](crate::SystemClock) is the better choice, because tokio rounds timers up to
/// whole milliseconds.
///
/// # Blocked threads
///
/// A blocking call, such as `get_blocking`, wakes up when the runtime's time has reached its
/// deadline, even while that time is paused and advanced by hand. This takes a task of the
/// runtime for each wait, so something else has to run the runtime: a blocking call on the
/// only thread of a runtime stops its paused time for good.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use requeue::{Queue, TokioClock};
///
/// # tokio::runtime::Builder::new_current_thread()
/// #     .enable_time().start_paused(true).build().unwrap().block_on(async {
/// let queue = Queue::builder().clock(TokioClock::new()).build();
/// queue.add_after("later", Duration::from_secs(3600));
/// let lease = queue.get().await; // takes no time: the runtime is idle and advances
/// assert_eq!(lease.map(|lease| *lease), Some("later"));
/// # });
/// ```
#[derive(Clone)]
pub struct TokioClock {
    runtime: Handle,
}

impl TokioClock {
    /// Creates a clock that follows the current runtime.
    ///
    /// # Panics
    ///
    /// If called outside of a tokio runtime. Waiting panics if the runtime was built without
    /// `enable_time`.
    #[track_caller]
    #[expect(clippy::new_without_default, reason = "it panics outside of a runtime")]
    pub fn new() -> Self {
        Self { runtime: Handle::current() }
    }
}

impl Clock for TokioClock {
    #[expect(clippy::disallowed_methods, reason = "this is a clock")]
    fn now(&self) -> Instant {
        let _entered = self.runtime.enter();
        tokio::time::Instant::now().into_std()
    }

    fn timer(&self, deadline: Instant) -> Timer {
        let _entered = self.runtime.enter();
        Timer::new(sleep_until(deadline.into()))
    }

    fn park_until(&self, deadline: Instant) {
        let (timer, thread) = (self.timer(deadline), thread::current());
        let unpark = self.runtime.spawn(async move {
            timer.await;
            thread.unpark();
        });
        // Not `park`: a runtime that has shut down fires no timers.
        thread::park_timeout(deadline.saturating_duration_since(self.now()));
        unpark.abort();
    }
}

impl fmt::Debug for TokioClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokioClock")
    }
}
