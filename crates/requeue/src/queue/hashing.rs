//! How keys are hashed: foldhash with a seed for each queue, or the user's choice.

use std::hash::{BuildHasher, Hash, Hasher};

pub(super) enum Hashing {
    Seeded(foldhash::fast::RandomState),
    Other(Box<dyn HashWith>),
}

impl Default for Hashing {
    fn default() -> Self {
        Self::Seeded(foldhash::fast::RandomState::default())
    }
}

impl Hashing {
    pub(super) fn new(build: impl BuildHasher + Send + Sync + 'static) -> Self {
        Self::Other(Box::new(build))
    }

    /// The hash of a key, or of what a key borrows as. Runs the user's `Hash`.
    #[inline]
    pub(super) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        match self {
            Self::Seeded(state) => state.hash_one(key),
            Self::Other(build) => build.hash_with(&|mut hasher| key.hash(&mut hasher)),
        }
    }
}

/// A `BuildHasher` behind a pointer.
pub(super) trait HashWith: Send + Sync {
    fn hash_with(&self, feed: &dyn Fn(&mut dyn Hasher)) -> u64;
}

impl<S: BuildHasher + Send + Sync> HashWith for S {
    fn hash_with(&self, feed: &dyn Fn(&mut dyn Hasher)) -> u64 {
        let mut hasher = self.build_hasher();
        feed(&mut hasher);
        hasher.finish()
    }
}
