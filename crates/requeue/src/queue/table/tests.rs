use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

impl Table {
    /// Panics unless the invariants in the module docs hold.
    fn check(&self) {
        assert_eq!(self.taken(), self.len, "the count");
        assert_eq!(self.room, room(self.words.len()), "the room");
        self.check_reach();
    }

    /// Panics unless invariants 1 and 2 hold.
    fn check_reach(&self) {
        let words = &self.words;
        assert!(words.is_empty() || words.contains(&Word::EMPTY), "invariant 1");
        for (index, word) in words.iter().enumerate().filter(|(_, word)| !word.is_empty())
        {
            let mut passed = self.home(word.hash());
            while passed != index {
                assert!(!words[passed].is_empty(), "invariant 2");
                passed = self.after(passed);
            }
        }
    }

    fn taken(&self) -> usize {
        self.words.iter().filter(|word| **word != Word::EMPTY).count()
    }

    pub(in crate::queue) fn len(&self) -> usize {
        self.len
    }

    fn enter(&mut self, hash: u32, slot: u32) {
        let Err(gap) = self.search(hash, |_| None::<()>) else { unreachable!() };
        self.insert(gap, slot);
    }

    fn has(&self, hash: u32, slot: u32) -> bool {
        self.find(hash, |found| found == slot).is_some()
    }
}

/// Hashes that crowd both ends, so that entries are pushed past the end of the vector.
fn hash() -> impl Strategy<Value = u32> {
    prop_oneof![
        (0..4u32).prop_map(|low| u32::MAX - low),
        0..4u32,
        any::<u32>(),
        Just(u32::MAX / 2)
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u32),
    Remove(prop::sample::Index),
    Shrink(usize),
    Reserve(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => hash().prop_map(Step::Insert),
        3 => any::<prop::sample::Index>().prop_map(Step::Remove),
        1 => (0..40usize).prop_map(Step::Shrink),
        1 => (0..40usize).prop_map(Step::Reserve),
    ]
}

proptest! {
    /// Two entries once went to one place when a table grew: one that stood out of order had
    /// filled the gap that told where a run of entries began.
    #[test]
    fn table_that_grows_keeps_all_entries_within_reach(
        hashes in prop::collection::vec(hash(), 0..200), more in 1..200usize, free in 1..50usize
    ) {
        let words = vec![Word::EMPTY; hashes.len() + free];
        let mut table = Table { words, len: hashes.len(), room: 0 };
        let entries: Vec<_> =
            (0..).zip(&hashes).map(|(slot, hash)| Word::new(*hash, slot)).collect();
        for entry in &entries {
            table.put(*entry);
        }
        table.grow(table.words.len() + more);
        table.check_reach();
        let mut kept: Vec<_> = table.words.into_iter().filter(|word| !word.is_empty()).collect();
        kept.sort_by_key(|word| word.slot());
        prop_assert!(kept == entries);
    }

    #[test]
    fn table_finds_what_is_in_it_and_nothing_else(
        steps in prop::collection::vec(step(), 0..200)
    ) {
        let mut table = Table::default();
        let mut model = HashMap::new();
        for (slot, step) in (0..).zip(steps) {
            match step {
                Step::Insert(hash) => {
                    table.enter(hash, slot);
                    model.insert(slot, hash);
                }
                Step::Remove(which) if !model.is_empty() => {
                    let mut slots: Vec<_> = model.keys().copied().collect();
                    slots.sort_unstable();
                    let slot = *which.get(&slots);
                    let hash = model.remove(&slot).unwrap();
                    table.remove(hash, slot);
                    prop_assert!(!table.has(hash, slot));
                }
                Step::Remove(_) => {}
                Step::Shrink(keys) => {
                    let known = model.iter().map(|(slot, hash)| (*hash, *slot));
                    table.shrink_to(keys.max(model.len()), known);
                }
                Step::Reserve(keys) => table.reserve(keys),
            }
            table.check();
            prop_assert_eq!(table.len, model.len());
            for (slot, hash) in &model {
                prop_assert!(table.has(*hash, *slot));
            }
        }
    }
}

#[test]
fn table_that_grows_large_keeps_all_words_within_reach() {
    let mut table = Table::default();
    let hash = |slot: u32| slot.wrapping_mul(slot).wrapping_mul(0x9E37_79B9);
    (0..200_000).for_each(|slot| table.enter(hash(slot), slot));
    table.check();
    assert!((0..200_000).all(|slot| table.has(hash(slot), slot)));
}

/// Hashes of which some come twice, each for the slot of its place.
fn hashes(count: u32) -> impl Iterator<Item = (u32, u32)> {
    (0..count).map(|slot| ((slot / 3 * 2).wrapping_mul(0x9E37_79B9), slot))
}

fn large_table(count: u32) -> Table {
    let mut table = Table::default();
    table.reserve(SMALL);
    hashes(count).for_each(|(hash, slot)| table.enter(hash, slot));
    assert!(table.words.len() >= SMALL);
    table
}

#[test]
fn table_that_shrinks_holds_the_slots_that_are_known() {
    let mut table = large_table(1000);
    hashes(900).for_each(|(hash, slot)| table.remove(hash, slot));
    table.check();
    assert_eq!(table.len(), 100);
    table.shrink_to(100, hashes(1000).skip(900));
    table.check();
    assert_eq!(table.len, 100);
    assert!(hashes(1000).all(|(hash, slot)| table.has(hash, slot) == (slot >= 900)));
}

/// A key that came and went once left a word behind each time. A hot key among fresh ones
/// had to pass ever more of them: its cycle grew from 53 to 461 µs over 20,000 returns.
#[test]
fn key_that_comes_and_goes_leaves_nothing_behind() {
    let mut table = large_table(10);
    for slot in 10..200 {
        table.enter(7, slot);
        assert_eq!(table.taken(), 11);
        table.remove(7, slot);
        assert_eq!(table.taken(), 10);
    }
    table.check();
}

#[test]
fn empty_table_has_no_memory_and_finds_nothing() {
    let table = Table::default();
    assert_eq!(table.words.capacity(), 0);
    assert_eq!(table.find(7, |_| true), None);
}

#[test]
fn keys_of_one_hash_are_told_apart() {
    let mut table = Table::default();
    (0..100).for_each(|slot| table.enter(42, slot));
    table.check();
    assert!((0..100).all(|slot| table.has(42, slot)));
    (0..100).step_by(2).for_each(|slot| table.remove(42, slot));
    table.check();
    assert!((0..100).all(|slot| table.has(42, slot) == (slot % 2 == 1)));
}

#[test]
fn room_that_was_reserved_is_enough() {
    for keys in [1, 5, 8, 100, 1023, 1024, 2048, 32_767, 32_768, 99_999] {
        let mut table = Table::default();
        table.reserve(keys);
        let size = table.words.len();
        for slot in 0..u32::try_from(keys).unwrap() {
            table.enter(slot.wrapping_mul(0x9E37_79B9), slot);
        }
        assert_eq!(table.words.len(), size, "{keys} keys");
    }
}

#[test]
fn room_that_no_memory_can_hold_is_not_made() {
    let mut table = Table::default();
    table.reserve(usize::MAX);
    table.enter(1, 1);
    assert!(table.has(1, 1));
}
