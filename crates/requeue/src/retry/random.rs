//! Random numbers that a seed makes repeatable.

use std::hash::{BuildHasher, RandomState};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};

/// A random number generator that threads share: `SplitMix64`, whose state is a counter.
#[derive(Debug)]
pub(super) struct Random(AtomicU64);

impl Random {
    /// Returns a generator with a random seed.
    pub(super) fn new() -> Self {
        Self::seeded(RandomState::new().hash_one(()))
    }

    /// Returns a generator with the given seed.
    pub(super) fn seeded(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// Returns a uniformly distributed number of `range`, or its start if it is empty.
    pub(super) fn within(&self, range: RangeInclusive<u64>) -> u64 {
        let (start, end) = range.into_inner();
        let numbers = u128::from(end.saturating_sub(start)) + 1;
        let scaled = (u128::from(self.next()) * numbers) >> 64;
        start + u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    fn next(&self) -> u64 {
        // Relaxed: each call needs a distinct number, and nothing else is ordered by it.
        let z = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// The odd number next to 2^64 divided by the golden ratio. With the multipliers in `next`,
/// these are the constants of `SplitMix64`.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_equal_the_published_ones_of_splitmix64() {
        let random = Random::seeded(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
        assert_eq!(random.next(), 9_817_491_932_198_370_423);
    }

    #[test]
    fn every_number_of_a_range_occurs() {
        let random = Random::seeded(1);
        let mut seen = [0; 4];
        for _ in 0..1000 {
            seen[usize::try_from(random.within(7..=10) - 7).unwrap()] += 1;
        }
        assert!(seen.iter().all(|&count| count > 200), "{seen:?}");
    }

    #[test]
    fn extreme_and_empty_ranges_do_not_panic() {
        let random = Random::seeded(1);
        assert_eq!(random.within(3..=3), 3);
        assert_eq!(random.within(u64::MAX..=u64::MAX), u64::MAX);
        assert_eq!(random.within(RangeInclusive::new(9, 2)), 9);
        let halves = (0..64).map(|_| random.within(0..=u64::MAX) >> 63).sum::<u64>();
        assert!((16..=48).contains(&halves), "{halves}");
    }
}
