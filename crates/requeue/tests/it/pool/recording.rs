//! Events that a pool reports to its recorder.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use requeue::metrics::{Metrics, PoolRecorder, Probe, Recorder, RunResult};
use requeue::testing::FakeClock;
use requeue::{Clock, SystemClock};

use super::*;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Event {
    Workers(usize),
    Started,
    Ended(RunResult, Duration),
    Overran,
    Dead,
}

/// Keeps all events.
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

    fn ended(&self, result: RunResult, took: Duration) {
        self.push(Event::Ended(result, took));
    }

    fn overran(&self) {
        self.push(Event::Overran);
    }

    fn dead(&self) {
        self.push(Event::Dead);
    }
}

#[test]
fn recorder_receives_the_number_of_workers_and_each_result() {
    let clock = FakeClock::new();
    // The queue's clock stands still, so nothing is retried.
    let queue = Queue::<&str>::builder().name("files").clock(FakeClock::new()).build();
    let events = Events::default();
    let time = clock.clone();
    let pool = Pool::new(queue.clone())
        .clock(clock)
        .max_retries(1)
        .metrics(events.clone())
        .spawn_threads(move |run| {
            time.advance(SECOND);
            match *run.key() {
                "panic" => panic!("on purpose"),
                "error" => Err("no"),
                "after" => Ok(Finish::RequeueAfter(LONG)),
                "give up" => Ok(Finish::GiveUp),
                _ => Ok(Finish::Succeed),
            }
        })
        .unwrap();
    assert_eq!(events.take(), [Event::Workers(1)]);
    let recorded = |result| [Event::Started, Event::Ended(result, SECOND)].to_vec();
    let run = |key| {
        queue.add(key).unwrap();
        while queue.counts().ready + queue.counts().processing > 0 {
            std::thread::yield_now();
        }
        events.take()
    };
    assert_eq!(run("success"), recorded(RunResult::Succeeded));
    assert_eq!(run("panic"), recorded(RunResult::Panicked));
    assert_eq!(run("error"), recorded(RunResult::Failed));
    assert_eq!(run("after"), recorded(RunResult::Requeued));
    let dead = [Event::Started, Event::Dead, Event::Ended(RunResult::GaveUp, SECOND)];
    assert_eq!(run("give up"), dead);
    pool.set_workers(3).unwrap();
    assert_eq!(events.take(), [Event::Workers(3)]);
}

#[test]
fn run_on_a_thread_that_exceeds_its_timeout_is_counted_and_its_result_stands() {
    let clock = FakeClock::new();
    let queue = Queue::<Duration>::builder().name("files").build();
    let events = Events::default();
    let time = clock.clone();
    let pool = Pool::new(queue.clone())
        .clock(clock)
        .timeout(SECOND)
        .metrics(events.clone())
        .spawn_threads(move |run| time.advance(*run.key()))
        .unwrap();
    queue.add_all([SECOND, SECOND * 2]).unwrap();
    assert!(pool.drain_blocking(LONG).left.is_empty());
    let expected = [
        Event::Workers(1),
        Event::Started,
        Event::Ended(RunResult::Succeeded, SECOND),
        Event::Started,
        Event::Overran,
        Event::Ended(RunResult::Succeeded, SECOND * 2),
    ];
    assert_eq!(events.take(), expected);
}

/// A clock that counts its readings.
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
    let readings = |configure: fn(Pool<Queue<u32>>) -> Pool<Queue<u32>>| {
        let (queue, clock) = (Queue::builder().name("files").build(), Counted::default());
        queue.add(1).unwrap();
        let pool = configure(Pool::new(queue.clone())).clock(clock.clone());
        let pool = pool.spawn_threads(|_| ()).unwrap();
        queue.wait_idle_blocking();
        let readings = clock.0.load(Ordering::SeqCst);
        assert!(pool.drain_blocking(LONG).left.is_empty());
        readings
    };
    assert_eq!(readings(|pool| pool), 0);
    assert_eq!(readings(|pool| pool.timeout(SECOND)), 2);
    assert_eq!(readings(|pool| pool.metrics(Events::default())), 2);
}
