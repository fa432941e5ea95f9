//! One slot for each key the queue knows, whatever its phase.
//!
//! A key lives in its slot by value, also while a worker has it: the lease holds a clone.
//!
//! # Invariant
//!
//! 1. The indices of vacant slots form one list that starts at `vacant`.

/// The phase of a known key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Neither ready nor leased; known for its delay.
    Dormant,
    /// Neither ready nor leased; known only for its failures.
    Tracked,
    /// Can be delivered.
    Ready,
    /// Leased to a worker.
    Processing,
    /// Leased to a worker and added again since: ready when the lease ends.
    Dirty,
    /// Set aside: user code panicked when the key should have become ready or leased.
    Stranded,
}

impl Phase {
    /// Whether the key is ready, or will be when its lease ends. Ignores delays.
    #[inline]
    pub(super) fn is_pending(self) -> bool {
        matches!(self, Self::Ready | Self::Dirty)
    }

    /// Whether a worker has the key.
    #[inline]
    pub(super) fn is_leased(self) -> bool {
        matches!(self, Self::Processing | Self::Dirty)
    }
}

enum Slot<K> {
    Vacant { next: u32 },
    Used { phase: Phase, hash: u32, key: K },
}

/// No slot: the end of the list of vacant ones.
const NONE: u32 = u32::MAX;

pub(super) struct Slots<K> {
    all: Vec<Slot<K>>,
    vacant: u32,
    live: usize,
}

impl<K> Slots<K> {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        let mut all = Vec::new();
        // A hint: more than memory can hold is not an error yet.
        all.try_reserve(capacity).unwrap_or_default();
        Self { all, vacant: NONE, live: 0 }
    }

    /// How many keys are known.
    #[inline]
    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// The number of slots, vacant ones included. Every index is below it.
    #[inline]
    pub(super) fn bound(&self) -> usize {
        self.all.len()
    }

    /// The index that the next [`fill`](Self::fill) will use.
    ///
    /// # Panics
    ///
    /// If four billion keys are known.
    #[inline]
    pub(super) fn vacancy(&self) -> u32 {
        if self.vacant != NONE {
            return self.vacant;
        }
        let index = u32::try_from(self.all.len()).unwrap_or(NONE);
        assert!(index != NONE, "a queue holds at most {NONE} keys");
        index
    }

    /// Puts `key` into the slot that [`vacancy`](Self::vacancy) names.
    #[inline]
    pub(super) fn fill(&mut self, phase: Phase, hash: u32, key: K) -> u32 {
        let filled = Slot::Used { phase, hash, key };
        let index = self.vacancy();
        self.live += 1;
        match self.all.get_mut(index as usize) {
            None => self.all.push(filled),
            Some(slot) => {
                if let Slot::Vacant { next } = *slot {
                    self.vacant = next;
                }
                *slot = filled;
            }
        }
        index
    }

    /// Empties a slot. Returns the key's hash, and the key for the caller to drop after the
    /// lock is released.
    #[inline]
    pub(super) fn vacate(&mut self, index: u32) -> (u32, K) {
        let vacant = Slot::Vacant { next: self.vacant };
        self.vacant = index;
        self.live -= 1;
        match std::mem::replace(&mut self.all[index as usize], vacant) {
            Slot::Used { hash, key, .. } => (hash, key),
            Slot::Vacant { .. } => unreachable!("slot {index} is vacant"),
        }
    }

    #[inline]
    pub(super) fn phase(&self, index: u32) -> Option<Phase> {
        match self.all.get(index as usize)? {
            Slot::Vacant { .. } => None,
            Slot::Used { phase, .. } => Some(*phase),
        }
    }

    #[inline]
    pub(super) fn set_phase(&mut self, index: u32, to: Phase) {
        match &mut self.all[index as usize] {
            Slot::Vacant { .. } => debug_assert!(false, "a vacant slot has no phase"),
            Slot::Used { phase, .. } => *phase = to,
        }
    }

    /// The slots that are in use, each with the hash of its key.
    pub(super) fn known(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        (0..).zip(&self.all).filter_map(|(index, slot)| match slot {
            Slot::Vacant { .. } => None,
            Slot::Used { hash, .. } => Some((*hash, index)),
        })
    }

    /// The key in a slot that is in use.
    #[inline]
    pub(super) fn key(&self, index: u32) -> &K {
        self.get(index).expect("a slot that is in use holds a key")
    }

    /// The key in a slot, if it is in use.
    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&K> {
        self.look(index).map(|(_, key)| key)
    }

    /// The same, and its phase.
    #[inline]
    pub(super) fn look(&self, index: u32) -> Option<(Phase, &K)> {
        match self.all.get(index as usize)? {
            Slot::Used { phase, key, .. } => Some((*phase, key)),
            Slot::Vacant { .. } => None,
        }
    }

    /// Frees memory after a spike. Slots in use keep their index.
    pub(super) fn shrink(&mut self) {
        while let Some(Slot::Vacant { .. }) = self.all.last() {
            self.all.pop();
        }
        self.all.shrink_to(self.all.len().max(MIN_KEPT));
        self.relink();
    }

    /// Rebuilds the list of vacant slots, lowest index first, so that the end of the slab
    /// becomes vacant.
    fn relink(&mut self) {
        self.vacant = NONE;
        for (index, slot) in self.all.iter_mut().enumerate().rev() {
            if let Slot::Vacant { next } = slot {
                let index = u32::try_from(index).expect("vacancy() bounds every index");
                *next = std::mem::replace(&mut self.vacant, index);
            }
        }
    }
}

#[cfg(test)]
impl<K> Slots<K> {
    /// Panics unless the invariants in the module docs hold.
    pub(super) fn check(&self) {
        assert_eq!(self.known().count(), self.live, "live keys are counted");
        self.check_vacant();
    }

    fn check_vacant(&self) {
        let mut left = self.all.len() - self.live;
        let mut index = self.vacant;
        while index != NONE {
            let Some(Slot::Vacant { next }) = self.all.get(index as usize) else {
                panic!("invariant 1: slot {index} is listed as vacant");
            };
            left = left.checked_sub(1).expect("invariant 1: a list without a circle");
            index = *next;
        }
        assert_eq!(left, 0, "invariant 1: every vacant slot is in the list");
    }
}

/// Memory for this many keys is never freed.
pub(super) const MIN_KEPT: usize = 1024;

impl<K: Clone> Slots<K> {
    /// Leases the key of a slot and returns a clone of it.
    ///
    /// The key is stranded while its clone is made: a panic in `Clone` leaves it there.
    #[inline(always)]
    pub(super) fn lease(&mut self, index: u32, stranded: &mut usize) -> K {
        let Slot::Used { phase, key, .. } = &mut self.all[index as usize] else {
            unreachable!("only a key that is ready is leased")
        };
        *phase = Phase::Stranded;
        *stranded += 1;
        let clone = key.clone();
        *phase = Phase::Processing;
        *stranded -= 1;
        clone
    }
}
