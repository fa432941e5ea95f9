//! Sleeping without timer slack.
//!
//! Linux may wake a thread later than requested, by its timer slack, to wake several threads
//! together. The default of 50 µs would be most of the lateness of a delayed key.

/// Runs `sleep` with the smallest slack, and restores the thread's own slack afterwards.
#[cfg(target_os = "linux")]
pub(super) fn without(sleep: impl FnOnce()) {
    use rustix::thread::{current_timer_slack, set_current_timer_slack};
    use std::num::NonZeroU64;

    let own = current_timer_slack();
    // If the kernel refuses, the sleep is as late as before.
    let least = set_current_timer_slack(Some(NonZeroU64::MIN));
    sleep();
    if let (Ok(own), Ok(())) = (own, least) {
        set_current_timer_slack(NonZeroU64::new(own)).unwrap_or_default();
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn without(sleep: impl FnOnce()) {
    sleep();
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::thread::current_timer_slack;

    use super::*;

    #[test]
    fn slack_of_the_thread_is_restored_after_a_sleep() {
        let own = current_timer_slack().unwrap();
        let mut asleep = None;
        without(|| asleep = current_timer_slack().ok());
        assert_eq!(asleep, Some(1));
        assert_eq!(current_timer_slack().unwrap(), own);
    }
}
