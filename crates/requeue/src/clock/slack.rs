//! Sleeping no longer than asked.
//!
//! Linux may let a thread sleep longer than it asked for, so that several wake up
//! together: by its timer slack, which is 50 µs unless the thread has asked for another.
//! That is most of how late a delayed key would be.

/// Runs `sleep` with the least slack there is. The thread is the caller's: afterwards it
/// has its own slack back.
#[cfg(target_os = "linux")]
pub(super) fn without(sleep: impl FnOnce()) {
    use rustix::thread::{current_timer_slack, set_current_timer_slack};
    use std::num::NonZeroU64;

    let own = current_timer_slack();
    // A kernel that refuses lets us sleep as long as before.
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
    fn thread_has_its_own_slack_back_after_it_slept() {
        let own = current_timer_slack().unwrap();
        let mut asleep = None;
        without(|| asleep = current_timer_slack().ok());
        assert_eq!(asleep, Some(1));
        assert_eq!(current_timer_slack().unwrap(), own);
    }
}
