//! The machine's time, and waiting.

use std::time::Duration;

use requeue::{Clock, SystemClock};
use requeue_store::machine::TimeSource;

/// Returns the wall-clock time in microseconds since 1970. Servers on this machine read the
/// same clock.
pub(crate) fn now() -> u64 {
    TimeSource::System.now().micros()
}

pub(crate) async fn sleep(delay: Duration) {
    SystemClock.timer(SystemClock.now() + delay).await;
}

/// Blocks the current thread.
pub(crate) fn sleep_blocking(delay: Duration) {
    let end = SystemClock.now() + delay;
    while SystemClock.now() < end {
        SystemClock.park_until(end);
    }
}
