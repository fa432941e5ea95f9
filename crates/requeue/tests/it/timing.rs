//! What a queue reports to its recorder: every event, and how long each key waited and was
//! processed.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use requeue::metrics::{Gauges, Metrics, Probe, Recorder};
use requeue::testing::FakeClock;
use requeue::{Clock, Counts, Finish, Lease, Queue};

use crate::helpers::{ms, secs};

/// A clock that counts how often it is read.
#[derive(Clone, Default)]
struct CountingClock {
    clock: FakeClock,
    readings: Arc<AtomicU64>,
}

impl CountingClock {
    fn advance(&self, step: Duration) {
        self.clock.advance(step);
    }

    /// Returns how often the clock was read since the last call.
    fn take_readings(&self) -> u64 {
        self.readings.swap(0, Ordering::SeqCst)
    }
}

impl Clock for CountingClock {
    fn now(&self) -> Instant {
        self.readings.fetch_add(1, Ordering::SeqCst);
        self.clock.now()
    }
}

/// A recorder that keeps every event.
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
        self.0.lock().expect("no test panics while it holds the lock")
    }

    /// Reads the gauges as a scrape does.
    fn gauges(&self) -> Gauges {
        let probe = self.entries().probe.clone();
        probe.and_then(|probe| probe.read()).expect("the queue exists")
    }

    /// Returns the number of adds, gets and finishes.
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

fn measured() -> (Queue<u64>, CountingClock, Ledger) {
    let (clock, ledger) = (CountingClock::default(), Ledger::default());
    let queue = Queue::builder().clock(clock.clone()).metrics(ledger.clone()).build();
    clock.take_readings();
    (queue, clock, ledger)
}

#[test]
fn every_key_is_timed() {
    let (queue, clock, ledger) = measured();
    for key in 1..=1000 {
        queue.add(key).unwrap();
        clock.advance(Duration::from_nanos(key));
        let lease = queue.try_get().unwrap();
        clock.advance(ms(key));
        lease.done();
    }
    let waited = (1..=1000).map(Duration::from_nanos);
    assert!(ledger.take_waited().into_iter().eq(waited));
    assert!(ledger.take_worked().into_iter().eq((1..=1000).map(ms)));
}

/// The system clock is replaced by the processor's counter.
#[test]
fn every_key_is_timed_on_the_system_clock() {
    let ledger = Ledger::default();
    let queue = Queue::builder().metrics(ledger.clone()).build();
    for key in 0..1000 {
        queue.add(key).unwrap();
        queue.try_get().unwrap().done();
    }
    assert_eq!(ledger.counts(), (1000, 1000, 1000));
    let total: Duration = ledger.take_waited().into_iter().sum();
    assert!(total > Duration::ZERO && total < secs(600), "{total:?}");
    queue.add(1).unwrap();
    let lease = queue.try_get().unwrap();
    assert!(ledger.gauges().unfinished < secs(600));
    lease.done();
}

#[test]
fn every_key_of_a_batch_is_timed() {
    let (queue, clock, ledger) = measured();
    queue.add_all(0..50).unwrap();
    clock.advance(ms(1));
    queue.add_all(0..100).unwrap();
    clock.advance(ms(2));
    let batch = queue.try_get_many(100).unwrap();
    clock.advance(ms(4));
    batch.done();
    assert_eq!(ledger.counts(), (100, 100, 100));
    let waited = ledger.take_waited();
    assert!(waited[..50].iter().all(|waited| *waited == ms(3)));
    assert!(waited[50..].iter().all(|waited| *waited == ms(2)));
    assert_eq!(ledger.take_worked(), [ms(4); 100]);
}

#[test]
fn dirty_key_waits_from_the_add_that_made_it_dirty() {
    let (queue, clock, ledger) = measured();
    queue.add(1).unwrap();
    let lease = queue.try_get().unwrap();
    clock.advance(secs(1));
    queue.add(1).unwrap();
    clock.advance(secs(2));
    queue.add(1).unwrap();
    lease.done();
    clock.advance(secs(4));
    queue.try_get().unwrap().done();
    assert_eq!(ledger.take_waited(), [secs(0), secs(6)]);
    assert_eq!(ledger.take_worked(), [secs(3), secs(0)]);
    assert_eq!(ledger.counts().0, 2, "a duplicate is not an add");
}

#[test]
fn delayed_key_waits_from_the_call_that_makes_it_ready() {
    let (queue, clock, ledger) = measured();
    queue.add_after(1, secs(10)).unwrap();
    queue.add_after(2, secs(10)).unwrap();
    clock.advance(secs(12));
    let lease = queue.try_get().unwrap();
    clock.advance(secs(1));
    let other = queue.try_get().unwrap();
    lease.done();
    other.done();
    assert_eq!(ledger.take_waited(), [secs(0), secs(1)]);
    assert_eq!(ledger.take_worked(), [secs(1), secs(0)]);
}

#[test]
fn unfinished_work_grows_until_the_leases_end() {
    let (queue, clock, ledger) = measured();
    queue.add_all([1, 2]).unwrap();
    let first = queue.try_get().unwrap();
    clock.advance(secs(3));
    let second = queue.try_get().unwrap();
    clock.advance(secs(5));
    let gauges = ledger.gauges();
    let keys = Counts { processing: 2, ..Counts::default() };
    assert_eq!((gauges.keys, gauges.shared), (Some(keys), false));
    assert_eq!((gauges.unfinished, gauges.longest_running), (secs(13), secs(8)));
    first.done();
    let gauges = ledger.gauges();
    assert_eq!((gauges.unfinished, gauges.longest_running), (secs(5), secs(5)));
    second.done();
    let gauges = ledger.gauges();
    assert_eq!((gauges.unfinished, gauges.longest_running), (secs(0), secs(0)));
}

