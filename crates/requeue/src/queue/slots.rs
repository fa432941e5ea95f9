//! One slot for each key the queue knows, whatever its phase.
//!
//! A key lives in its slot by value. While a worker has it, the worker must be able to
//! look at the key without the lock and the queue must be able to compare it with keys
//! that are added: a key that owns nothing is copied, any other moves into a cell that
//! both hold (a [`Loan`]) and moves back when the lease ends. So a key is stored once,
//! is not cloned to be handed out, and emptied cells are kept for the next loan, so that
//! a worker's cycle does not allocate.
//!
//! # Invariants
//!
//! 1. The indices of vacant slots form one list that starts at `vacant`.
//! 2. A cell on loan holds a key, and exactly two parties hold the cell: the slot and
//!    the lease.
//! 3. A spare cell holds nothing and has no other holder.

use std::ops::Deref;
use std::sync::Arc;

/// Where one known key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Known for its delay only.
    Idle,
    /// Known for its failures only.
    Resting,
    /// Can be handed out.
    Ready,
    /// With a worker.
    Processing,
    /// With a worker, and added again since: ready when that is done.
    Dirty,
}

impl Phase {
    /// Whether a key is handed out soon without being added again.
    #[inline]
    pub(super) fn is_planned(self) -> bool {
        matches!(self, Self::Ready | Self::Dirty)
    }
}

enum Slot<K> {
    Vacant { next: u32 },
    Held { phase: Phase, hash: u32, key: K },
    Lent { phase: Phase, hash: u32, cell: Arc<Cell<K>> },
}

/// Where a key is while it is lent; `None` in a spare cell.
type Cell<K> = Option<K>;

/// A key as a lease holds it.
pub(super) enum Loan<K> {
    Copy(K),
    Cell(Arc<Cell<K>>),
}

impl<K> Deref for Loan<K> {
    type Target = K;

    fn deref(&self) -> &K {
        match self {
            Self::Copy(key) => key,
            Self::Cell(cell) => cell.as_ref().as_ref().expect("invariant 2"),
        }
    }
}

/// No slot: the end of the list of vacant ones.
const NONE: u32 = u32::MAX;

/// Spare cells beyond this many are freed. More workers than this at a time allocate.
const MAX_SPARE: usize = 256;

pub(super) struct Slots<K> {
    all: Vec<Slot<K>>,
    vacant: u32,
    live: usize,
    spare: Vec<Arc<Cell<K>>>,
}

