//! What a queue tells its recorder: every event, and how long keys waited and were worked
//! on; of some keys only, if they come very fast.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use requeue::metrics::{Gauges, Metrics, Probe, Recorder};
use requeue::{Added, Clock, Finish, Lease, Queue, SystemClock};

use crate::helpers::{ms, secs};

/// Goes on by a step with each reading, and counts them.
#[derive(Clone)]
struct Ticking(Arc<Ticks>);

struct Ticks {
    start: Instant,
    nanos: AtomicU64,
    step: Duration,
    readings: AtomicU64,
}

impl Ticking {
    fn new(step: Duration) -> Self {
        let (start, readings) = (SystemClock.now(), AtomicU64::new(0));
        Self(Arc::new(Ticks { start, nanos: AtomicU64::new(0), step, readings }))
    }

    fn advance(&self, step: Duration) -> u64 {
        let nanos = u64::try_from(step.as_nanos()).expect("a few years at most");
        self.0.nanos.fetch_add(nanos, Ordering::SeqCst)
    }

    /// How often it was read since the last call.
    fn readings(&self) -> u64 {
        self.0.readings.swap(0, Ordering::SeqCst)
    }
}

impl Clock for Ticking {
    fn now(&self) -> Instant {
        self.0.readings.fetch_add(1, Ordering::SeqCst);
        self.0.start + Duration::from_nanos(self.advance(self.0.step))
    }
}

/// Keeps all that it is told, and the probe. Knows nothing of the methods for many.
#[derive(Clone, Default)]
struct Ledger(Arc<Mutex<Entries>>);

#[derive(Default)]
struct Entries {
    adds: usize,
    waited: Vec<Duration>,
    worked: Vec<Duration>,
    probe: Option<Probe>,
}

impl Metrics for Ledger {
    fn queue(&self, _name: &str, probe: Probe) -> Box<dyn Recorder> {
        self.entries().probe = Some(probe);
        Box::new(self.clone())
    }
}

impl Recorder for Ledger {
    fn added(&self) {
        self.entries().adds += 1;
    }

    fn got(&self, waited: Duration) {
        self.entries().waited.push(waited);
    }

    fn done(&self, worked: Duration) {
        self.entries().worked.push(worked);
    }
}

impl Ledger {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().expect("nobody panics while it is held")
    }

    /// As a scrape does it.
    fn gauges(&self) -> Gauges {
        let probe = self.entries().probe.clone();
        probe.and_then(|probe| probe.read()).expect("the queue is not gone")
    }

    /// How many adds, gets and dones it was told of.
    fn counts(&self) -> (usize, usize, usize) {
        let entries = self.entries();
        (entries.adds, entries.waited.len(), entries.worked.len())
    }

    fn take_waited(&self) -> Vec<Duration> {
        std::mem::take(&mut self.entries().waited)
    }

    fn take_worked(&self) -> Vec<Duration> {
        std::mem::take(&mut self.entries().worked)
    }
}

fn measured(step: Duration) -> (Queue<u64>, Ticking, Ledger) {
    let (clock, ledger) = (Ticking::new(step), Ledger::default());
    let queue = Queue::builder().clock(clock.clone()).metrics(ledger.clone()).build();
    clock.readings();
    (queue, clock, ledger)
}

/// A tenth of what makes a queue busy.
const FAST: Duration = Duration::from_nanos(100);

fn cycle(queue: &Queue<u64>, keys: u64) {
    for key in 0..keys {
        queue.add(key).unwrap();
        queue.try_get().expect("a key is ready").done();
    }
}

/// A queue through which keys come so fast that most are not timed.
fn busy() -> (Queue<u64>, Ticking, Ledger) {
    let (queue, clock, ledger) = measured(FAST);
    cycle(&queue, 5000);
    clock.readings();
    cycle(&queue, 1000);
    assert!(clock.readings() <= 30, "most keys are not timed");
    (queue, clock, ledger)
}

/// Takes a key in and out whose times nobody knows.
fn untimed_lease(queue: &Queue<u64>, clock: &Ticking) -> Lease<u64> {
    loop {
        clock.readings();
        queue.add(u64::MAX).unwrap();
        let lease = queue.try_get().expect("a key is ready");
        if clock.readings() == 0 {
            return lease;
        }
    }
}

