//! User code that panics costs neither a worker nor a key.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::panic_any;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Instant;

use requeue::metrics::{Metrics, PoolRecorder, Probe, Recorder, RunResult};
use requeue::{Clock, SystemClock, Timer};

use super::*;

const WORKERS: usize = 4;

/// A key whose code panics when the test says so.
struct Key {
    name: &'static str,
    trap: Arc<Trap>,
}

#[derive(Default)]
struct Trap {
    clones: AtomicU32,
    /// The number of the clone that panics, or 0 for none.
    panics_at: AtomicU32,
    drop_panics: AtomicBool,
}

impl Key {
    fn new(name: &'static str) -> Self {
        Self { name, trap: Arc::default() }
    }
}

impl Clone for Key {
    fn clone(&self) -> Self {
        let number = self.trap.clones.fetch_add(1, Ordering::SeqCst) + 1;
        let panics_at = self.trap.panics_at.load(Ordering::SeqCst);
        assert_ne!(number, panics_at, "a clone that panics, on purpose");
        Self { name: self.name, trap: Arc::clone(&self.trap) }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        let panics = self.trap.drop_panics.load(Ordering::SeqCst);
        assert!(!panics || std::thread::panicking(), "a drop that panics, on purpose");
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Adds keys whose runs wait for each other: with a worker missing, this hangs.
fn assert_all_workers_run(pool: &Handle<Queue<Key>>) {
    assert_eq!(pool.workers(), WORKERS);
    for name in ["meet 1", "meet 2", "meet 3", "meet 4"] {
        pool.queue().add(Key::new(name)).unwrap();
    }
    while pool.queue().counts().processing + pool.queue().len() > 0 {
        std::thread::yield_now();
    }
}

/// A handler that runs `hostile`, except for keys whose runs wait for each other.
fn handler_with<E>(
    hostile: impl Fn(&Key) -> Result<(), E>,
) -> impl Fn(&Run<Key>) -> Result<(), E> {
    let meeting = Barrier::new(WORKERS);
    move |run| {
        if run.name.starts_with("meet") {
            meeting.wait();
            return Ok(());
        }
        hostile(run.key())
    }
}

fn quick_queue() -> Queue<Key> {
    let backoff = Exponential::new(Duration::from_micros(10), Duration::from_micros(10));
    Queue::builder().retry(backoff).build()
}

/// Each such key killed a worker, while `workers()` still returned 4.
#[test]
fn key_whose_clone_panics_costs_no_worker_and_is_not_lost() {
    for panics_at in 1..=3 {
        let (queue, successes) = (quick_queue(), Arc::new(AtomicUsize::new(0)));
        let seen = Arc::clone(&successes);
        let handler = handler_with(move |_| {
            seen.fetch_add(1, Ordering::SeqCst);
            Ok::<_, String>(())
        });
        let pool =
            Pool::new(queue.clone()).workers(WORKERS).spawn_threads(handler).unwrap();
        let keys = ["a", "b", "c", "d", "e"].map(Key::new);
        for key in &keys {
            key.trap.panics_at.store(panics_at, Ordering::SeqCst);
        }
        queue.add_all(keys).unwrap();
        let unsettled =
            || queue.counts().processing + queue.counts().delayed + queue.len();
        while unsettled() > 0 {
            std::thread::yield_now();
        }
        assert_all_workers_run(&pool);
        // The queue makes the first clone, for the lease. If that panics, the key is stranded.
        let stranded = pool.drain_blocking(LONG).left.len();
        let succeeded = successes.load(Ordering::SeqCst);
        assert_eq!(stranded + succeeded, 5, "clone {panics_at} panics");
        assert_eq!(stranded > 0, panics_at == 1, "clone {panics_at} panics");
    }
}

/// The queue makes the first clone, for the lease, and the pool the second, for the run.
#[test]
fn run_whose_key_cannot_be_cloned_has_failed() {
    let (queue, failures) = (quick_queue(), Arc::new(Mutex::new(Vec::new())));
    let seen = Arc::clone(&failures);
    let (done, is_done) = mpsc::channel();
    let pool = Pool::new(queue.clone()).on_failure(move |key: &Key, failure| {
        seen.lock().unwrap().push((key.name, failure.to_string()));
    });
    let pool = pool.spawn_threads(move |run| done.send(run.name));
    let key = Key::new("a");
    key.trap.panics_at.store(2, Ordering::SeqCst);
    queue.add(key).unwrap();
    assert_eq!(is_done.recv(), Ok("a"), "it was retried");
    let failures = failures.lock().unwrap().clone();
    let [("a", message)] = &failures[..] else { panic!("{failures:?}") };
    assert!(message.contains("a clone that panics, on purpose"), "{message}");
    assert!(pool.unwrap().drain_blocking(LONG).left.is_empty());
}

#[test]
fn key_whose_drop_panics_costs_no_worker() {
    let queue = quick_queue();
    let handler = handler_with(|_| Ok::<_, String>(()));
    let pool = Pool::new(queue.clone()).workers(WORKERS).spawn_threads(handler).unwrap();
    for name in ["a", "b", "c", "d", "e", "f"] {
        let key = Key::new(name);
        key.trap.drop_panics.store(true, Ordering::SeqCst);
        queue.add(key).unwrap();
    }
    assert_all_workers_run(&pool);
    assert!(pool.drain_blocking(LONG).left.is_empty());
}

/// An error whose `Display` and `Drop` panic.
#[derive(Debug)]
struct BadError(Arc<AtomicU32>);

impl fmt::Display for BadError {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("a display that panics, on purpose");
    }
}

impl std::error::Error for BadError {}

impl Drop for BadError {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("a drop that panics, on purpose");
    }
}

