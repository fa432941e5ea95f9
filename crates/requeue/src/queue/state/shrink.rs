//! Freeing memory after a spike of keys.

use super::State;
use crate::contain::contain;
use crate::queue::slots::MIN_KEPT;

impl<K> State<K> {
    /// Frees memory when few of many keys are left. The cost is amortized over the keys that
    /// were forgotten since the last time.
    #[inline]
    pub(super) fn shrink_after_spike(&mut self) {
        let bound = self.slots.bound();
        let few = self.slots.live() == 0
            || (self.slots.live() * 8 < bound && self.forgotten >= bound);
        if bound > MIN_KEPT && few {
            self.shrink();
        }
    }

    #[cold]
    fn shrink(&mut self) {
        self.forgotten = 0;
        self.slots.shrink();
        let bound = self.slots.bound();
        self.table.shrink_to(self.slots.live().max(MIN_KEPT), self.slots.known());
        // The order may be the user's: a panic must not stop the rest.
        if contain(|| self.line.shrink()).is_none() {
            self.note_panic();
        }
        self.delays.shrink(bound);
        self.failures.shrink(bound);
        self.priorities.shrink(bound);
        if let Some(timing) = &mut self.timing {
            timing.shrink(bound);
        }
    }
}