#[test]
fn counts_are_exact_at_each_scrape_of_a_busy_queue() {
    let (queue, clock, ledger) = measured(FAST);
    for round in 1..=100 {
        cycle(&queue, 100);
        assert_eq!(ledger.gauges().processing, 0);
        assert_eq!(ledger.counts(), (round * 100, round * 100, round * 100));
    }
    assert!(clock.readings() < 3_000, "30,000 events, and not all of them timed");
}

#[test]
fn scrape_in_the_middle_of_a_cycle_counts_what_has_happened() {
    let (queue, clock, ledger) = busy();
    let lease = untimed_lease(&queue, &clock);
    queue.add(u64::MAX).unwrap();
    let gauges = ledger.gauges();
    assert_eq!((gauges.ready, gauges.processing, gauges.dirty), (0, 1, 1));
    let (adds, gets, dones) = ledger.counts();
    assert_eq!((adds, gets), (gets + 1, dones + 1));
    lease.done();
    ledger.gauges();
    assert_eq!(ledger.counts(), (adds, gets, dones + 1));
}

#[test]
fn every_key_is_timed_if_they_do_not_come_fast() {
    let (queue, clock, ledger) = measured(Duration::ZERO);
    for key in 1..=1000 {
        queue.add(key).unwrap();
        clock.advance(Duration::from_micros(key));
        let lease = queue.try_get().unwrap();
        clock.advance(ms(key));
        lease.done();
    }
    assert_eq!(clock.readings(), 3000);
    assert!(ledger.take_waited().into_iter().eq((1..=1000).map(Duration::from_micros)));
    assert!(ledger.take_worked().into_iter().eq((1..=1000).map(ms)));
}

#[test]
fn clock_that_stands_still_does_not_make_a_queue_busy() {
    let (queue, clock, ledger) = measured(Duration::ZERO);
    cycle(&queue, 1000);
    assert_eq!(clock.readings(), 3000);
    assert_eq!(ledger.counts(), (1000, 1000, 1000));
}

#[test]
fn queue_is_busy_after_64_fast_adds_in_a_row() {
    let (queue, clock, _ledger) = measured(Duration::from_micros(1));
    for key in 0..63 {
        queue.add(key).unwrap();
    }
    clock.advance(Duration::from_nanos(1));
    for key in 63..128 {
        queue.add(key).unwrap();
    }
    assert_eq!(clock.readings(), 128, "each of them is timed, for one came too late");
    queue.add(128).unwrap();
    assert_eq!(clock.readings(), 0, "it is not");
}

#[test]
fn batches_that_come_fast_make_a_queue_busy_but_one_does_not() {
    let (queue, clock, ledger) = measured(Duration::from_micros(1));
    queue.add_all(0..1000).unwrap();
    let batch = queue.try_get_many(1000).unwrap();
    assert_eq!(batch.len(), 1000);
    batch.done();
    queue.add(1).unwrap();
    queue.try_get().unwrap().done();
    assert_eq!(clock.readings(), 6, "all calls read the clock");
    for _ in 0..1000 {
        queue.add_all(0..10).unwrap();
        queue.try_get_many(10).unwrap().done();
    }
    assert!(clock.readings() < 1000, "of 3000 calls most do not");
    ledger.gauges();
    assert_eq!(ledger.counts(), (11_001, 11_001, 11_001));
}

#[test]
fn every_key_is_timed_again_once_a_spell_is_over() {
    let (queue, clock, ledger) = busy();
    // The spell is over, and somebody sees it.
    assert!(queue.try_get().is_err());
    clock.advance(secs(1));
    ledger.gauges();
    ledger.take_waited();
    for key in 1..=100 {
        queue.add(key).unwrap();
        clock.advance(secs(key));
        queue.try_get().unwrap().done();
        assert_eq!(ledger.take_waited(), [secs(key) + FAST]);
    }
}

#[test]
fn adds_that_come_slowly_are_timed_again_though_keys_are_left() {
    let (queue, clock, _ledger) = busy();
    for key in 0..200 {
        queue.add(key).unwrap();
        clock.advance(ms(1));
    }
    clock.readings();
    for key in 200..300 {
        queue.add(key).unwrap();
        clock.advance(ms(1));
    }
    assert_eq!(clock.readings(), 100);
}

