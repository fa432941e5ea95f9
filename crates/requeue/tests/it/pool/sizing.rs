//! The number of workers, and callers that wait for them to leave.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::*;

/// Each worker left at once and was replaced. 256 workers took seconds, 1000 did not return.
#[test]
fn pool_on_a_closed_queue_starts_each_worker_once() {
    let queue = Queue::<u32>::new();
    queue.close();
    let pool = Pool::new(queue).workers(1000).spawn_threads(|_| ()).unwrap();
    pool.join_blocking();
    assert_eq!(pool.workers(), 0, "all have left");
    pool.set_workers(3).unwrap();
    pool.join_blocking();
    assert_eq!(pool.workers(), 0);
}

#[test]
fn number_of_workers_stays_zero_after_stop() {
    let queue = Queue::new();
    let (gate, pool) = gated(&queue, 1);
    queue.add_all([1, 2]).unwrap();
    gate.begun.recv().unwrap();
    let stopped = pool.stop_blocking(Duration::ZERO);
    assert_eq!((stopped.still_running, stopped.left), (vec![1], vec![2]));
    pool.set_workers(4).unwrap();
    assert_eq!(pool.workers(), 0);
    gate.leave.send(()).unwrap();
    pool.join_blocking();
}

/// Polls a future once and expects it to wait.
fn poll_pending(future: Pin<&mut impl Future>, waker: &Waker) {
    assert!(future.poll(&mut Context::from_waker(waker)).is_pending());
}

#[derive(Default)]
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// The wakers of such futures stayed registered until the pool was gone.
#[test]
fn dropped_join_drain_and_stop_release_their_wakers() {
    let queue = Queue::new();
    let (gate, pool) = gated(&queue, 1);
    queue.add(1).unwrap();
    gate.begun.recv().unwrap();
    let counter = Arc::new(Counter::default());
    let waker = Waker::from(Arc::clone(&counter));
    {
        let (mut join, mut drain) = (pin!(pool.join()), pin!(pool.drain(LONG)));
        let mut stop = pin!(pool.stop(LONG));
        poll_pending(join.as_mut(), &waker);
        poll_pending(join, &waker);
        poll_pending(drain.as_mut(), &waker);
        poll_pending(stop.as_mut(), &waker);
        assert!(Arc::strong_count(&counter) > 2);
    }
    assert_eq!(Arc::strong_count(&counter), 2, "this test's own");
    let woken = counter.0.load(Ordering::SeqCst);
    gate.leave.send(()).unwrap();
    pool.join_blocking();
    assert_eq!(counter.0.load(Ordering::SeqCst), woken);
}

struct PanicsOnWake;

impl Wake for PanicsOnWake {
    fn wake(self: Arc<Self>) {
        panic!("a waker that panics, on purpose");
    }
}

/// The first waker's panic cost all callers behind it their wake-up.
#[test]
fn waker_that_panics_does_not_keep_other_callers_waiting() {
    let queue = Queue::new();
    let (gate, pool) = gated(&queue, 1);
    queue.add(1).unwrap();
    gate.begun.recv().unwrap();
    let counter = Arc::new(Counter::default());
    let wakers = [
        Waker::from(Arc::new(PanicsOnWake)),
        Waker::from(Arc::clone(&counter)),
        Waker::from(Arc::new(PanicsOnWake)),
        Waker::from(Arc::clone(&counter)),
    ];
    let mut joins = Vec::new();
    for waker in &wakers {
        let mut join = Box::pin(pool.join());
        poll_pending(join.as_mut(), waker);
        joins.push(join);
    }
    gate.leave.send(()).unwrap();
    queue.close();
    pool.join_blocking();
    while counter.0.load(Ordering::SeqCst) < 2 {
        std::thread::yield_now();
    }
}

/// A waker that calls the pool whenever it is woken or dropped.
struct Reenters(Handle<Queue<u32>>);

impl Wake for Reenters {
    fn wake(self: Arc<Self>) {
        self.0.set_workers(self.0.workers()).unwrap();
    }
}

impl Drop for Reenters {
    fn drop(&mut self) {
        self.0.set_workers(self.0.workers()).unwrap();
    }
}

#[test]
fn waker_that_calls_the_pool_does_not_deadlock() {
    let queue = Queue::new();
    let (gate, pool) = gated(&queue, 1);
    queue.add(1).unwrap();
    gate.begun.recv().unwrap();
    {
        let mut join = pin!(pool.join());
        for _ in 0..2 {
            // Replaces the waker of the last poll, which drops it.
            let waker = Waker::from(Arc::new(Reenters(pool.clone())));
            poll_pending(join.as_mut(), &waker);
        }
        queue.close();
        gate.leave.send(()).unwrap();
        pool.join_blocking();
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(join.poll(&mut cx), Poll::Ready(()));
    }
}

/// A task that waits until the queue is idle and then stops the pool, polled by its waker.
struct PolledInline {
    task: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    done: mpsc::Sender<()>,
}

impl PolledInline {
    fn poll(self: Arc<Self>) {
        let taken = self.task.lock().unwrap().take();
        let Some(mut task) = taken else { return };
        let waker = Waker::from(Arc::clone(&self));
        match task.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(()) => self.done.send(()).unwrap(),
            Poll::Pending => *self.task.lock().unwrap() = Some(task),
        }
    }
}

impl Wake for PolledInline {
    fn wake(self: Arc<Self>) {
        self.poll();
    }
}

/// The queue wakes the task while the worker ends a lease and looks for the next key, so
/// `stop` runs inside that call.
#[test]
fn stop_inside_a_wake_up_of_the_queue_does_not_deadlock() {
    let queue = Queue::new();
    let (gate, pool) = gated(&queue, 1);
    queue.add(1).unwrap();
    gate.begun.recv().unwrap();
    let (done, is_done) = mpsc::channel();
    let stopping = pool.clone();
    let task = Box::pin(async move {
        stopping.queue().wait_idle().await;
        assert!(stopping.stop(Duration::ZERO).await.left.is_empty());
    });
    Arc::new(PolledInline { task: Mutex::new(Some(task)), done }).poll();
    gate.leave.send(()).unwrap();
    assert_eq!(is_done.recv(), Ok(()));
    pool.join_blocking();
}
