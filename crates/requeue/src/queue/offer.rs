//! A key on its way into the queue.

use std::borrow::Borrow;

/// A key that is offered to the queue: owned, or owned only once the queue wants it.
pub(super) trait Offer<K> {
    /// Whether this is the given key.
    fn is(&self, key: &K) -> bool;

    /// The key itself; called at most once.
    fn take(&mut self) -> K;
}

pub(super) struct Owned<K>(Option<K>);

impl<K> Owned<K> {
    pub(super) fn new(key: K) -> Self {
        Self(Some(key))
    }
}

impl<K: Eq> Offer<K> for Owned<K> {
    fn is(&self, key: &K) -> bool {
        self.0.as_ref() == Some(key)
    }

    fn take(&mut self) -> K {
        self.0.take().expect("an offer is taken once")
    }
}

pub(super) struct Borrowed<'a, Q: ?Sized>(pub(super) &'a Q);

impl<K: Borrow<Q>, Q: Eq + ToOwned<Owned = K> + ?Sized> Offer<K> for Borrowed<'_, Q> {
    fn is(&self, key: &K) -> bool {
        key.borrow() == self.0
    }

    fn take(&mut self) -> K {
        self.0.to_owned()
    }
}