fn six() -> [Key; 6] {
    ["a", "b", "c", "d", "e", "f"].map(Key::new)
}

#[test]
fn error_whose_code_panics_costs_no_worker() {
    let (queue, drops) = (quick_queue(), Arc::new(AtomicU32::new(0)));
    let dropped = Arc::clone(&drops);
    let handler = handler_with(move |_| Err(BadError(Arc::clone(&dropped))));
    let pool = Pool::new(queue.clone()).workers(WORKERS).max_retries(0);
    let pool = pool.spawn_threads(handler).unwrap();
    queue.add_all(six()).unwrap();
    queue.wait_idle_blocking();
    assert_all_workers_run(&pool);
    assert_eq!(drops.load(Ordering::SeqCst), 6);
    assert!(pool.drain_blocking(LONG).left.is_empty());
}

struct PanicsOnDrop;

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        panic!("a payload that panics, on purpose");
    }
}

#[test]
fn payload_whose_drop_panics_costs_no_worker() {
    let queue = quick_queue();
    let handler = handler_with(|_| -> Result<(), String> { panic_any(PanicsOnDrop) });
    let pool = Pool::new(queue.clone()).workers(WORKERS).max_retries(1);
    let pool = pool.on_dead(|_, _| panic_any(PanicsOnDrop));
    let pool = pool.spawn_threads(handler).unwrap();
    queue.add_all(six()).unwrap();
    queue.wait_idle_blocking();
    assert_all_workers_run(&pool);
    assert!(pool.drain_blocking(LONG).left.is_empty());
}

/// A recorder that panics in every call.
struct BadRecorder;

impl Recorder for BadRecorder {}

impl Metrics for BadRecorder {
    fn queue(&self, _name: &str, _probe: Probe) -> Box<dyn Recorder> {
        Box::new(Self)
    }

    fn pool(&self, _name: &str) -> Box<dyn PoolRecorder> {
        Box::new(Self)
    }
}

impl PoolRecorder for BadRecorder {
    fn workers(&self, _: usize) {
        panic!("workers");
    }

    fn started(&self) {
        panic!("started");
    }

    fn ended(&self, _: RunResult, _: Duration) {
        panic!("ended");
    }

    fn overran(&self) {
        panic!("overran");
    }

    fn dead(&self) {
        panic!("dead");
    }
}