#[test]
fn each_call_reads_the_clock_once() {
    let (queue, clock, ledger) = measured();
    queue.add_all(0..100).unwrap();
    assert_eq!(clock.take_readings(), 1, "adding a batch");
    let batch = queue.try_get_many(95).unwrap();
    assert_eq!(clock.take_readings(), 1, "getting a batch");
    batch.done();
    assert_eq!(clock.take_readings(), 1, "finishing a batch");
    let lease = queue.try_get().unwrap().next_blocking().unwrap();
    assert_eq!(clock.take_readings(), 2, "get and next");
    let again = Finish::RequeueAfter(Duration::ZERO);
    let lease = lease.next_blocking_with(again).unwrap();
    assert_eq!(clock.take_readings(), 1, "next, and the key is ready again");
    let lease = lease.next_blocking_with(Finish::RequeueAfter(secs(900))).unwrap();
    assert_eq!(clock.take_readings(), 1, "next, and the key is delayed");
    lease.next_blocking().unwrap().done();
    assert_eq!(clock.take_readings(), 2, "next and done, while a key is delayed");
    queue.add_after(1, secs(1)).unwrap();
    assert_eq!(clock.take_readings(), 1, "a delayed add");
    ledger.gauges();
    assert_eq!(clock.take_readings(), 1, "a scrape");
    assert_eq!(ledger.counts(), (101, 100, 100));
}

/// Steps of a random history.
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
    Advance(Duration),
}

fn step() -> impl Strategy<Value = Step> {
    let finish = prop_oneof![
        Just(Finish::Done),
        Just(Finish::Retry),
        Just(Finish::RequeueAfter(Duration::ZERO)),
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
        1 => (0..9_000_u64).prop_map(|nanos| Step::Advance(Duration::from_nanos(nanos))),
    ]
}

/// A queue, its leases with the time of each, and the number of finished ones.
struct History {
    queue: Queue<u64>,
    clock: CountingClock,
    leases: VecDeque<(Instant, Lease<u64>)>,
    gets: usize,
    done: usize,
}

impl History {
    fn step(&mut self, step: Step) {
        match step {
            Step::Add(key) => drop(self.queue.add(key)),
            Step::AddAfter(key) => drop(self.queue.add_after(key, ms(1))),
            Step::Fill(keys) => drop(self.queue.add_all(0..keys)),
            Step::Remove(key) => drop(self.queue.remove(&key)),
            Step::Get => self.got(self.queue.try_get().ok()),
            Step::GetMany(max) => {
                self.got(self.queue.try_get_many(max).into_iter().flatten());
            }
            Step::Finish(finish) => self.finish(finish),
            Step::Next => self.next(),
            Step::Advance(time) => self.clock.advance(time),
        }
    }

    fn got(&mut self, leases: impl IntoIterator<Item = Lease<u64>>) {
        let (before, now) = (self.leases.len(), self.clock.now());
        self.leases.extend(leases.into_iter().map(|lease| (now, lease)));
        self.gets += self.leases.len() - before;
    }

    fn finish(&mut self, finish: Finish) {
        if let Some((_, lease)) = self.leases.pop_front() {
            self.done += 1;
            lease.finish(finish);
        }
    }

    fn next(&mut self) {
        if self.queue.is_empty() {
            return;
        }
        if let Some((_, lease)) = self.leases.pop_front() {
            self.done += 1;
            self.got(lease.next_blocking());
        }
    }

    fn ages(&self) -> impl Iterator<Item = Duration> {
        let now = self.clock.now();
        self.leases.iter().map(move |(leased, _)| now.duration_since(*leased))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn each_event_is_reported_once_and_unfinished_work_is_exact(
        steps in prop::collection::vec(step(), 1..200)
    ) {
        let (queue, clock, ledger) = measured();
        let leases = VecDeque::new();
        let mut history = History { queue, clock, leases, gets: 0, done: 0 };
        for one in steps {
            history.step(one);
            let gauges = ledger.gauges();
            let (_, gets, done) = ledger.counts();
            prop_assert_eq!((gets, done), (history.gets, history.done));
            prop_assert_eq!(gauges.keys.unwrap().processing, history.leases.len());
            prop_assert_eq!(gauges.unfinished, history.ages().sum());
            prop_assert_eq!(gauges.longest_running, history.ages().max().unwrap_or_default());
        }
        let History { queue, leases, gets, .. } = history;
        drop((queue, leases));
        prop_assert_eq!(ledger.counts().2, gets, "dropped leases have ended");
    }

    #[test]
    fn adds_that_change_something_are_reported(
        keys in prop::collection::vec(0..200_u64, 1..2000)
    ) {
        let (queue, _clock, ledger) = measured();
        let added = keys.into_iter().map(|key| queue.add(key).unwrap());
        let changed = added.filter(|added| *added == requeue::Added::Ready).count();
        prop_assert_eq!(ledger.counts().0, changed);
    }
}
