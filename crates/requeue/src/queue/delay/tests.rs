use proptest::prelude::*;

use super::schedule::Schedule;
use super::{Delays, Progress, STALE_MAX, Scheduled};

/// A naive model: (deadline, order of delaying, slot).
#[derive(Clone, Default)]
struct Model {
    delayed: Vec<(u64, u64, u32)>,
    delayed_so_far: u64,
    now: u64,
}

impl Model {
    fn deadline(&self, slot: u32) -> Option<u64> {
        self.delayed.iter().find(|entry| entry.2 == slot).map(|entry| entry.0)
    }

    fn earliest(&self) -> Option<u64> {
        self.delayed.iter().map(|entry| entry.0).min()
    }

    fn insert(&mut self, slot: u32, deadline: u64) -> Scheduled {
        match self.deadline(slot) {
            Some(present) if present <= deadline => Scheduled::Kept,
            Some(_) => {
                self.replace(slot, deadline);
                Scheduled::Earlier
            }
            None => {
                self.replace(slot, deadline);
                Scheduled::New
            }
        }
    }

    fn replace(&mut self, slot: u32, deadline: u64) {
        self.remove(slot);
        self.delayed_so_far += 1;
        self.delayed.push((deadline, self.delayed_so_far, slot));
    }

    fn remove(&mut self, slot: u32) -> bool {
        let before = self.delayed.len();
        self.delayed.retain(|entry| entry.2 != slot);
        self.delayed.len() < before
    }

    /// Removes the first `count` due slots.
    fn due_first(&mut self, now: u64, count: usize) -> Vec<u32> {
        let all = self.clone().due(now);
        self.now = self.now.max(now);
        self.delayed.retain(|entry| !all[..count].contains(&entry.2));
        all[..count].to_vec()
    }

    fn due(&mut self, now: u64) -> Vec<u32> {
        self.now = self.now.max(now);
        self.delayed.sort_unstable();
        let due = self.delayed.partition_point(|entry| entry.0 <= self.now);
        self.delayed.drain(..due).map(|entry| entry.2).collect()
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Insert(u32, u64),
    Replace(u32, u64),
    Remove(u32),
    Due(u64),
    Drain,
    Shrink(usize),
}

/// The delays and the model, side by side.
#[derive(Default)]
struct Pair {
    delays: Delays,
    model: Model,
}

/// Histories run with no vector, a tiny one, and the usual one.
const FEW: [usize; 3] = [0, 1, 64];

impl Pair {
    /// Keeps up to `few` entries in a vector and more in a wheel.
    fn new(few: usize) -> Self {
        let delays = Delays { schedule: Schedule::with_few(few), ..Delays::default() };
        Self { delays, model: Model::default() }
    }

    fn step(&mut self, step: Step) {
        let Self { delays, model } = self;
        match step {
            Step::Insert(slot, deadline) => {
                assert_eq!(delays.insert(slot, deadline), model.insert(slot, deadline));
            }
            Step::Replace(slot, deadline) => {
                delays.replace(slot, deadline);
                model.replace(slot, deadline);
            }
            Step::Remove(slot) => assert_eq!(delays.remove(slot), model.remove(slot)),
            Step::Due(now) => assert_eq!(due(delays, now), model.due(now)),
            Step::Drain => {
                let mut all = Vec::new();
                delays.drain(|slot| all.push(slot));
                let now = model.now;
                assert_eq!(all, model.due(u64::MAX));
                model.now = now;
            }
            Step::Shrink(slots) => delays.shrink(slots),
        }
    }

    /// Takes some of the due slots.
    fn due_some(&mut self, now: u64, budget: usize) {
        let Self { delays, model } = self;
        let mut taken = Vec::new();
        let progress = delays.due(now, budget, |slot| taken.push(slot));
        let expected = model.due_first(now, taken.len());
        assert_eq!(taken, expected);
        let more = model.earliest().is_some_and(|earliest| earliest <= now);
        assert!(progress == Progress::More || !more, "due slots are left");
    }