#[test]
fn slow_work_on_keys_that_came_fast_is_timed() {
    let (queue, clock, ledger) = measured(FAST);
    for key in 0..1000 {
        queue.add(key).unwrap();
    }
    assert!(clock.readings() < 200);
    for key in 1..=1000 {
        let lease = queue.try_get().unwrap();
        clock.advance(ms(key));
        lease.done();
    }
    assert!(ledger.take_worked().into_iter().eq((1..=1000).map(|key| ms(key) + FAST)));
    let total: Duration = ledger.take_waited().into_iter().sum();
    // Key by key, it is half of 1000 × 1000 ms × 1000 / 3.
    assert!((150_000..180_000).contains(&total.as_secs()), "{total:?}");
}

#[test]
fn untimed_key_that_hangs_is_seen() {
    let (queue, clock, ledger) = busy();
    let (first, second) = (untimed_lease(&queue, &clock), {
        queue.add(1).unwrap();
        queue.try_get().unwrap()
    });
    ledger.gauges();
    ledger.take_worked();
    clock.advance(secs(5));
    let gauges = ledger.gauges();
    assert_eq!(gauges.longest_running.as_secs(), 5);
    assert_eq!(gauges.unfinished.as_secs(), 10);
    second.done();
    clock.advance(secs(3));
    assert_eq!(ledger.gauges().longest_running.as_secs(), 8);
    assert_eq!(ledger.gauges().unfinished.as_secs(), 8);
    first.done();
    let worked: Vec<_> = ledger.take_worked().iter().map(Duration::as_secs).collect();
    assert_eq!(worked, [5, 8], "timed from the first scrape on");
    assert_eq!(ledger.gauges().longest_running, Duration::ZERO);
}

#[test]
fn queue_that_is_gone_has_told_everything() {
    let (queue, clock, ledger) = busy();
    let lease = untimed_lease(&queue, &clock);
    let (.., before) = ledger.counts();
    drop(queue);
    lease.done();
    let (adds, gets, dones) = ledger.counts();
    assert_eq!((adds, gets), (dones, dones));
    assert!(dones > before && dones > 6000);
}

#[test]
fn each_call_reads_the_clock_once_and_only_if_it_measures_something() {
    let (queue, clock, ledger) = measured(ms(1));
    queue.add_all(0..100).unwrap();
    assert_eq!(clock.readings(), 1, "a batch is added");
    queue.add_all(0..100).unwrap();
    queue.add(7).unwrap();
    assert_eq!((queue.len(), queue.remove(&99)), (100, true));
    assert_eq!(clock.readings(), 0, "nothing is measured");
    let batch = queue.try_get_many(90).unwrap();
    assert_eq!(clock.readings(), 1, "a batch is handed out");
    batch.done();
    assert_eq!(clock.readings(), 1, "a batch is done");
    let lease = queue.try_get().unwrap().next_blocking().unwrap();
    assert_eq!(clock.readings(), 2, "get and next");
    let lease = lease.next_blocking_with(Finish::RetryAfter(Duration::ZERO)).unwrap();
    assert_eq!(clock.readings(), 1, "next, and the key comes again");
    let lease = lease.next_blocking_with(Finish::RetryAfter(secs(900))).unwrap();
    assert_eq!(clock.readings(), 1, "next, and the key is delayed");
    drop(lease.next_blocking());
    assert_eq!(clock.readings(), 2, "next and done, while a key is delayed");
    assert_eq!(ledger.counts(), (101, 95, 95));
    assert_eq!(ledger.take_waited()[..90], [ms(1); 90]);
    assert_eq!(ledger.take_worked(), [ms(1); 95]);
}

#[test]
fn key_whose_delay_is_over_waits_from_the_moment_at_which_that_is_seen() {
    let (queue, clock, ledger) = measured(Duration::ZERO);
    queue.add_after(1, secs(10)).unwrap();
    queue.add_after(2, secs(10)).unwrap();
    clock.advance(secs(12));
    let lease = queue.try_get().unwrap();
    clock.advance(secs(1));
    drop((lease, queue.try_get().unwrap()));
    assert_eq!(ledger.take_waited(), [secs(0), secs(1)]);
    assert_eq!(ledger.take_worked(), [secs(1), secs(0)]);
}

