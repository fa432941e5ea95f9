//! A key that is offered to the queue.
//!
//! The offer lives outside the lock. If user code panics under the lock, the key is still in
//! its offer, and so it is dropped after the lock is released.

use std::borrow::Borrow;

use crate::key::ToKey;

/// A key that is offered to the queue: owned, or cloned only if the queue needs it.
pub(super) trait Offer<K> {
    /// Whether this is the given key.
    fn is(&self, key: &K) -> bool;

    /// The key, which stays in the offer.
    fn key(&mut self) -> &K;

    /// Moves the key out; called at most once.
    fn take(&mut self) -> K;
}

pub(super) struct Owned<K>(Option<K>);

impl<K> Owned<K> {
    pub(super) fn new(key: K) -> Self {
        Self(Some(key))
    }

    /// The key of an offer that was not taken.
    pub(super) fn into_key(self) -> K {
        self.0.expect(TAKEN)
    }
}

const TAKEN: &str = "an offer is taken once";

impl<K: Eq> Offer<K> for Owned<K> {
    #[inline]
    fn is(&self, key: &K) -> bool {
        self.0.as_ref() == Some(key)
    }

    #[inline]
    fn key(&mut self) -> &K {
        self.0.as_ref().expect(TAKEN)
    }

    #[inline]
    fn take(&mut self) -> K {
        self.0.take().expect(TAKEN)
    }
}

pub(super) struct Borrowed<'a, K, Q: ?Sized> {
    borrowed: &'a Q,
    owned: Option<K>,
}

impl<'a, K, Q: ?Sized> Borrowed<'a, K, Q> {
    pub(super) fn new(borrowed: &'a Q) -> Self {
        Self { borrowed, owned: None }
    }
}

impl<K, Q> Offer<K> for Borrowed<'_, K, Q>
where
    K: Borrow<Q>,
    Q: ToKey<K> + ?Sized,
{
    #[inline]
    fn is(&self, key: &K) -> bool {
        key.borrow() == self.borrowed
    }

    #[inline]
    fn key(&mut self) -> &K {
        self.owned.get_or_insert_with(|| self.borrowed.to_key())
    }

    #[inline]
    fn take(&mut self) -> K {
        self.owned.take().unwrap_or_else(|| self.borrowed.to_key())
    }
}
