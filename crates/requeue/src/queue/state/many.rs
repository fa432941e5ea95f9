//! Many keys in one call. Equivalent to one call per key.

use super::{Phase, State, Taken};
use crate::queue::offer::Offer;
use crate::queue::options::AddedAll;

impl<K> State<K> {
    /// Adds the keys of `offers`, each with its hash, now. Returns whether it did, which it
    /// does unless the queue is closed.
    #[inline(never)]
    pub(in crate::queue) fn add_many<O: Offer<K>>(
        &mut self,
        offers: &mut [(u32, O)],
        tally: &mut AddedAll,
    ) -> bool {
        for (hash, offer) in offers {
            match self.add(*hash, offer, 0) {
                Some(added) => tally.count(added),
                None => return false,
            }
        }
        true
    }

    /// Ends the leasing of many keys; their failures are forgotten if they `succeeded`.
    /// Returns the keys that are forgotten and whose drop runs code, for the caller to drop
    /// after the lock is released.
    #[inline(never)]
    pub(in crate::queue) fn done_many(
        &mut self,
        slots: impl Iterator<Item = u32>,
        succeeded: bool,
    ) -> Vec<K> {
        let mut forgotten = Vec::new();
        for slot in slots {
            if succeeded {
                self.clear_failures(slot);
            }
            let key = self.done(slot);
            if std::mem::needs_drop::<K>() {
                forgotten.extend(key);
            }
        }
        forgotten
    }
}

impl<K: Clone> State<K> {
    /// Leasing up to `max` keys.
    #[inline(never)]
    pub(in crate::queue) fn take_many(&mut self, max: usize) -> Vec<Taken<K>> {
        let taken = Vec::with_capacity(max.min(self.ready));
        let mut leasing = Leasing { state: self, taken };
        while leasing.taken.len() < max {
            let Some(taken) = leasing.state.take() else { break };
            leasing.taken.push(taken);
        }
        std::mem::take(&mut leasing.taken)
    }
}

/// Keys that are being leased together. If user code panics for one of them, those before it
/// become ready again.
struct Leasing<'a, K> {
    state: &'a mut State<K>,
    taken: Vec<Taken<K>>,
}

impl<K> Drop for Leasing<'_, K> {
    fn drop(&mut self) {
        for Taken { slot, key, priority } in std::mem::take(&mut self.taken) {
            self.state.slots.set_phase(slot, Phase::Dirty);
            self.state.dirty += 1;
            self.state.set_priority(slot, priority);
            let forgotten = self.state.done(slot);
            self.state.discard(forgotten.into_iter().chain([key]));
        }
    }
}
