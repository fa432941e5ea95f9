//! Looking up one key by its value.

use std::borrow::Borrow;

use super::State;
use crate::queue::slots::Phase;

impl<K> State<K> {
    fn find<Q: Eq + ?Sized>(&self, hash: u32, key: &Q) -> Option<u32>
    where
        K: Borrow<Q>,
    {
        let is = |slot| self.slots.get(slot).is_some_and(|found| found.borrow() == key);
        self.table.find(hash, is)
    }

    /// Whether a key is ready, delayed, processing or stranded.
    pub(in crate::queue) fn contains<Q: Eq + ?Sized>(&self, hash: u32, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.find(hash, key).is_some_and(|slot| {
            let phase = self.phase(slot);
            !matches!(phase, Phase::Dormant | Phase::Tracked)
                || self.delays.contains(slot)
        })
    }

    /// Cancels a pending key. Returns whether it was pending, and the key if the queue has
    /// forgotten it.
    pub(in crate::queue) fn remove<Q: Eq + ?Sized>(
        &mut self,
        hash: u32,
        key: &Q,
    ) -> (bool, Option<K>)
    where
        K: Borrow<Q>,
    {
        let Some(slot) = self.find(hash, key) else { return (false, None) };
        let cancelled = self.cancel(slot);
        let idle = cancelled && self.phase(slot) == Phase::Dormant;
        (cancelled, if idle { self.retire(slot) } else { None })
    }

    /// Forgets the failures of a key. Returns the key if nothing else was known of it.
    pub(in crate::queue) fn forget<Q: Eq + ?Sized>(
        &mut self,
        hash: u32,
        key: &Q,
    ) -> Option<K>
    where
        K: Borrow<Q>,
    {
        let slot = self.find(hash, key).filter(|slot| self.num_failures_at(*slot) > 0)?;
        self.untrack(slot);
        self.clear_failures(slot);
        if self.phase(slot) == Phase::Dormant { self.retire(slot) } else { None }
    }

    /// The number of failures of a key.
    pub(in crate::queue) fn num_failures<Q: Eq + ?Sized>(&self, hash: u32, key: &Q) -> u32
    where
        K: Borrow<Q>,
    {
        self.find(hash, key).map_or(0, |slot| self.num_failures_at(slot))
    }
}
