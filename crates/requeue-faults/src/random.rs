//! Repeatable random choices.

use std::ops::Range;
use std::time::Duration;

/// A `SplitMix64` generator with a fixed seed.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Returns the generator that a run with this seed uses for one purpose.
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

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// Returns an index into a list of this length.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// Returns `true` with this probability, in percent.
    pub(crate) fn percent(&mut self, probability: u64) -> bool {
        self.below(100) < probability
    }

    /// Returns a duration from a range of milliseconds.
    pub(crate) fn millis(&mut self, range: Range<u64>) -> Duration {
        let micros = self.below((range.end - range.start) * 1000);
        Duration::from_micros(range.start * 1000 + micros)
    }

    /// Returns one of the choices, or `None` if there are none.
    pub(crate) fn pick<'a, T>(&mut self, choices: &'a [T]) -> Option<&'a T> {
        let index = self.index(choices.len());
        choices.get(index)
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for index in (1..items.len()).rev() {
            let other = self.index(index + 1);
            items.swap(index, other);
        }
    }
}
