//! The keys that a closed queue hands back.

use super::State;
use crate::queue::slots::Phase;

impl<K: Clone> State<K> {
    /// Takes all keys that were not delivered: ready ones in their order, dirty ones,
    /// delayed ones in the order of their deadlines; each once.
    pub(in crate::queue) fn take_undelivered(&mut self) -> Vec<K> {
        let mut keys = Vec::with_capacity(self.ready + self.dirty + self.delays.len());
        while let Some(slot) = self.pop() {
            self.ready -= 1;
            self.slots.set_phase(slot, Phase::Idle);
            self.delays.remove(slot);
            keys.push(self.surrender(slot));
        }
        self.take_dirty(&mut keys);
        keys.append(&mut self.take_delayed());
        keys
    }

    fn take_dirty(&mut self, keys: &mut Vec<K>) {
        let bound = u32::try_from(self.slots.bound()).expect("vacancy() bounds it");
        for slot in 0..bound {
            if self.slots.phase(slot) == Some(Phase::Dirty) {
                self.unplan(slot);
                keys.push(self.slots.key(slot).clone());
            }
        }
    }

    /// Takes all delayed keys, in the order of their deadlines.
    pub(in crate::queue) fn take_delayed(&mut self) -> Vec<K> {
        let mut slots = Vec::with_capacity(self.delays.len());
        self.delays.drain(|slot| slots.push(slot));
        slots.into_iter().map(|slot| self.surrender(slot)).collect()
    }

    /// The key of a slot that is not delayed any more: moved out if nothing else is known
    /// of it. Its failures are forgotten, since the queue is closed.
    fn surrender(&mut self, slot: u32) -> K {
        if self.phase(slot) == Phase::Idle {
            return self.vacate(slot);
        }
        if !matches!(self.phase(slot), Phase::Ready | Phase::Dirty) {
            self.lower(slot);
        }
        self.slots.key(slot).clone()
    }
}
