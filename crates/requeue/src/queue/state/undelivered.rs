//! The keys that a closed queue returns.
//!
//! Ready keys move out of their slots. A leased key stays in its slot, so its copy is a
//! clone. If that panics, the key keeps what is pending for it: a dirty key is delivered
//! when its lease ends, and a delayed one is found by the next call.

use super::State;
use crate::contain::contain;
use crate::queue::slots::Phase;

impl<K: Clone> State<K> {
    /// Takes all keys that were not delivered: ready ones in their order, dirty ones,
    /// delayed ones by deadline, stranded ones; each once.
    pub(in crate::queue) fn take_undelivered(&mut self) -> Vec<K> {
        let room = self.ready + self.dirty + self.delays.len() + self.stranded;
        let mut keys = Vec::with_capacity(room);
        self.take_ready(&mut keys);
        self.take_dirty(&mut keys);
        self.take_delayed(&mut keys);
        self.take_stranded(&mut keys);
        keys
    }

    /// Returns the keys that are leased. A key whose `Clone` panics is left out.
    pub(in crate::queue) fn leased_keys(&mut self) -> Vec<K> {
        let slots = self.slots.known().map(|(_, slot)| slot);
        let leased: Vec<_> = slots.filter(|slot| self.phase(*slot).is_leased()).collect();
        leased.into_iter().filter_map(|slot| self.clone_key(slot)).collect()
    }

    fn take_ready(&mut self, keys: &mut Vec<K>) {
        while let Some(Some(slot)) = contain(|| self.pop()) {
            keys.push(self.take_one_ready(slot));
        }
        // An order that panics or withholds keys does not keep them from the caller.
        for slot in self.slots_in(Phase::Ready, self.ready) {
            if contain(|| self.line.remove(slot, self.slots.key(slot))).is_none() {
                self.note_panic();
            }
            keys.push(self.take_one_ready(slot));
        }
    }

    fn take_one_ready(&mut self, slot: u32) -> K {
        self.ready -= 1;
        self.delays.remove(slot);
        self.vacate(slot)
    }

    fn take_dirty(&mut self, keys: &mut Vec<K>) {
        for slot in self.slots_in(Phase::Dirty, self.dirty) {
            if let Some(key) = self.clone_key(slot) {
                self.cancel(slot);
                keys.push(key);
            }
        }
    }

    fn take_delayed(&mut self, keys: &mut Vec<K>) {
        let mut slots = Vec::with_capacity(self.delays.len());
        self.delays.drain(|slot| slots.push(slot));
        for slot in slots {
            if !self.phase(slot).is_leased() {
                self.unstrand(slot);
                keys.push(self.vacate(slot));
            } else if let Some(key) = self.clone_key(slot) {
                self.priorities.take_delayed(slot);
                keys.push(key);
            } else {
                self.delays.replace(slot, self.latest());
            }
        }
    }

    fn take_stranded(&mut self, keys: &mut Vec<K>) {
        for slot in self.slots_in(Phase::Stranded, self.stranded) {
            self.unstrand(slot);
            keys.push(self.vacate(slot));
        }
    }

    fn clone_key(&mut self, slot: u32) -> Option<K> {
        let key = contain(|| self.slots.key(slot).clone());
        if key.is_none() {
            self.note_panic();
        }
        key
    }

    /// The slots in a phase, of which there are `count`.
    fn slots_in(&self, phase: Phase, count: usize) -> Vec<u32> {
        if count == 0 {
            return Vec::new();
        }
        let slots = self.slots.known().map(|(_, slot)| slot);
        slots.filter(|slot| self.phase(*slot) == phase).collect()
    }
}
