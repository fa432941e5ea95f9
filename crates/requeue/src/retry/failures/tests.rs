use std::cell::Cell;
use std::collections::HashMap;
use std::hash::Hasher;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use proptest::prelude::*;

use super::*;

fn tracked<K: Clone + Eq + Hash>(failures: &Failures<K>) -> HashMap<K, u32> {
    let tracked = failures.lock();
    let all: HashMap<_, _> =
        tracked.table.iter().map(|slot| (slot.key.clone(), slot.value)).collect();
    assert_eq!(all.len(), tracked.table.len(), "invariant 1: each key once");
    assert!(all.len() <= failures.max, "invariant 1: the bound");
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
    fn table_without_pressure_is_a_map_of_counts(ops in ops(200)) {
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
    fn bounded_table_keeps_the_count_of_every_key_it_still_has(
        ops in ops(60),
        max in 0..40_usize,
    ) {
        let failures = Failures::<u16>::new().max_tracked(max);
        let mut model = HashMap::new();
        for op in ops {
            match op {
                Op::Fail(key) => {
                    model.insert(key, failures.count(&key) + 1);
                    prop_assert!(max == 0 || failures.get(&key) == model[&key]);
                }
                Op::Forget(key) => {
                    failures.forget(&key);
                    prop_assert_eq!(failures.get(&key), 0);
                }
            }
            for (key, count) in tracked(&failures) {
                prop_assert_eq!(count, model[&key]);
            }
        }
    }

    #[test]
    fn up_to_eight_keys_are_pushed_out_in_the_exact_order_of_their_failures(
        keys in proptest::collection::vec(0..20_u16, 0..200),
        max in 1..=7_usize,
    ) {
        let failures = Failures::<u16>::new().max_tracked(max);
        let mut recent = Vec::new();
        for key in keys {
            failures.count(&key);
            recent.retain(|&other| other != key);
            recent.push(key);
            recent.drain(..recent.len().saturating_sub(max));
            let mut left: Vec<_> = tracked(&failures).into_keys().collect();
            let mut expected = recent.clone();
            left.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(left, expected);
        }
    }
}

#[test]
fn full_table_pushes_out_keys_that_failed_long_ago() {
    let failures = Failures::<u32>::new().max_tracked(1000);
    for key in 0..2000 {
        failures.count(&key);
    }
    let left = tracked(&failures);
    assert_eq!(left.len(), 1000);
    // Chance would keep half of them.
    let newest = left.keys().filter(|&&key| key >= 1500).count();
    assert!(newest >= 490, "{newest} of the 500 newest are left");
}

#[test]
fn key_that_keeps_failing_is_not_pushed_out() {
    let failures = Failures::<u32>::new().max_tracked(100);
    for key in 1..5000 {
        assert_eq!(failures.count(&0), key - 1);
        failures.count(&key);
    }
}

#[test]
fn counter_of_failures_wraps_without_harm() {
    let failures = Failures::<u32>::new().max_tracked(4);
    failures.lock().failures = u32::MAX - 3;
    for key in 0..8 {
        failures.count(&key);
    }
    let mut left: Vec<_> = tracked(&failures).into_keys().collect();
    left.sort_unstable();
    assert_eq!(left, [4, 5, 6, 7]);
}

#[test]
fn count_stops_at_its_maximum() {
    let failures = Failures::<u32>::new();
    failures.fail(&1, |count| *count = u32::MAX);
    assert_eq!(failures.count(&1), u32::MAX);
    assert_eq!(failures.get(&1), u32::MAX);
}

#[test]
fn bound_of_zero_tracks_nothing() {
    let failures = Failures::<u32>::new().max_tracked(0);
    assert_eq!(failures.count(&1), 0);
    assert_eq!(failures.count(&1), 0);
    assert_eq!(failures.len(), 0);
}

#[test]
fn memory_is_at_most_forty_bytes_a_key_at_any_size_while_growing() {
    let failures = Failures::<u64>::new();
    for key in 0..(1 << 17) {
        failures.count(&key);
        let keys = failures.len();
        let bytes = failures.lock().table.bytes();
        assert!(keys < 100 || bytes <= keys * 40, "{bytes} bytes for {keys} keys");
    }
}

#[test]
fn memory_is_given_back_after_a_spike() {
    let failures = Failures::<u64>::new();
    for key in 0..100_000 {
        failures.count(&key);
    }
    for key in 0..99_990 {
        failures.forget(&key);
    }
    let bytes = failures.lock().table.bytes();
    assert!(bytes <= 64 * 24, "{bytes} bytes for 10 keys");
    assert_eq!(tracked(&failures), (99_990..100_000).map(|key| (key, 1)).collect());
}

thread_local! {
    static HASHES_UNTIL_PANIC: Cell<u32> = const { Cell::new(u32::MAX) };
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Fragile(u32);

impl Hash for Fragile {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let left = HASHES_UNTIL_PANIC.get();
        assert!(left > 0, "this hash panics, as the test wants");
        HASHES_UNTIL_PANIC.set(left - 1);
        state.write_u32(self.0);
    }
}

#[test]
fn panicking_hash_leaves_every_key_in_place() {
    let failures = Failures::<Fragile>::new();
    let mut panics = 0;
    for key in 0..500 {
        // The first hash is the key's own; the others are those of a rehash.
        HASHES_UNTIL_PANIC.set(1 + key / 2);
        let outcome = catch_unwind(AssertUnwindSafe(|| failures.count(&Fragile(key))));
        HASHES_UNTIL_PANIC.set(u32::MAX);
        if outcome.is_err() {
            panics += 1;
            assert_eq!(failures.len(), key as usize);
            failures.count(&Fragile(key));
        }
        assert!((0..=key).all(|key| failures.get(&Fragile(key)) == 1));
    }
    assert!(panics > 3, "the table grew {panics} times with a panic");
}

#[derive(Clone)]
struct Nosy(u32, Arc<OnceLock<Failures<Nosy>>>);

impl PartialEq for Nosy {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Nosy {}

impl Hash for Nosy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(self.0);
    }
}

impl Drop for Nosy {
    fn drop(&mut self) {
        if let Some(failures) = self.1.get() {
            assert!(failures.len() <= 1);
        }
    }
}

#[test]
fn key_that_calls_the_table_from_its_drop_does_not_deadlock() {
    let home = Arc::new(OnceLock::new());
    assert!(home.set(Failures::new().max_tracked(1)).is_ok());
    let failures = home.get().unwrap();
    failures.count(&Nosy(1, Arc::clone(&home)));
    failures.count(&Nosy(2, Arc::clone(&home)));
    failures.forget(&Nosy(2, Arc::clone(&home)));
    assert_eq!(failures.len(), 0);
}