    fn check(&self, slots: u32) {
        let Self { delays, model } = self;
        delays.check();
        assert_eq!(delays.len(), model.delayed.len());
        assert_eq!(delays.is_empty(), model.delayed.is_empty());
        for slot in 0..slots {
            assert_eq!(delays.deadline(slot), model.deadline(slot));
            assert_eq!(delays.contains(slot), model.deadline(slot).is_some());
        }
        assert_eq!(delays.next().is_some(), model.earliest().is_some());
        assert!(delays.next() <= model.earliest(), "next is later than the earliest");
    }
}

fn due(delays: &mut Delays, now: u64) -> Vec<u32> {
    let mut ready = Vec::new();
    while delays.due(now, 3, |slot| ready.push(slot)) == Progress::More {}
    ready
}

/// Units of time: within one tick, in neighbouring buckets, and levels apart.
const SCALES: [u64; 5] = [1, 1 << 10, 1 << 16, (1 << 22) - 1, 1 << 61];

#[test]
fn every_short_history_follows_the_model() {
    let mut steps = vec![Step::Drain];
    for slot in 0..2 {
        steps.push(Step::Remove(slot));
        for deadline in 0..3 {
            steps.push(Step::Insert(slot, deadline));
            steps.push(Step::Replace(slot, deadline));
        }
    }
    steps.extend((0..3).map(Step::Due));
    for (scale, length) in SCALES.into_iter().zip([3, 4, 3, 3, 3]) {
        for (few, history) in FEW
            .into_iter()
            .flat_map(|few| (0..steps.len().pow(length)).map(move |n| (few, n)))
        {
            let mut pair = Pair::new(few);
            for place in 0..length {
                let step = steps[history / steps.len().pow(place) % steps.len()];
                pair.step(scaled(step, scale));
            }
            pair.check(2);
        }
    }
}

/// Time jumps from any edge of a bucket to any other, with a deadline at each edge.
#[test]
fn jumps_between_any_two_levels_miss_no_deadline() {
    let edges: Vec<u64> = (7..64)
        .step_by(3)
        .flat_map(|bit| [(1 << bit) - 1, (1 << bit) + (1 << 7)])
        .collect();
    for (&start, &now) in edges.iter().flat_map(|a| edges.iter().map(move |b| (a, b))) {
        let mut pair = Pair::new(0);
        pair.step(Step::Due(start));
        for (slot, &edge) in (0..).zip(&edges) {
            pair.step(Step::Insert(slot, edge));
            pair.step(Step::Insert(slot + 100, edge));
        }
        pair.step(Step::Due(now));
        pair.check(0);
        pair.step(Step::Drain);
    }
}

fn scaled(step: Step, scale: u64) -> Step {
    match step {
        Step::Insert(slot, deadline) => Step::Insert(slot, deadline * scale),
        Step::Replace(slot, deadline) => Step::Replace(slot, deadline * scale),
        Step::Due(now) => Step::Due(now * scale),
        Step::Remove(_) | Step::Drain | Step::Shrink(_) => step,
    }
}

/// Few distinct times, so that ties are common: multiples of a scale, close together or far
/// apart.
fn time() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => (0..SCALES.len() - 1, 0..12_u64).prop_map(|(scale, n)| n * SCALES[scale]),
        2 => (0..4_u64).prop_map(|n| 1_000_000 + n),
        1 => (0..3_u64).prop_map(|n| u64::MAX - n),
        1 => (0..64_u32, 0..2_u64).prop_map(|(bit, less)| (1 << bit) - less),
    ]
}

fn step(slots: u32) -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..slots, time()).prop_map(|(slot, at)| Step::Insert(slot, at)),
        6 => (0..slots, time()).prop_map(|(slot, at)| Step::Replace(slot, at)),
        4 => (0..slots).prop_map(Step::Remove),
        6 => (0..SCALES.len() - 1, 0..12_u64).prop_map(|(scale, n)| Step::Due(n * SCALES[scale])),
        1 => (1_000_000..1_000_004_u64).prop_map(Step::Due),
        1 => (0..8_usize).prop_map(Step::Shrink),
        1 => Just(Step::Drain),
    ]
}

proptest! {
    #[test]
    fn long_histories_follow_the_model(
        steps in prop::collection::vec(step(12), 0..200),
        end in time(),
        few in prop::sample::select(&FEW),
    ) {
        let mut pair = Pair::new(few);
        for step in steps {
            pair.step(step);
            pair.check(12);
        }
        pair.step(Step::Due(end));
        pair.step(Step::Drain);
        pair.check(12);
    }

    #[test]
    fn large_buckets_are_emptied_in_order(
        deadlines in prop::collection::vec(0..3_000_000_u64, 0..1500),
        coarse in 0..22_u32,
        strides in prop::collection::vec(1..400_000_u64, 1..20),
    ) {
        let mut pair = Pair::default();
        for (slot, deadline) in (0..).zip(&deadlines) {
            pair.step(Step::Insert(slot, deadline >> coarse << coarse));
        }
        let mut now = 0;
        for stride in strides {
            now += stride;
            pair.step(Step::Due(now));
            pair.check(0);
        }
        pair.step(Step::Drain);
    }

    #[test]
    fn waiting_until_next_repeatedly_misses_no_deadline(
        steps in prop::collection::vec(step(12), 0..100),
        few in prop::sample::select(&FEW),
    ) {
        let mut pair = Pair::new(few);
        for step in steps {
            pair.step(step);
        }
        let mut calls = 0;
        while let Some(next) = pair.delays.next() {
            pair.step(Step::Due(next));
            pair.check(12);
            prop_assert!(pair.delays.next().is_none_or(|then| then > next), "stuck");
            calls += 1;
        }
        prop_assert!(pair.delays.is_empty());
        prop_assert!(calls <= 2 * 12 + STALE_MAX);
    }
}

