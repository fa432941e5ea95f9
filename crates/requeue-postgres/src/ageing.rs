//! Ageing: about one lease in 256 goes to the oldest ready key, whatever its priority.
//!
//! Each store counts its leases from a random start, so that stores that lease a few keys
//! and close take part too. With a test clock the count is at least the time, which makes
//! the turns predictable.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// The oldest key has one turn in this many leases.
const ONE_IN: u64 = 256;

/// Counts leases to find the turns of the oldest key.
#[derive(Debug)]
pub(crate) struct Ageing {
    next: AtomicU64,
}

impl Ageing {
    pub(crate) fn new(has_test_clock: bool) -> Self {
        let first =
            if has_test_clock { 0 } else { RandomState::new().hash_one(0_u8) >> 1 };
        Self { next: AtomicU64::new(first) }
    }

    /// Counts the next `wanted` leases. Returns whether one of them is for the oldest key.
    pub(crate) fn count(&self, now: u64, wanted: u64) -> bool {
        self.next.fetch_max(now, Ordering::Relaxed);
        self.next.fetch_add(wanted, Ordering::Relaxed) % ONE_IN < wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_lease_in_256_is_for_the_oldest_key_in_batches_of_any_size() {
        for wanted in [1, 3, 100, 256] {
            let ageing = Ageing::new(false);
            let calls = 256 * 100 / wanted;
            let turns = (0..calls).filter(|_| ageing.count(0, wanted)).count();
            assert!((99..=101).contains(&turns), "{turns} turns of {wanted} keys");
        }
    }

    #[test]
    fn test_clock_decides_the_turn() {
        let ageing = Ageing::new(true);
        assert!(ageing.count(256, 1));
        assert!(!ageing.count(256, 1));
        assert!(ageing.count(512, 1));
    }
}