/// Steps that are taken by a queue that may be busy, and what must have been told.
#[derive(Clone, Copy, Debug)]
enum Step {
    Add(u64),
    AddAfter(u64),
    Fill(u64),
    Remove(u64),
    Get,
    GetMany(usize),
    Finish(Finish),
    Next,
    Rest(Duration),
    Scrape,
}

fn step() -> impl Strategy<Value = Step> {
    let finish = prop_oneof![
        Just(Finish::Done),
        Just(Finish::Retry),
        Just(Finish::RetryAfter(Duration::ZERO)),
    ];
    prop_oneof![
        4 => (0..9_u64).prop_map(Step::Add),
        1 => (0..9_u64).prop_map(Step::AddAfter),
        2 => (50..150_u64).prop_map(Step::Fill),
        1 => (0..99_u64).prop_map(Step::Remove),
        3 => Just(Step::Get),
        2 => (0..90_usize).prop_map(Step::GetMany),
        4 => finish.prop_map(Step::Finish),
        3 => Just(Step::Next),
        1 => (0..9_000_u64).prop_map(|nanos| Step::Rest(Duration::from_nanos(nanos))),
        1 => Just(Step::Scrape),
    ]
}

/// A queue, what is out, and what has happened.
struct Count {
    queue: Queue<u64>,
    leases: VecDeque<Lease<u64>>,
    gets: usize,
    dones: usize,
}

impl Count {
    fn step(&mut self, step: Step, clock: &Ticking) {
        match step {
            Step::Add(key) => {
                self.queue.add(key).unwrap();
            }
            Step::AddAfter(key) => {
                self.queue.add_after(key, FAST).unwrap();
            }
            Step::Fill(keys) => {
                for key in 0..keys {
                    self.queue.add(key).unwrap();
                }
            }
            Step::Remove(key) => {
                self.queue.remove(&key);
            }
            Step::Get => self.got(self.queue.try_get().ok()),
            Step::GetMany(max) => {
                self.got(self.queue.try_get_many(max).into_iter().flatten());
            }
            Step::Finish(finish) => self.finish(finish),
            Step::Next => self.next(),
            Step::Rest(time) => {
                clock.advance(time);
            }
            Step::Scrape => {}
        }
    }

    fn got(&mut self, leases: impl IntoIterator<Item = Lease<u64>>) {
        let before = self.leases.len();
        self.leases.extend(leases);
        self.gets += self.leases.len() - before;
    }

    fn finish(&mut self, finish: Finish) {
        if let Some(lease) = self.leases.pop_front() {
            self.dones += 1;
            lease.finish(finish);
        }
    }

    fn next(&mut self) {
        if self.queue.is_empty() {
            return;
        }
        if let Some(lease) = self.leases.pop_front() {
            self.dones += 1;
            self.got(lease.next_blocking());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_is_told_twice_or_not_at_all(steps in prop::collection::vec(step(), 1..200)) {
        let (queue, clock, ledger) = measured(FAST);
        let mut count = Count { queue, leases: VecDeque::new(), gets: 0, dones: 0 };
        for one in steps {
            count.step(one, &clock);
            if matches!(one, Step::Scrape) {
                let gauges = ledger.gauges();
                let (_, gets, dones) = ledger.counts();
                prop_assert_eq!((gets, dones), (count.gets, count.dones));
                prop_assert_eq!(gauges.processing, gets - dones);
            }
        }
        let Count { queue, leases, gets, dones } = count;
        prop_assert_eq!(gets - dones, leases.len());
        drop((queue, leases));
        prop_assert_eq!(ledger.counts().1, gets);
        prop_assert_eq!(ledger.counts().2, gets, "leases that are dropped are done");
    }

    #[test]
    fn adds_that_change_something_are_told(keys in prop::collection::vec(0..200_u64, 1..2000)) {
        let (queue, _clock, ledger) = measured(FAST);
        let added = keys.into_iter().map(|key| queue.add(key));
        let changed = added.filter(|added| *added == Ok(Added::Ready)).count();
        ledger.gauges();
        prop_assert_eq!(ledger.counts().0, changed);
    }
}