#[test]
fn recorder_that_panics_costs_no_worker() {
    let queue = quick_queue();
    let handler = handler_with(|_| Err("fails"));
    let pool = Pool::new(queue.clone()).workers(WORKERS).max_retries(1);
    let pool = pool.timeout(Duration::ZERO).metrics(BadRecorder);
    let pool = pool.spawn_threads(handler).unwrap();
    queue.add_all(six()).unwrap();
    queue.wait_idle_blocking();
    assert_all_workers_run(&pool);
    assert!(pool.drain_blocking(LONG).left.is_empty());
}

/// A clock that panics in one of its calls.
#[derive(Clone)]
struct BadClock(Breaks);

#[derive(Clone, Copy, PartialEq)]
enum Breaks {
    Now,
    Timer,
    Poll,
}

impl Clock for BadClock {
    fn now(&self) -> Instant {
        assert!(self.0 != Breaks::Now, "a clock that panics, on purpose");
        SystemClock.now()
    }

    fn timer(&self, _: Instant) -> Timer {
        assert!(self.0 == Breaks::Poll, "a clock that panics, on purpose");
        Timer::new(std::future::poll_fn(|_| panic!("a timer that panics, on purpose")))
    }
}

#[test]
fn clock_that_panics_costs_no_worker_and_no_deadline() {
    for breaks in [Breaks::Now, Breaks::Timer, Breaks::Poll] {
        let queue = quick_queue();
        let (start, begun) = mpsc::channel();
        let (leave, left) = mpsc::channel::<()>();
        let left = Mutex::new(left);
        let handler = handler_with(move |key| {
            start.send(key.name).unwrap();
            left.lock().unwrap().recv()
        });
        let pool = Pool::new(queue.clone()).workers(WORKERS).clock(BadClock(breaks));
        let pool = pool.timeout(SECOND).spawn_threads(handler).unwrap();
        assert_all_workers_run(&pool);
        queue.add(Key::new("stuck")).unwrap();
        assert_eq!(begun.recv(), Ok("stuck"));
        let stopped = pool.stop_blocking(Duration::from_millis(1));
        assert_eq!(stopped.still_running, [Key::new("stuck")]);
        leave.send(()).unwrap();
        pool.join_blocking();
    }
}

#[cfg(feature = "tokio")]
#[test]
fn task_times_out_even_if_the_clock_panics() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for breaks in [Breaks::Now, Breaks::Timer, Breaks::Poll] {
        let queue = quick_queue();
        let (send, failures) = mpsc::channel();
        queue.add(Key::new("stuck")).unwrap();
        runtime.block_on(async {
            let pool = Pool::new(queue.clone()).clock(BadClock(breaks)).max_retries(0);
            let pool = pool.timeout(Duration::from_millis(1));
            let pool = pool.on_dead(move |_, failure| {
                send.send(failure.to_string()).unwrap();
            });
            let pool = pool.spawn_tasks(|_| std::future::pending::<()>()).unwrap();
            queue.wait_idle().await;
            assert_eq!(failures.try_recv().unwrap(), "the run took longer than 1ms");
            assert!(pool.drain(LONG).await.left.is_empty());
        });
    }
}

/// The clones of the lease and of each run.
#[cfg(feature = "tokio")]
#[test]
fn key_whose_code_panics_costs_no_task() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for panics_at in 2..=5 {
        let queue = quick_queue();
        let key = Key::new("a");
        key.trap.panics_at.store(panics_at, Ordering::SeqCst);
        queue.add(key).unwrap();
        runtime.block_on(async {
            let pool = Pool::new(queue.clone());
            let runs = AtomicU32::new(0);
            let pool = pool.spawn_tasks(move |_| {
                let again = runs.fetch_add(1, Ordering::SeqCst) < 2;
                async move { if again { Err("again") } else { Ok(()) } }
            });
            let pool = pool.unwrap();
            while queue.counts().delayed + queue.counts().processing + queue.len() > 0 {
                tokio::task::yield_now().await;
            }
            assert_eq!(pool.workers(), 1);
            queue.add(Key::new("b")).unwrap();
            queue.wait_idle().await;
            pool.drain(LONG).await;
        });
    }
}
