//! Pools on a source whose code panics.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use requeue::pool::{Expiry, Source, Stopped, Work};
use requeue::{Get, Lease};

use super::*;

/// A queue whose futures panic while it is broken, and forever once they have panicked.
#[derive(Clone, Debug)]
struct Fragile {
    queue: Queue<u32>,
    faults: Arc<Faults>,
}

#[derive(Debug, Default)]
struct Faults {
    poll: AtomicBool,
    next: AtomicBool,
    drop: AtomicBool,
    lost: AtomicBool,
    polls: AtomicU32,
    /// The failures with which leases ended, formatted.
    failures: Mutex<Vec<String>>,
}

struct FragileGet {
    get: Get<u32>,
    panicked: bool,
    faults: Arc<Faults>,
}

struct FragileLease {
    lease: Lease<u32>,
    faults: Arc<Faults>,
}

impl Source for Fragile {
    type Key = u32;
    type Work = FragileLease;
    type Get = FragileGet;

    fn name(&self) -> &str {
        self.queue.name()
    }

    fn get(&self) -> FragileGet {
        let faults = Arc::clone(&self.faults);
        FragileGet { get: self.queue.get(), panicked: false, faults }
    }

    fn close(&self) {
        self.queue.close();
    }

    fn close_now(&self) -> Stopped<u32> {
        Source::close_now(&self.queue)
    }
}

impl Future for FragileGet {
    type Output = Option<FragileLease>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.faults.polls.fetch_add(1, Ordering::SeqCst);
        self.panicked |= self.faults.poll.load(Ordering::SeqCst);
        assert!(!self.panicked, "a poll that panics, on purpose");
        let lease = Pin::new(&mut self.get).poll(cx);
        let faults = Arc::clone(&self.faults);
        lease.map(|lease| lease.map(|lease| FragileLease { lease, faults }))
    }
}

impl Drop for FragileGet {
    fn drop(&mut self) {
        let panics = self.faults.drop.load(Ordering::SeqCst);
        assert!(!panics || std::thread::panicking(), "a drop that panics, on purpose");
    }
}

impl Work for FragileLease {
    type Key = u32;
    type Next = FragileGet;

    fn key(&self) -> &u32 {
        self.lease.key()
    }

    fn num_requeues(&self) -> u32 {
        panic!("a count that panics, on purpose");
    }

    fn expiry(&self) -> Option<Arc<dyn Expiry>> {
        Some(Arc::new(FragileExpiry(Arc::clone(&self.faults))))
    }

    fn next(self, finish: Finish, failure: Option<&Failure>) -> FragileGet {
        let failure = failure.map(ToString::to_string);
        self.faults.failures.lock().unwrap().extend(failure);
        let panics = self.faults.next.swap(false, Ordering::SeqCst);
        assert!(!panics, "a next that panics, on purpose");
        let Self { lease, faults } = self;
        FragileGet { get: lease.next_with(finish), panicked: false, faults }
    }
}

/// The expiry of a lease that is lost, or panics when it is asked.
struct FragileExpiry(Arc<Faults>);

impl Expiry for FragileExpiry {
    fn token(&self) -> u64 {
        7
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn is_lost(&self) -> bool {
        assert!(self.0.lost.load(Ordering::SeqCst), "it panics, on purpose");
        true
    }

    fn lost(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let faults = Arc::clone(&self.0);
        Box::pin(async move { assert!(Self(faults).is_lost()) })
    }
}

impl Fragile {
    fn new() -> Self {
        Self { queue: Queue::new(), faults: Arc::default() }
    }

    fn polls(&self) -> u32 {
        self.faults.polls.load(Ordering::SeqCst)
    }

