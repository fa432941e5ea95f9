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
fn order_of_few_keys_is_kept_however_often_others_fail() {
    let failures = Failures::<u32>::new().max_tracked(5);
    for key in 0..5 {
        failures.count(&key);
    }
    // Each of these is a tick, and their numbers run out several times.
    for _ in 0..1000 {
        failures.count(&4);
    }
    for pushed_out in 0..4 {
        failures.count(&(5 + pushed_out));
        assert_eq!(failures.get(&pushed_out), 0);
        assert_eq!(failures.len(), 5);
    }
    assert_eq!(failures.get(&4), 1001);
}

#[test]
fn keys_of_more_ticks_than_there_are_numbers_leave_in_order_as_far_as_those_go() {
    let failures = Failures::<u32>::new();
    let mut tracked = failures.lock();
    for key in 0..1000 {
        let tick = tracked.tick(0);
        tracked.table.make_room(1000);
        tracked.table.entry(failures.hash(&key), &key, tick);
    }
    let mut ticks: Vec<_> =
        tracked.table.iter().map(|slot| (slot.key, slot.tick())).collect();
    ticks.sort_unstable();
    assert!(ticks.windows(2).all(|pair| pair[0].1 <= pair[1].1));
    let newest = &ticks[1000 - 126..];
    assert!(newest.windows(2).all(|pair| pair[0].1 < pair[1].1));
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
    static CALLS_UNTIL_PANIC: Cell<u32> = const { Cell::new(u32::MAX) };
}

/// A key of which any call panics once so many have been made.
#[derive(Debug)]
struct Fragile(u32);

impl Fragile {
    fn call(&self) -> u32 {
        let left = CALLS_UNTIL_PANIC.get();
        assert!(left > 0, "this call panics, as the test wants");
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
