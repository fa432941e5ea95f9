//! Which keys were added here, in as much memory for a billion as for one.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// 2 MiB: of a million keys, one in 500 that were not added seems to be.
const BITS: u64 = 1 << 24;

/// How many bits stand for a key.
const PROBES: u64 = 4;

/// A Bloom filter: it knows every key that was added, and may take another for one.
#[derive(Debug)]
pub(crate) struct Sieve {
    words: Vec<u64>,
    hashing: RandomState,
}

impl Default for Sieve {
    fn default() -> Self {
        let words = usize::try_from(BITS / 64).expect("it is far below 2^32");
        Self { words: vec![0; words], hashing: RandomState::new() }
    }
}

impl Sieve {
    /// The words and masks of a key's bits.
    fn places(&self, key: &[u8]) -> impl Iterator<Item = (usize, u64)> + use<> {
        let hash = self.hashing.hash_one(key);
        let step = (hash >> 32) | 1; // odd: no two probes meet
        (0..PROBES).map(move |probe| {
            let bit = hash.wrapping_add(step.wrapping_mul(probe)) % BITS;
            let word = usize::try_from(bit / 64).expect("it is far below 2^32");
            (word, 1 << (bit % 64))
        })
    }

    pub(crate) fn add(&mut self, key: &[u8]) {
        for (word, mask) in self.places(key) {
            self.words[word] |= mask;
        }
    }

    /// Whether a key was added, or seems to be.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.places(key).all(|(word, mask)| self.words[word] & mask != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_that_was_added_is_known_and_few_others_seem_to_be() {
        let mut sieve = Sieve::default();
        let key = |number: u32| number.to_string().into_bytes();
        (0..100_000).for_each(|number| sieve.add(&key(number)));
        assert!((0..100_000).all(|number| sieve.contains(&key(number))));
        let wrong = (100_000..200_000).filter(|number| sieve.contains(&key(*number)));
        assert!(wrong.count() < 100);
    }
}
