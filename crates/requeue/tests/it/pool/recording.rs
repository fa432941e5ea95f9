//! What a pool tells its recorder.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use requeue::metrics::{Ended, Metrics, PoolRecorder, Probe, Recorder};
use requeue::testing::FakeClock;
use requeue::{Clock, SystemClock};

use super::*;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Event {
    Workers(usize),
    Started,
    Ended(Ended, Duration),
    Overran,
    Dead,
}

/// Keeps every event of every pool.
#[derive(Clone, Default)]
pub(super) struct Events(Arc<Mutex<Vec<Event>>>);

impl Events {
    fn push(&self, event: Event) {
        self.0.lock().unwrap().push(event);
    }

    pub(super) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Recorder for Events {}

impl Metrics for Events {
    fn queue(&self, _name: &str, _probe: Probe) -> Box<dyn Recorder> {
        Box::new(self.clone())
    }

    fn pool(&self, name: &str) -> Box<dyn PoolRecorder> {
        assert_eq!(name, "files");
        Box::new(self.clone())
    }
}

impl PoolRecorder for Events {
    fn workers(&self, workers: usize) {
        self.push(Event::Workers(workers));
    }

    fn started(&self) {
        self.push(Event::Started);
    }

    fn ended(&self, how: Ended, took: Duration) {
        self.push(Event::Ended(how, took));
    }

    fn overran(&self) {
        self.push(Event::Overran);
    }

    fn dead(&self) {
        self.push(Event::Dead);
    }
}

#[test]
fn recorder_hears_of_workers_and_of_how_each_run_ended() {
    let clock = FakeClock::new();
    // The queue's own clock stands: nothing is retried.
    let queue = Queue::builder().name("files").clock(FakeClock::new()).build();
    let events = Events::default();
    let time = clock.clone();
    let pool = Pool::new(queue.clone())
        .clock(clock)
        .max_retries(1)
        .metrics(events.clone())
        .run(move |key: &&str| {
            time.advance(SECOND);
            match *key {
                "panic" => panic!("as the test wants"),
                "error" => Err("no"),
                "after" => Ok(Outcome::After(LONG)),
                "give up" => Ok(Outcome::GiveUp),
                _ => Ok(Outcome::Done),
            }
        })
        .unwrap();
    assert_eq!(events.take(), [Event::Workers(1)]);
    let told = |how| [Event::Started, Event::Ended(how, SECOND)].to_vec();
    let run = |key| {
        queue.add(key).unwrap();
        while queue.counts().ready + queue.counts().processing > 0 {
            std::thread::yield_now();
        }
        events.take()
    };
    assert_eq!(run("done"), told(Ended::Done));
    assert_eq!(run("panic"), told(Ended::Panicked));
    assert_eq!(run("error"), told(Ended::Failed));
    assert_eq!(run("after"), told(Ended::After));
    let dead = [Event::Started, Event::Dead, Event::Ended(Ended::GaveUp, SECOND)];
    assert_eq!(run("give up"), dead);
    pool.set_workers(3).unwrap();
    assert_eq!(events.take(), [Event::Workers(3)]);
}

#[test]
fn run_on_a_thread_that_takes_too_long_is_counted_and_its_result_stands() {
    let clock = FakeClock::new();
    let queue = Queue::builder().name("files").build();
    let events = Events::default();
    let time = clock.clone();
    let pool = Pool::new(queue.clone())
        .clock(clock)
        .timeout(SECOND)
        .metrics(events.clone())
        .run(move |took: &Duration| {
            time.advance(*took);
            Ok::<_, String>(())
        })
        .unwrap();
    queue.add_all([SECOND, SECOND * 2]).unwrap();
    assert!(pool.drain_blocking(LONG).left.is_empty());
    let expected = [
        Event::Workers(1),
        Event::Started,
        Event::Ended(Ended::Done, SECOND),
        Event::Started,
        Event::Overran,
        Event::Ended(Ended::Done, SECOND * 2),
    ];
    assert_eq!(events.take(), expected);
}

/// A clock that counts how often it is read.
#[derive(Clone, Default)]
struct Counted(Arc<AtomicUsize>);

impl Clock for Counted {
    fn now(&self) -> Instant {
        self.0.fetch_add(1, Ordering::SeqCst);
        SystemClock.now()
    }
}

#[test]
fn clock_is_read_only_for_a_timeout_or_a_recorder() {
    let readings = |configure: fn(Pool<u32, String>) -> Pool<u32, String>| {
        let (queue, clock) = (Queue::builder().name("files").build(), Counted::default());
        queue.add(1).unwrap();
        let pool = configure(Pool::new(queue.clone())).clock(clock.clone());
        let pool = pool.run(|_| Ok(())).unwrap();
        queue.wait_idle_blocking();
        let readings = clock.0.load(Ordering::SeqCst);
        assert!(pool.drain_blocking(LONG).left.is_empty());
        readings
    };
    assert_eq!(readings(|pool| pool), 0);
    assert_eq!(readings(|pool| pool.timeout(SECOND)), 2);
    assert_eq!(readings(|pool| pool.metrics(Events::default())), 2);
}
