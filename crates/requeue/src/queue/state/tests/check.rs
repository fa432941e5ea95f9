//! The invariants of `state.rs`, as assertions.

use super::super::{Line, Phase, State};

impl<K: Eq> State<K> {
    /// Panics unless the invariants in the module docs hold.
    pub(super) fn check(&self) {
        self.check_rules();
        self.delays.check();
    }

    /// The same without those of the delays, which take longer than all the rest.
    pub(super) fn check_rules(&self) {
        self.slots.check();
        self.check_counts();
        self.check_table();
        for (_, slot) in self.slots.known() {
            self.check_key(slot);
        }
        self.check_columns();
    }

    fn count(&self, phases: &[Phase]) -> usize {
        self.slots.known().filter(|(_, slot)| phases.contains(&self.phase(*slot))).count()
    }

    fn check_counts(&self) {
        assert_eq!(self.ready, self.count(&[Phase::Ready]), "ready keys are counted");
        if let Line::Fifo(fifo) = &self.line {
            assert_eq!(fifo.len(), self.ready, "invariant 1");
        }
        let processing = self.count(&[Phase::Processing, Phase::Dirty]);
        assert_eq!(self.processing, processing, "invariant 2");
        assert_eq!(self.dirty, self.count(&[Phase::Dirty]), "dirty keys are counted");
        assert_eq!(self.tracked.len(), self.count(&[Phase::Tracked]), "invariant 4");
        assert!(self.tracked.len() <= self.max_tracked, "failures are bounded");
        let stranded = self.count(&[Phase::Stranded]);
        assert_eq!(self.stranded, stranded, "stranded keys are counted");
        assert!(self.due.is_empty(), "due keys are added in the same call");
    }

    fn check_table(&self) {
        assert_eq!(self.table.len(), self.slots.live(), "invariant 3: as many as keys");
        for (hash, slot) in self.slots.known() {
            let twin = |other: u32| self.slots.key(other) == self.slots.key(slot);
            let found = self.table.find(hash, twin);
            assert_eq!(found, Some(slot), "invariant 3");
        }
    }

    fn check_key(&self, slot: u32) {
        let (phase, delayed) = (self.phase(slot), self.delays.contains(slot));
        match phase {
            Phase::Dormant => assert!(delayed, "an idle key is known for its delay"),
            Phase::Tracked => {
                assert!(self.num_failures_at(slot) > 0 && !delayed, "invariant 4");
            }
            Phase::Ready | Phase::Dirty => {
                assert!(!(self.absorb && delayed), "invariant 5");
            }
            Phase::Processing | Phase::Stranded => {}
        }
    }

    /// Values beside the slots belong to known keys.
    fn check_columns(&self) {
        for (slot, retries) in self.failures.iter() {
            let known = self.slots.phase(slot).is_some();
            assert!(known || retries == 0, "failures of the vacant slot {slot}");
        }
        for slot in self.priorities.used() {
            let known = self.slots.phase(slot).is_some();
            assert!(known, "a priority of the vacant slot {slot}");
        }
    }
}