#[test]
fn earliest_deadline_wins() {
    let mut delays = Delays::default();
    assert_eq!(delays.insert(0, 50), Scheduled::New);
    assert_eq!(delays.insert(0, 60), Scheduled::Kept);
    assert_eq!(delays.insert(0, 50), Scheduled::Kept);
    assert_eq!(delays.insert(0, 40), Scheduled::Earlier);
    assert_eq!(delays.deadline(0), Some(40));
    assert_eq!(due(&mut delays, 39), []);
    assert_eq!(due(&mut delays, 40), [0]);
    assert_eq!(due(&mut delays, 60), []);
}

#[test]
fn slot_that_returns_to_its_deadline_goes_behind_the_others() {
    let mut delays = Delays::default();
    for slot in 0..3 {
        let _new = delays.insert(slot, 7);
    }
    delays.replace(0, 9);
    delays.replace(0, 7);
    assert!(delays.remove(1));
    assert_eq!(delays.insert(1, 7), Scheduled::New);
    assert_eq!(due(&mut delays, 7), [2, 0, 1]);
}

#[test]
fn passed_deadline_is_due_at_once_and_first() {
    let mut delays = Delays::default();
    assert_eq!(due(&mut delays, 1_000_000), []);
    let _new = delays.insert(0, 1_000_000);
    let _new = delays.insert(1, 3);
    let _new = delays.insert(2, 999_999);
    assert_eq!(delays.next(), Some(3));
    assert_eq!(due(&mut delays, 0), [1, 2, 0], "time does not go back");
}

#[test]
fn deadline_at_the_end_of_time_is_reached() {
    let mut delays = Delays::default();
    let _new = delays.insert(0, u64::MAX);
    let _new = delays.insert(1, u64::MAX - 1);
    assert_eq!(delays.next(), Some(u64::MAX - 1));
    assert_eq!(due(&mut delays, u64::MAX - 2), []);
    assert_eq!(due(&mut delays, u64::MAX - 1), [1]);
    assert_eq!(due(&mut delays, u64::MAX), [0]);
    delays.check();
}

#[test]
fn drain_removes_all_and_keeps_the_time() {
    let mut delays = Delays::default();
    assert_eq!(due(&mut delays, 10), []);
    let _new = delays.insert(0, 1 << 40);
    let _new = delays.insert(1, 20);
    let mut all = Vec::new();
    delays.drain(|slot| all.push(slot));
    assert_eq!(all, [1, 0]);
    assert!(delays.is_empty());
    let _new = delays.insert(0, 30);
    assert_eq!(due(&mut delays, 29), []);
    assert_eq!(due(&mut delays, 30), [0]);
}

#[test]
fn postponing_one_slot_forever_does_not_accumulate_entries() {
    let mut delays = Delays::default();
    for slot in 0..10 {
        let _new = delays.insert(slot, 1 << 40);
    }
    let mut most = 0;
    for n in 0..100_000 {
        delays.replace(0, (1 << 40) + n * 1_000_000);
        most = most.max(delays.live + delays.stale);
    }
    delays.check();
    assert!(most <= 2 * 10 + STALE_MAX + 1, "{most} entries for ten slots");
    assert!(delays.bytes() < 2000, "{} bytes", delays.bytes());
}

#[test]
fn adding_and_removing_slots_forever_does_not_accumulate_entries() {
    let mut delays = Delays::default();
    for n in 0..100_000_u32 {
        let _new = delays.insert(n % 100, u64::from(n) << 20);
        assert_eq!(delays.remove(n.wrapping_sub(50) % 100), n >= 50);
        assert!(delays.live + delays.stale <= 2 * 51 + STALE_MAX);
    }
    delays.check();
}

#[test]
fn stale_entries_that_outlive_the_others_are_dropped() {
    let mut delays = Delays::default();
    for slot in 0..1000 {
        let _new = delays.insert(slot, 1 << 50);
    }
    for slot in 0..999 {
        assert_eq!(delays.insert(slot, 1000), Scheduled::Earlier);
    }
    assert_eq!(due(&mut delays, 1000).len(), 999);
    delays.check();
    assert!(delays.live + delays.stale <= 2 + STALE_MAX);
}

