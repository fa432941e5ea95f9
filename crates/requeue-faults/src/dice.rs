//! Chance that can be repeated.

use std::time::Duration;

/// Random numbers from a seed: `SplitMix64`.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// Dice for one purpose of a run.
    pub(crate) fn new(seed: u64, purpose: &str) -> Self {
        let mix =
            |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(purpose.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, mix))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// True in so many of a hundred cases.
    pub(crate) fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }

    /// A duration in milliseconds, the first included.
    pub(crate) fn millis(&mut self, range: std::ops::Range<u64>) -> Duration {
        let micros = self.below((range.end - range.start) * 1000);
        Duration::from_micros(range.start * 1000 + micros)
    }

    /// One of these.
    pub(crate) fn pick<'a, T>(&mut self, choices: &'a [T]) -> Option<&'a T> {
        let place = self.below(choices.len() as u64);
        choices.get(usize::try_from(place).unwrap_or(0))
    }

    /// Brings these into a random order.
    pub(crate) fn shuffle<T>(&mut self, cards: &mut [T]) {
        for place in (1..cards.len()).rev() {
            let other = self.below(place as u64 + 1);
            cards.swap(place, usize::try_from(other).unwrap_or(0));
        }
    }
}
