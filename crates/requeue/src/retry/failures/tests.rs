use std::cell::Cell;
use std::collections::HashMap;
use std::hash::Hasher;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use proptest::prelude::*;

use super::*;

fn tracked<K: Clone + Eq + Hash>(failures: &Failures<K>) -> HashMap<K, u32> {
    let map = failures.lock();
    let all: HashMap<_, _> = map.young.iter().chain(&map.old).cloned().collect();
    assert_eq!(all.len(), map.young.len() + map.old.len(), "invariant 1: each key once");
    assert!(map.young.len() < failures.generation, "invariant 1: the bound");
    assert!(map.old.len() <= failures.generation, "invariant 1: the bound");
    all
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Fail(u16),
    Forget(u16),
}

fn ops(keys: u16) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        3 => (0..keys).prop_map(Op::Fail),
        2 => (0..keys).prop_map(Op::Forget),
    ];
    proptest::collection::vec(op, 0..600)
}

proptest! {
    #[test]
    fn map_with_room_counts_every_key(ops in ops(200)) {
        let failures = Failures::<u16>::new();
        let mut model = HashMap::new();
        for op in ops {
            match op {
                Op::Fail(key) => {
                    let count = model.entry(key).or_insert(0);
                    prop_assert_eq!(failures.count(&key), *count);
                    *count += 1;
                }
                Op::Forget(key) => {
                    failures.forget(&key);
                    model.remove(&key);
                }
            }
        }
        prop_assert_eq!(tracked(&failures), model);
    }

    #[test]
    fn full_map_keeps_the_count_of_every_key_it_still_has(
        ops in ops(60),
        max in 0..40_usize,
    ) {
        let failures = Failures::<u16>::new().max_tracked(max);
        let mut model = HashMap::new();
        for op in ops {
            match op {
                Op::Fail(key) => {
                    model.insert(key, failures.count(&key) + 1);
                    prop_assert_eq!(failures.get(&key), model[&key]);
                }
                Op::Forget(key) => {
                    failures.forget(&key);
                    prop_assert_eq!(failures.get(&key), 0);
                }
            }
            prop_assert!(failures.len() <= max.max(2));
            for (key, count) in tracked(&failures) {
                prop_assert_eq!(count, model[&key]);
            }
        }
    }
}

#[test]
fn full_map_drops_the_keys_that_failed_longest_ago() {
    let failures = Failures::<u32>::new().max_tracked(1000);
    for key in 0..2000 {
        failures.count(&key);
    }
    let left = tracked(&failures);
    assert!((500..=1000).contains(&left.len()));
    assert!((1500..2000).all(|key| left.contains_key(&key)));
}

#[test]
fn key_that_keeps_failing_is_not_dropped() {
    let failures = Failures::<u32>::new().max_tracked(100);
    for key in 1..5000 {
        assert_eq!(failures.count(&0), key - 1);
        failures.count(&key);
    }
}

#[test]
fn count_stops_at_its_maximum() {
    let failures = Failures::<u32>::new();
    failures.fail(&1, |count| *count = u32::MAX);
    assert_eq!(failures.count(&1), u32::MAX);
    assert_eq!(failures.get(&1), u32::MAX);
}

fn bytes<K, V>(failures: &Failures<K, V>) -> usize {
    let map = failures.lock();
    map.young.allocation_size() + map.old.allocation_size()
}

#[test]
fn memory_is_at_most_forty_bytes_per_key_at_any_size() {
    let failures = Failures::<u64>::new().max_tracked(1 << 17);
    for key in 0..(1 << 17) {
        failures.count(&key);
        let (keys, bytes) = (failures.len(), bytes(&failures));
        assert!(keys < 100 || bytes <= keys * 40, "{bytes} bytes for {keys} keys");
    }
}

#[test]
fn memory_is_freed_after_a_spike() {
    let failures = Failures::<u64>::new();
    for key in 0..100_000 {
        failures.count(&key);
    }
    for key in 0..99_990 {
        failures.forget(&key);
    }
    let bytes = bytes(&failures);
    assert!(bytes <= 64 * 24, "{bytes} bytes for 10 keys");
    assert_eq!(tracked(&failures), (99_990..100_000).map(|key| (key, 1)).collect());
}

thread_local! {
    static CALLS_UNTIL_PANIC: Cell<u32> = const { Cell::new(u32::MAX) };
}

/// A key that panics after a number of calls of any of its methods.
#[derive(Debug)]
struct Fragile(u32);

impl Fragile {
    fn call(&self) -> u32 {
        let left = CALLS_UNTIL_PANIC.get();
        assert!(left > 0, "this call panics on purpose");
        CALLS_UNTIL_PANIC.set(left - 1);
        self.0
    }
}

impl Hash for Fragile {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(self.call());
    }
}

impl Clone for Fragile {
    fn clone(&self) -> Self {
        Self(self.call())
    }
}

impl PartialEq for Fragile {
    fn eq(&self, other: &Self) -> bool {
        self.call() == other.0
    }
}

impl Eq for Fragile {}

/// No key is forgotten in between, so the map grows into new memory and keeps all keys.
#[test]
fn panicking_hash_eq_or_clone_leaves_every_key_in_place() {
    let failures = Failures::<Fragile>::new();
    let mut panics = 0;
    for (round, key) in (0..400).map(|call| (call / 200, call % 200)) {
        for calls in 0.. {
            CALLS_UNTIL_PANIC.set(calls);
            let outcome =
                catch_unwind(AssertUnwindSafe(|| failures.count(&Fragile(key))));
            CALLS_UNTIL_PANIC.set(u32::MAX);
            if outcome.is_ok() {
                break;
            }
            panics += 1;
            assert_eq!(failures.get(&Fragile(key)), round);
        }
        assert!((0..=key).all(|key| failures.get(&Fragile(key)) == round + 1));
    }
    // For each key its hash and clone, or its hash and comparison.
    assert!(panics >= 800, "only {panics} calls panicked");
}

/// A key that calls its map when it is dropped.
#[derive(Clone)]
struct Reentrant(u32, Arc<OnceLock<Failures<Reentrant>>>);

impl PartialEq for Reentrant {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Reentrant {}

impl Hash for Reentrant {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(self.0);
    }
}

impl Drop for Reentrant {
    fn drop(&mut self) {
        if let Some(failures) = self.1.get() {
            assert!(failures.len() <= 2);
        }
    }
}

#[test]
fn key_that_calls_the_map_from_its_drop_does_not_deadlock() {
    let home = Arc::new(OnceLock::new());
    assert!(home.set(Failures::new().max_tracked(2)).is_ok());
    let failures = home.get().unwrap();
    for key in 1..5 {
        failures.count(&Reentrant(key, Arc::clone(&home)));
    }
    failures.forget(&Reentrant(4, Arc::clone(&home)));
    assert_eq!(failures.len(), 0);
}