/// A stamp has 16 bits: a slot that is moved 2^15 times gets its first stamp again. With so
/// many delayed slots, its first entry would still exist.
#[test]
fn stamp_that_wraps_around_does_not_revive_an_old_entry() {
    let mut delays = Delays::default();
    let slots = 40_000;
    for slot in 0..slots {
        let _new = delays.insert(slot, 5000);
    }
    for _ in 0..(1 << 15) - 1 {
        delays.replace(0, 6000);
    }
    delays.replace(0, 5000);
    delays.check();
    let ready = due(&mut delays, 5000);
    assert_eq!(ready.len(), slots as usize);
    assert_eq!(ready.last(), Some(&0), "its newest entry counts");
    assert!(delays.is_empty());
}

#[test]
fn stamp_of_a_slot_whose_delays_end_never_wraps_around() {
    let mut delays = Delays::default();
    let _new = delays.insert(1, u64::MAX);
    for now in 0..100_000 {
        assert_eq!(delays.insert(0, now), Scheduled::New);
        assert_eq!(due(&mut delays, now), [0]);
    }
    delays.check();
}

#[test]
fn memory_is_freed_when_all_delays_have_ended() {
    let mut delays = Delays::default();
    for slot in 0..10_000 {
        let _new = delays.insert(slot, u64::from(slot) * 7919 % 1000);
    }
    assert_eq!(due(&mut delays, 1000).len(), 10_000);
    assert_eq!(delays.schedule.bytes(), 0);
}

#[test]
fn many_delayed_slots_take_few_bytes_each_and_free_them() {
    let mut delays = Delays::default();
    assert_eq!(delays.bytes(), 0);
    let slots = 200_000_u32;
    for slot in 0..slots {
        let deadline = u64::from(slot.wrapping_mul(2_654_435_769)) * 2;
        let _new = delays.insert(slot, deadline);
    }
    let each = delays.bytes() / slots as usize;
    assert!(each <= 30, "{each} bytes a slot: 10 for the slot and 16 for its entry");
    assert_eq!(due(&mut delays, u64::MAX / 2).len(), slots as usize);
    delays.shrink(0);
    delays.check();
    assert_eq!(delays.bytes(), 0);
}

#[test]
fn shrinking_keeps_delayed_slots() {
    let mut delays = Delays::default();
    for slot in 0..1000 {
        let _new = delays.insert(slot, u64::from(slot) << 12);
    }
    assert_eq!(due(&mut delays, 99 << 12).len(), 100);
    (300..1000).for_each(|slot| assert!(delays.remove(slot)));
    delays.shrink(50);
    delays.check();
    assert!(delays.bytes() < 300 * 10 + 200 * 16 + 3 * 64 * 64, "{}", delays.bytes());
    assert_eq!(delays.insert(900, 100 << 12), Scheduled::New);
    assert_eq!(due(&mut delays, 100 << 12), [100, 900]);
}

/// A million keys that were due at once once held the lock for 69 ms.
#[test]
fn work_of_one_call_is_bounded_by_its_budget() {
    let (mut delays, total) = (Delays::default(), 50_000_u64);
    // Unsorted, over 50 ms: large buckets are spread over lower levels first.
    for slot in 0..total {
        let deadline = 1_000_000 + slot * 7919 % total * 1000;
        delays.replace(u32::try_from(slot).unwrap(), deadline);
    }
    let (mut calls, mut due) = (0, Vec::new());
    loop {
        let before = due.len();
        let progress = delays.due(u64::MAX / 2, 100, |slot| due.push(slot));
        calls += 1;
        assert!(due.len() - before <= 100 + 256, "a budget and a chunk");
        if progress == Progress::Done {
            break;
        }
    }
    delays.check();
    assert!(calls > 400, "{calls} calls");
    let rank = |slot: &u32| u64::from(*slot) * 7919 % total;
    assert!(due.iter().map(rank).eq(0..total));
}

/// Entries pushed while a bucket is being emptied go behind older ones with the same
/// deadline, and are not delivered early.
#[test]
fn delays_that_start_between_two_steps_keep_their_order() {
    for (seed, scale) in (1..).zip(SCALES.into_iter().take(4).cycle().take(40)) {
        let mut pair = Pair::default();
        let mut random = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed);
        let mut next = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let slot = |number: u64| u32::try_from(number).unwrap();
        let mut now = 0;
        for slot in 0..3000 {
            pair.step(Step::Replace(slot, next(50) * scale));
        }
        for _ in 0..300 {
            now += next(2) * scale;
            pair.due_some(now, 1 + usize::try_from(next(200)).unwrap());
            for _ in 0..next(40) {
                let slot = slot(next(3000));
                pair.step(Step::Replace(slot, now + 1 + next(30) * scale));
            }
            pair.step(Step::Remove(slot(next(3000))));
            if next(50) == 0 {
                pair.step(Step::Shrink(0));
            }
        }
        pair.check(3000);
        pair.step(Step::Drain);
        pair.check(3000);
    }
}
