use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::probing::tests::check;

impl<K, V> Table<K, V> {
    pub(in crate::retry) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Option<Slot<K, V>>>()
    }

    /// Panics unless the invariants in the module docs hold.
    fn check(&self) {
        assert_eq!(self.iter().count(), self.len, "the count");
        check(&self.slots);
    }
}

const TICK: Tick = Tick::MIN;

/// The first and the last hash there are, and `spread` others.
fn hash(key: u32, spread: u32) -> Hash24 {
    let last = (1 << HASH_BITS) - 1;
    match key % (spread + 2) {
        0 => Hash24(0),
        1 => Hash24(last),
        other => Hash24(other * (last / (spread + 2))),
    }
}

proptest! {
    #[test]
    fn table_is_a_map_whatever_the_hashes(
        ops in proptest::collection::vec((0..300_u32, 0..3_u8), 0..800),
        spread in prop_oneof![0..8_u32, 0..1000_u32],
        max in prop_oneof![Just(300), Just(usize::MAX), 0..400_usize],
    ) {
        let (mut table, mut model) = (Table::new(), HashMap::new());
        for (key, op) in ops {
            let hash = hash(key, spread);
            if op == 0 {
                let removed = table.remove(hash, &key).map(|slot| slot.value);
                prop_assert_eq!(removed, model.remove(&key));
                table.shrink();
            } else {
                table.make_room(max);
                table.entry(hash, &key, TICK).value += 1;
                *model.entry(key).or_insert(0) += 1;
            }
            table.check();
            prop_assert_eq!(table.find(hash, &key).map(|slot| slot.value), model.get(&key).copied());
        }
        let left: HashMap<_, u32> = table.iter().map(|slot| (slot.key, slot.value)).collect();
        prop_assert_eq!(left.len(), table.len());
        prop_assert_eq!(left, model);
    }

    #[test]
    fn walk_takes_out_the_first_of_all_slots_it_meets(
        keys in proptest::collection::btree_set(0..100_u32, 1..60),
        spread in 0..100_u32,
    ) {
        let mut table = Table::<_, ()>::new();
        for key in &keys {
            table.make_room(usize::MAX);
            table.entry(hash(*key, spread), key, TICK);
        }
        for key in keys {
            let taken = table.take_first_of(usize::MAX, |slot| slot.key);
            prop_assert_eq!(taken.map(|slot| slot.key), Some(key));
            table.check();
        }
        prop_assert!(table.take_first_of(1, |slot| slot.key).is_none());
    }
}

#[test]
fn walk_of_few_steps_comes_around() {
    let mut table = Table::<u32, ()>::new();
    for key in 0..100 {
        table.make_room(usize::MAX);
        table.entry(hash(key, 98), &key, TICK);
    }
    let taken = (0..100).filter(|_| table.take_first_of(8, |slot| slot.key).is_some());
    assert_eq!(taken.count(), 100);
}

/// A table that was full once had room for half as many keys again.
#[test]
fn table_grows_to_what_its_keys_need_and_no_further() {
    for max in [0, 1, 5, 64, 1000, 1 << 20] {
        let sizes = std::iter::successors(Some(0), |size| Some(larger(*size, max)));
        let sizes: Vec<_> = sizes.take_while(|size| room(*size) <= max).collect();
        let last = larger(*sizes.last().unwrap(), max);
        assert!(room(last) > max && last <= max / 5 * 8 + 8, "{last} for {max} keys");
        let steps = sizes.windows(2).skip(1);
        assert!(steps.clone().all(|size| size[1] <= size[0] / 2 * 3 + 6), "{sizes:?}");
        assert!(steps.clone().all(|size| size[1] >= size[0] + size[0] / 3), "{sizes:?}");
    }
}

#[test]
fn slot_of_a_number_and_a_count_takes_sixteen_bytes() {
    assert_eq!(size_of::<Option<Slot<u64, u32>>>(), 16);
}

#[test]
fn mark_keeps_hash_and_tick_apart() {
    let hash = Hash24::of(u64::MAX);
    for tick in [Tick::MIN, Tick::MAX] {
        let mut slot = Slot { key: 0, value: 0, mark: Mark::new(hash, tick) };
        assert_eq!((slot.hash(), slot.tick()), (hash, tick.get()));
        slot.set_tick(TICK);
        assert_eq!((slot.hash(), slot.tick()), (hash, TICK.get()));
    }
}

#[test]
fn table_of_no_size_has_no_keys() {
    let mut table = Table::<u32, u32>::new();
    assert!(table.find(Hash24(7), &1).is_none());
    assert!(table.remove(Hash24(7), &1).is_none());
    assert!(table.take_first_of(8, Slot::tick).is_none());
}
