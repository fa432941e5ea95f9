//! Many keys in one call: as one by one, but what is alike for all of them is asked once.

use super::{Newcomer, Phase, State, Taken};
use crate::queue::line::Line;
use crate::queue::offer::Offer;
use crate::queue::options::AddedAll;
use crate::queue::order::Ticket;
use crate::queue::slots::Loan;

impl<K> State<K> {
    /// Whether keys come in the default order and nobody measures them, so that of a key
    /// only its slot, its entry in the table and its place in the order change.
    #[inline]
    fn is_plain(&self) -> bool {
        self.timing.is_none() && !self.absorb && !self.line.heeds_priority()
    }

    /// Whether no key has failures or a delay besides: one that is done is forgotten then,
    /// unless it is dirty.
    #[inline]
    fn is_bare(&self) -> bool {
        self.is_plain() && self.retries.is_empty() && self.delays.is_empty()
    }

    /// Adds the keys of `offers`, each with its hash, now.
    #[inline(never)]
    pub(in crate::queue) fn add_many<O: Offer<K>>(
        &mut self,
        offers: &mut [(u32, O)],
        tally: &mut AddedAll,
    ) {
        let plain = self.is_plain() && !self.is_closed();
        self.table.expect(offers.iter().map(|(hash, _)| *hash));
        for (hash, offer) in offers {
            if plain {
                self.add_plain(*hash, offer, tally);
            } else {
                tally.count(self.add(*hash, offer, 0));
            }
        }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: a seventh of a batch's cycle")]
    fn add_plain(&mut self, hash: u32, offer: &mut impl Offer<K>, tally: &mut AddedAll) {
        match self.find_offer(hash, offer) {
            Err(gap) => {
                let new = Newcomer { hash, gap, key: offer.take() };
                let slot = self.enroll(Phase::Ready, new);
                self.line.push_bare(slot);
                self.ready += 1;
                tally.ready += 1;
            }
            Ok((_, phase)) if phase.is_planned() => tally.duplicate += 1,
            Ok((slot, _)) => tally.count(self.add_slot(slot, 0)),
        }
    }

    /// Takes back keys that are done; their failures are forgotten if they `succeeded`.
    /// Gives those that the queue has forgotten and whose drop runs code, for the caller to
    /// drop without the lock.
    #[inline(never)]
    pub(in crate::queue) fn done_many(
        &mut self,
        taken: Vec<Taken<K>>,
        succeeded: bool,
    ) -> Vec<K> {
        let mut forgotten = Vec::new();
        let bare = self.is_bare();
        for Taken { slot, loan, .. } in taken {
            let key = if bare && self.phase(slot) == Phase::Processing {
                Some(self.done_bare(slot, loan))
            } else {
                if succeeded {
                    self.pardon(slot);
                }
                self.done(slot, loan).key
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
    fn done_bare(&mut self, slot: u32, loan: Loan<K>) -> K {
        self.processing -= 1;
        let (hash, key) = self.slots.vacate_lent(slot, loan);
        self.table.remove(hash, slot);
        self.forgotten += 1;
        key
    }
}

impl<K: Clone> State<K> {
    /// Hands out up to `max` keys whose turn it is.
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

/// Keys on their way out. Should the `Clone` of one panic, those before it are ready again.
struct Hand<'a, K> {
    state: &'a mut State<K>,
    taken: Vec<Taken<K>>,
}

impl<K: Clone> Hand<'_, K> {
    #[inline(never)]
    fn fill_at_once(&mut self, max: usize) {
        let Self { state: State { slots, line, ready, processing, .. }, taken } = self;
        let Line::Fifo(fifo) = line else { return };
        fifo.pop_bare(max, |Ticket(slot)| {
            *ready -= 1;
            let loan = slots.lend(slot);
            *processing += 1;
            taken.push(Taken { slot, loan, priority: 0 });
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
        for Taken { slot, loan, priority } in std::mem::take(&mut self.taken) {
            self.state.slots.set_phase(slot, Phase::Dirty);
            self.state.dirty += 1;
            self.state.raise(slot, priority);
            self.state.done(slot, loan);
        }
    }
}
