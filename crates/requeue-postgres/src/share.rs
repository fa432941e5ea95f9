//! The share of grants that goes to the key that has been longest in line.
//!
//! Each store counts what it hands out, from a number of its own: so also those that hand
//! out few keys and are gone have their part in it. With a clock that is told, the count is
//! no less than the time, as tokens are: a test then knows whose turn it is.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// One grant in so many.
const ONE_IN: u64 = 256;

/// Whose turn it is.
#[derive(Debug)]
pub(crate) struct Share {
    next: AtomicU64,
}

impl Share {
    pub(crate) fn new(has_clock: bool) -> Self {
        let first = if has_clock { 0 } else { RandomState::new().hash_one(0_u8) >> 1 };
        Self { next: AtomicU64::new(first) }
    }

    /// Whether the next grants, so many, have the key among them that has been longest in
    /// line. They are counted with that.
    pub(crate) fn take(&self, now: u64, wanted: u64) -> bool {
        self.next.fetch_max(now, Ordering::Relaxed);
        self.next.fetch_add(wanted, Ordering::Relaxed) % ONE_IN < wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_grant_in_256_has_its_turn_whatever_the_batches() {
        for wanted in [1, 3, 100, 256] {
            let share = Share::new(false);
            let calls = 256 * 100 / wanted;
            let turns = (0..calls).filter(|_| share.take(0, wanted)).count();
            assert!((99..=101).contains(&turns), "{turns} turns of {wanted} keys");
        }
    }

    #[test]
    fn a_clock_that_moves_on_moves_the_turn() {
        let share = Share::new(true);
        assert!(share.take(256, 1));
        assert!(!share.take(256, 1));
        assert!(share.take(512, 1));
    }
}
