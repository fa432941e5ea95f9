//! The metrics of one queue: where they go, and the clock that times keys.

use crate::clock::AnyClock;
use crate::contain::contain;
use crate::metrics::Recorder;
use crate::queue::nanos::Nanos;

/// Reports to the recorder of one queue.
pub(super) struct Meter {
    recorder: Box<dyn Recorder>,
    stopwatch: Stopwatch,
}

impl Meter {
    pub(super) fn new(recorder: Box<dyn Recorder>, clock: &AnyClock) -> Self {
        Self { recorder, stopwatch: Stopwatch::new(clock) }
    }

    /// Returns the time, or `None` if the queue's clock times keys.
    #[inline]
    pub(super) fn now(&self) -> Option<Nanos> {
        self.stopwatch.now()
    }

    /// Calls the recorder, which is user code: its panic is contained.
    #[inline]
    pub(super) fn record(&self, event: impl FnOnce(&dyn Recorder)) {
        contain(|| event(&*self.recorder));
    }
}

/// The clock that times keys.
enum Stopwatch {
    /// The queue's clock.
    Queue,
    /// The time stamp counter of the processor, in place of the system clock. A reading takes
    /// less than half the time. It only measures durations, since it drifts from the system
    /// clock.
    #[cfg(all(feature = "prometheus", not(any(miri, requeue_loom, requeue_shuttle))))]
    Counter { clock: quanta::Clock, start: u64 },
}

#[cfg(all(feature = "prometheus", not(any(miri, requeue_loom, requeue_shuttle))))]
impl Stopwatch {
    /// The first counter of a process is calibrated against the system clock, usually in 0.6 ms
    /// and at most in 200 ms. If the processor has no steady counter, it is the system clock.
    fn new(clock: &AnyClock) -> Self {
        if !clock.is_system() {
            return Self::Queue;
        }
        let clock = quanta::Clock::new();
        Self::Counter { start: clock.raw(), clock }
    }

    #[inline]
    fn now(&self) -> Option<Nanos> {
        match self {
            Self::Queue => None,
            Self::Counter { clock, start } => {
                Some(clock.delta_as_nanos(*start, clock.raw()))
            }
        }
    }
}

#[cfg(not(all(feature = "prometheus", not(any(miri, requeue_loom, requeue_shuttle)))))]
impl Stopwatch {
    fn new(_clock: &AnyClock) -> Self {
        Self::Queue
    }

    fn now(&self) -> Option<Nanos> {
        match self {
            Self::Queue => None,
        }
    }
}
