//! A monotonic clock that counts the time of a suspended machine.

use std::time::{Duration, Instant};

use requeue::{Clock, SystemClock};

/// Follows `CLOCK_BOOTTIME` on Linux, and the system's monotonic clock elsewhere.
///
/// [`Instant`] stands still while a machine is suspended, and a holder would believe in a Lease
/// that has expired for everyone else. Timers are those of the system clock: after a resume
/// they are late, which delays an attempt but never a check.
#[derive(Clone, Copy, Debug)]
pub(super) struct BootClock {
    start: Instant,
    start_since_boot: Duration,
}

impl BootClock {
    pub(super) fn new() -> Self {
        Self { start: SystemClock.now(), start_since_boot: since_boot() }
    }
}

impl Clock for BootClock {
    fn now(&self) -> Instant {
        self.start + since_boot().saturating_sub(self.start_since_boot)
    }
}

#[cfg(target_os = "linux")]
fn since_boot() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    // Both parts are positive: the clock starts with the machine.
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(not(target_os = "linux"))]
fn since_boot() -> Duration {
    use std::sync::OnceLock;
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let now = SystemClock.now();
    now.saturating_duration_since(*FIRST.get_or_init(|| now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_forward_at_the_pace_of_the_system_clock() {
        let clock = BootClock::new();
        let (first, began) = (clock.now(), SystemClock.now());
        let mut last = first;
        while SystemClock.now().saturating_duration_since(began)
            < Duration::from_millis(5)
        {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
        assert!(clock.now().saturating_duration_since(first) >= Duration::from_millis(4));
    }
}
