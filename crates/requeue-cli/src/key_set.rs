//! A set of keys, as 64-bit hashes.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// Remembers which keys were inserted.
///
/// A million keys take 19 MB (9 bytes per bucket, 2^21 buckets), whatever their length. Among
/// a million keys, another key is mistaken for a member with a probability of 5e-14. The
/// hasher is seeded, so chosen keys do not collide more often.
#[derive(Debug, Default)]
pub(crate) struct KeySet {
    hashes: HashSet<u64>,
    hasher: RandomState,
}

impl KeySet {
    pub(crate) fn insert(&mut self, key: &[u8]) {
        self.hashes.insert(self.hasher.hash_one(key));
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.hashes.contains(&self.hasher.hash_one(key))
    }

    /// Removes a key. Returns whether it was a member.
    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        self.hashes.remove(&self.hasher.hash_one(key))
    }

    pub(crate) fn len(&self) -> usize {
        self.hashes.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contains_the_inserted_keys_and_no_others() {
        let mut keys = KeySet::default();
        let key = |number: u32| number.to_string().into_bytes();
        (0..100_000).for_each(|number| keys.insert(&key(number)));
        assert!((0..100_000).all(|number| keys.contains(&key(number))));
        assert!((100_000..200_000).all(|number| !keys.contains(&key(number))));
    }
}