    fn break_polls(&self, broken: bool) {
        self.faults.poll.store(broken, Ordering::SeqCst);
    }
}

/// A pool of one worker on a broken source, and the clock of its pauses.
fn broken(done: mpsc::Sender<u32>) -> (Fragile, FakeClock, Handle<Fragile>) {
    let (source, clock) = (Fragile::new(), FakeClock::new());
    source.break_polls(true);
    let pool = Pool::new(source.clone()).clock(clock.clone());
    let pool = pool.spawn_threads(move |run| done.send(*run.key()));
    clock.wait_for_timers_blocking(1);
    (source, clock, pool.unwrap())
}

/// The first panic ended the worker.
#[test]
fn worker_whose_source_panics_tries_again_with_growing_pauses() {
    let (done, is_done) = mpsc::channel();
    let (source, clock, pool) = broken(done);
    for (polls, pause) in (1..).zip([5, 10, 20, 40, 80, 160, 320, 640, 1000, 1000]) {
        let pause = Duration::from_millis(pause);
        clock.wait_for_timers_blocking(1);
        clock.advance(pause / 2);
        assert_eq!((source.polls(), clock.timers()), (polls, 1), "{pause:?}");
        clock.advance(pause / 2);
        while source.polls() == polls {
            std::thread::yield_now();
        }
    }
    clock.wait_for_timers_blocking(1);
    source.break_polls(false);
    source.queue.add(7).unwrap();
    clock.advance(SECOND);
    assert_eq!(is_done.recv(), Ok(7));
    assert_eq!(pool.workers(), 1);
    let stopped = pool.drain_blocking(LONG);
    assert!(stopped.in_time() && stopped.left.is_empty());
}

#[test]
fn next_key_resets_the_pause() {
    let (done, is_done) = mpsc::channel();
    let (source, clock, pool) = broken(done);
    clock.advance(SECOND);
    while source.polls() < 2 {
        std::thread::yield_now();
    }
    clock.wait_for_timers_blocking(1);
    source.break_polls(false);
    source.queue.add(1).unwrap();
    clock.advance(SECOND);
    assert_eq!(is_done.recv(), Ok(1));
    source.break_polls(true);
    source.queue.add(2).unwrap(); // wakes the worker, if it is parked
    clock.wait_for_timers_blocking(1);
    source.break_polls(false);
    clock.advance(Duration::from_millis(5));
    assert_eq!(is_done.recv(), Ok(2));
    assert!(pool.drain_blocking(LONG).in_time());
}

/// The clock stands still: only the call can end the pause.
#[test]
fn pausing_worker_reacts_to_calls() {
    let (done, is_done) = mpsc::channel();
    let (_source, _clock, pool) = broken(done);
    pool.set_workers(0).unwrap();
    pool.join_blocking();

    let (done, _) = mpsc::channel();
    let (source, _clock, pool) = broken(done);
    source.queue.add(1).unwrap();
    assert_eq!(pool.stop_blocking(LONG).left, [1]);

    let (done, is_drained) = mpsc::channel();
    let (source, _clock, pool) = broken(done);
    source.queue.add(1).unwrap();
    source.break_polls(false);
    assert!(pool.drain_blocking(LONG).left.is_empty());
    assert_eq!(is_drained.recv(), Ok(1));
    assert!(is_done.try_recv().is_err());
}

/// Without handles there is no source for another future, so the worker keeps its own.
#[test]
fn worker_without_handles_polls_the_same_future_again() {
    let (done, _) = mpsc::channel();
    let (source, clock, pool) = broken(done);
    drop(pool);
    let polls = source.polls();
    clock.advance(SECOND);
    while source.polls() == polls {
        std::thread::yield_now();
    }
}

#[test]
fn lease_that_panics_when_it_ends_costs_no_worker() {
    let source = Fragile::new();
    let (done, is_done) = mpsc::channel();
    source.faults.next.store(true, Ordering::SeqCst);
    let pool = Pool::new(source.clone());
    let pool = pool.spawn_threads(move |run| done.send(*run.key()));
    source.queue.add(1).unwrap();
    assert_eq!(is_done.recv(), Ok(1));
    source.queue.add(2).unwrap();
    assert!(is_done.iter().any(|key| key == 2));
    let pool = pool.unwrap();
    assert_eq!(pool.workers(), 1);
    source.faults.drop.store(true, Ordering::SeqCst);
    assert!(pool.drain_blocking(LONG).in_time());
}

#[derive(Debug)]
struct PanicsOnDisplay;

impl std::error::Error for PanicsOnDisplay {}

impl std::fmt::Display for PanicsOnDisplay {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("a display that panics, on purpose");
    }
}

/// The source formats the error, and its `num_requeues` panics.
#[test]
fn source_gets_a_text_for_an_error_that_cannot_be_displayed() {
    let source = Fragile::new();
    source.queue.add(1).unwrap();
    let pool = Pool::new(source.clone()).max_retries(1);
    let pool = pool.spawn_threads(|_| Err::<(), _>(PanicsOnDisplay)).unwrap();
    while source.queue.counts().delayed == 0 {
        std::thread::yield_now();
    }
    let failures = source.faults.failures.lock().unwrap().clone();
    assert_eq!(failures[0], "the error cannot be displayed");
    assert_eq!(pool.workers(), 1);
    assert_eq!(pool.stop_blocking(LONG).left, [1], "it may be retried");
}

#[cfg(feature = "tokio")]
#[test]
fn lease_that_panics_when_it_is_asked_costs_no_task() {
    let source = Fragile::new();
    source.queue.add_all([1, 2, 3]).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let pool = Pool::new(source.clone());
        let pool = pool.spawn_tasks(|_| tokio::task::yield_now());
        let stopped = pool.unwrap().drain(LONG).await;
        assert!(stopped.in_time() && stopped.left.is_empty());
    });
}

#[cfg(feature = "tokio")]
#[test]
fn run_that_has_lost_its_lease_is_cancelled() {
    let source = Fragile::new();
    source.queue.add_all([1, 2]).unwrap();
    source.faults.lost.store(true, Ordering::SeqCst);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let pool = Pool::new(source.clone());
        let pool = pool.spawn_tasks(|_| std::future::pending::<()>()).unwrap();
        let stopped = pool.drain(LONG).await;
        assert!(stopped.in_time());
        assert_eq!(stopped.left, [1, 2], "the keys are released");
    });
}

#[test]
fn handler_on_a_thread_sees_that_its_lease_is_lost() {
    let source = Fragile::new();
    source.queue.add(1).unwrap();
    let (send, seen) = mpsc::channel();
    let faults = Arc::clone(&source.faults);
    let pool = Pool::new(source).spawn_threads(move |run| {
        let before = run.is_cancelled(); // panics inside, which is contained
        faults.lost.store(true, Ordering::SeqCst);
        send.send((before, run.is_cancelled(), run.token())).unwrap();
        futures_executor::block_on(run.cancelled());
    });
    assert_eq!(seen.recv(), Ok((false, true, Some(7))));
    assert!(pool.unwrap().drain_blocking(LONG).in_time());
}
