//! Many keys in one call. Equivalent to one call per key, but conditions that hold for all of
//! them are checked once.

use super::{Phase, Place, State, Taken};
use crate::queue::line::Line;
use crate::queue::offer::Offer;
use crate::queue::options::AddedAll;
use crate::queue::order::Ticket;

impl<K> State<K> {
    /// Whether keys come in the default order and are not measured, so that an add changes
    /// nothing but a slot, its entry in the table and its place in the order.
    #[inline]
    fn is_plain(&self) -> bool {
        self.timing.is_none() && !self.absorb && !self.line.heeds_priority()
    }

    /// Whether no key has failures or a delay either: then a key that is done is forgotten,
    /// unless it is dirty.
    #[inline]
    fn is_bare(&self) -> bool {
        self.is_plain() && self.failures.is_empty() && self.delays.is_empty()
    }

    /// Adds the keys of `offers`, each with its hash, now. Returns whether it did, which it
    /// does unless the queue is closed.
    #[inline(never)]
    pub(in crate::queue) fn add_many<O: Offer<K>>(
        &mut self,
        offers: &mut [(u32, O)],
        tally: &mut AddedAll,
    ) -> bool {
        if self.is_closed() {
            return false;
        }
        let plain = self.is_plain();
        for (hash, offer) in offers {
            if plain {
                self.add_plain(*hash, offer, tally);
            } else if let Some(added) = self.add(*hash, offer, 0) {
                tally.count(added);
            }
        }
        true
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: a seventh of a batch's cycle")]
    fn add_plain(&mut self, hash: u32, offer: &mut impl Offer<K>, tally: &mut AddedAll) {
        match self.find_offer(hash, offer) {
            Err(gap) => {
                let slot = self.enroll(Phase::Ready, Place { hash, gap }, offer.take());
                self.line.push_bare(slot);
                self.ready += 1;
                tally.ready += 1;
            }
            Ok((_, phase)) if phase.is_pending() => tally.duplicate += 1,
            Ok((slot, _)) => tally.count(self.add_slot(slot, 0)),
        }
    }

    /// Ends the leases of many keys; their failures are forgotten if they `succeeded`.
    /// Returns the keys that are forgotten and whose drop runs code, for the caller to drop
    /// after the lock is released.
    #[inline(never)]
    pub(in crate::queue) fn done_many(
        &mut self,
        slots: impl Iterator<Item = u32>,
        succeeded: bool,
    ) -> Vec<K> {
        let mut forgotten = Vec::new();
        let bare = self.is_bare();
        for slot in slots {
            let key = if bare && self.phase(slot) == Phase::Processing {
                Some(self.done_bare(slot))
            } else {
                if succeeded {
                    self.clear_failures(slot);
                }
                self.done(slot)
            };
            if std::mem::needs_drop::<K>() {
                forgotten.extend(key);
            }
        }
        self.shrink_after_spike();
        forgotten
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: a seventh of a batch's cycle")]
    fn done_bare(&mut self, slot: u32) -> K {
        self.processing -= 1;
        let (hash, key) = self.slots.vacate(slot);
        self.table.remove(hash, slot);
        self.forgotten += 1;
        key
    }
}

impl<K: Clone> State<K> {
    /// Leases up to `max` keys.
    pub(in crate::queue) fn take_many(&mut self, max: usize) -> Vec<Taken<K>> {
        let taken = Vec::with_capacity(max.min(self.ready));
        let mut hand = Hand { state: self, taken };
        if hand.state.is_plain() {
            hand.fill_at_once(max);
        }
        hand.fill_one_by_one(max);
        std::mem::take(&mut hand.taken)
    }
}

/// Keys that are being leased together. If user code panics for one of them, those before it
/// become ready again.
struct Hand<'a, K> {
    state: &'a mut State<K>,
    taken: Vec<Taken<K>>,
}

impl<K: Clone> Hand<'_, K> {
    #[inline(never)]
    fn fill_at_once(&mut self, max: usize) {
        let Self { state, taken } = self;
        let State { slots, line, ready, processing, stranded, .. } = &mut **state;
        let Line::Fifo(fifo) = line else { return };
        fifo.pop_bare(max, |Ticket(slot)| {
            *ready -= 1;
            let key = slots.lease(slot, stranded);
            *processing += 1;
            taken.push(Taken { slot, key, priority: 0 });
        });
    }

    fn fill_one_by_one(&mut self, max: usize) {
        while self.taken.len() < max {
            let Some(one) = self.state.take() else { break };
            self.taken.push(one);
        }
    }
}

impl<K> Drop for Hand<'_, K> {
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