impl<K> Slots<K> {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        let mut all = Vec::new();
        // Room is a wish: a number that memory cannot hold is not an error yet.
        all.try_reserve(capacity).unwrap_or_default();
        Self { all, vacant: NONE, live: 0, spare: Vec::new() }
    }

    /// How many keys are known.
    #[inline]
    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// One more than the highest index in use.
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
        let filled = Slot::Held { phase, hash, key };
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

    /// Empties a slot whose key is not lent. Gives the key's hash, and the key, for the
    /// caller to drop without the lock.
    #[inline]
    pub(super) fn vacate(&mut self, index: u32) -> (u32, K) {
        match self.take_out(index) {
            Slot::Held { hash, key, .. } => (hash, key),
            Slot::Vacant { .. } | Slot::Lent { .. } => {
                unreachable!("slot {index} holds no key by value")
            }
        }
    }

    /// The same for a key that comes back from its loan just to be forgotten.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: see `State::take`")]
    pub(super) fn vacate_lent(&mut self, index: u32, loan: Loan<K>) -> (u32, K) {
        if !std::mem::needs_drop::<K>() {
            return self.vacate(index);
        }
        let Loan::Cell(cell) = loan else { unreachable!("slot {index} is not on loan") };
        let Slot::Lent { hash, cell: slots_own, .. } = self.take_out(index) else {
            unreachable!("slot {index} is not on loan")
        };
        drop(slots_own);
        (hash, self.empty(cell))
    }

    #[inline]
    fn take_out(&mut self, index: u32) -> Slot<K> {
        let vacant = Slot::Vacant { next: self.vacant };
        self.vacant = index;
        self.live -= 1;
        std::mem::replace(&mut self.all[index as usize], vacant)
    }

    #[inline]
    pub(super) fn phase(&self, index: u32) -> Option<Phase> {
        match self.all.get(index as usize)? {
            Slot::Vacant { .. } => None,
            Slot::Held { phase, .. } | Slot::Lent { phase, .. } => Some(*phase),
        }
    }

    #[inline]
    pub(super) fn set_phase(&mut self, index: u32, to: Phase) {
        match &mut self.all[index as usize] {
            Slot::Vacant { .. } => debug_assert!(false, "a vacant slot has no phase"),
            Slot::Held { phase, .. } | Slot::Lent { phase, .. } => *phase = to,
        }
    }

    /// The slots that are in use, each with the hash of its key.
    pub(super) fn known(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        (0..).zip(&self.all).filter_map(|(index, slot)| match slot {
            Slot::Vacant { .. } => None,
            Slot::Held { hash, .. } | Slot::Lent { hash, .. } => Some((*hash, index)),
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
            Slot::Held { phase, key, .. } => Some((*phase, key)),
            Slot::Lent { phase, cell, .. } => Some((*phase, cell.as_ref().as_ref()?)),
            Slot::Vacant { .. } => None,
        }
    }

    /// Takes the key of a lent slot back: the end of its loan.
    #[inline]
    pub(super) fn give_back(&mut self, index: u32, loan: Loan<K>) {
        let Loan::Cell(cell) = loan else { return };
        let slot = &mut self.all[index as usize];
        let Slot::Lent { phase, hash, .. } = *slot else { return };
        *slot = Slot::Vacant { next: NONE };
        let key = self.empty(cell);
        self.all[index as usize] = Slot::Held { phase, hash, key };
    }

    /// Takes the key out of a cell that its slot has let go of, so that the lease's hold
    /// is the only one, and keeps the cell.
    #[inline]
    fn empty(&mut self, mut cell: Arc<Cell<K>>) -> K {
        let key = Arc::get_mut(&mut cell).and_then(Option::take).expect("invariant 2");
        if self.spare.len() < MAX_SPARE {
            self.spare.push(cell);
        }
        key
    }

    /// Frees what a spike left behind. Indices in use stay where they are.
    pub(super) fn shrink(&mut self) {
        while let Some(Slot::Vacant { .. }) = self.all.last() {
            self.all.pop();
        }
        self.all.shrink_to(self.all.len().max(MIN_KEPT));
        self.relink();
    }

    /// Makes the list of vacant slots anew, lowest index first, so that the tail of the
    /// slab runs empty.
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
        self.all.iter().for_each(Self::check_slot);
        for cell in &self.spare {
            assert!(cell.is_none() && Arc::strong_count(cell) == 1, "invariant 3");
        }
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

    fn check_slot(slot: &Slot<K>) {
        let out = |phase: &Phase| matches!(phase, Phase::Processing | Phase::Dirty);
        match slot {
            Slot::Vacant { .. } => {}
            Slot::Held { phase, .. } => {
                assert!(!std::mem::needs_drop::<K>() || !out(phase), "a held key is in");
            }
            Slot::Lent { phase, cell, .. } => {
                assert!(out(phase), "a lent key is out");
                assert!(cell.is_some() && Arc::strong_count(cell) == 2, "invariant 2");
            }
        }
    }
}

/// Room for this many keys is never given back.
pub(super) const MIN_KEPT: usize = 1024;

impl<K: Clone> Slots<K> {
    /// Lends out the key of a slot to a worker.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: see `State::take`")]
    pub(super) fn lend(&mut self, index: u32) -> Loan<K> {
        if std::mem::needs_drop::<K>() {
            Loan::Cell(self.lend_cell(index))
        } else {
            Loan::Copy(self.lend_copy(index))
        }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: see `State::take`")]
    fn lend_copy(&mut self, index: u32) -> K {
        let Slot::Held { phase, key, .. } = &mut self.all[index as usize] else {
            unreachable!("a key that owns nothing is held by value")
        };
        // Between the phases if `Clone` panics: the next add makes it ready again.
        *phase = Phase::Idle;
        let copy = key.clone();
        *phase = Phase::Processing;
        copy
    }

    #[inline]
    fn lend_cell(&mut self, index: u32) -> Arc<Cell<K>> {
        let slot = &mut self.all[index as usize];
        let mut cell = self.spare.pop().unwrap_or_default();
        let taken = std::mem::replace(slot, Slot::Vacant { next: NONE });
        let Slot::Held { hash, key, .. } = taken else {
            unreachable!("only a key that is held by value is ready")
        };
        *Arc::get_mut(&mut cell).expect("invariant 3") = Some(key);
        *slot = Slot::Lent { phase: Phase::Processing, hash, cell: Arc::clone(&cell) };
        cell
    }
}
