//! Pools of tasks whose runtime shuts down.

use std::future::{pending, ready};
use std::thread;

use requeue::metrics::Ended;
use tokio::runtime::{Builder, Runtime};

use super::recording::{Event, Events};
use super::*;

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).build().unwrap()
}

/// A pool of two tasks that run forever, and its runtime.
fn stuck(queue: &Queue<u32>, events: &Events) -> (Runtime, Handle<u32>) {
    let runtime = runtime();
    let (start, begun) = mpsc::channel();
    let pool = runtime.block_on(async {
        let pool = Pool::new(queue.clone()).name("files").workers(2);
        pool.metrics(events.clone()).run_async(move |key: u32| {
            start.send(key).unwrap();
            pending::<Result<(), String>>()
        })
    });
    begun.recv().unwrap();
    begun.recv().unwrap();
    (runtime, pool.unwrap())
}

/// Such a key was done, and so lost; its run never ended for the recorder.
#[test]
fn runs_that_are_dropped_return_their_keys_to_the_queue() {
    let (queue, events) = (Queue::new(), Events::default());
    queue.add_all([1, 2, 3]).unwrap();
    let (runtime, pool) = stuck(&queue, &events);
    assert_eq!(queue.counts().processing, 2);
    drop(runtime);
    assert_eq!(queue.counts().processing, 0);
    assert_eq!(pool.workers(), 0, "the tasks are gone");
    let ended = |event: &Event| matches!(event, Event::Ended(Ended::Cancelled, _));
    assert_eq!(events.take().iter().filter(|event| ended(event)).count(), 2);
    let mut stopped = pool.drain_blocking(LONG);
    stopped.left.sort_unstable();
    assert_eq!((stopped.in_time(), stopped.left), (true, vec![1, 2, 3]));
}

#[test]
fn callers_on_other_threads_return() {
    let (queue, events) = (Queue::new(), Events::default());
    queue.add_all([1, 2]).unwrap();
    let (runtime, pool) = stuck(&queue, &events);
    let calls: [fn(&Handle<u32>); 3] = [
        |pool| pool.join_blocking(),
        |pool| drop(pool.drain_blocking(LONG)),
        |pool| drop(pool.stop_blocking(LONG)),
    ];
    let callers = calls.map(|call| {
        let pool = pool.clone();
        thread::spawn(move || call(&pool))
    });
    while !queue.is_closed() {
        thread::yield_now();
    }
    drop(runtime);
    for caller in callers {
        caller.join().unwrap();
    }
}

/// tokio drops such a task at once. Its worker was missing again, and so on without end.
#[test]
fn set_workers_after_the_shutdown_is_an_error() {
    let runtime = runtime();
    let queue = Queue::<u32>::new();
    let pool = runtime.block_on(async {
        Pool::new(queue.clone()).run_async(|_| ready(Ok::<_, String>(()))).unwrap()
    });
    assert_eq!(pool.workers(), 1);
    drop(runtime);
    let error = pool.set_workers(3).unwrap_err();
    assert_eq!(error.to_string(), "the tokio runtime has shut down");
    assert_eq!((pool.workers(), queue.parked()), (0, 0));
    pool.set_workers(0).unwrap();
    queue.add(1).unwrap();
    assert_eq!(pool.stop_blocking(LONG).left, [1]);
}

#[test]
fn pool_started_on_a_runtime_that_has_shut_down_is_an_error() {
    let runtime = runtime();
    let entered = runtime.handle().clone();
    drop(runtime);
    let _entered = entered.enter();
    let queue = Queue::<u32>::new();
    let pool = Pool::new(queue.clone()).workers(2);
    let error = pool.run_async(|_| ready(Ok::<_, String>(()))).unwrap_err();
    assert_eq!(error.to_string(), "the tokio runtime has shut down");
}

/// A handler's future whose destructor panics must not keep the lease.
struct PanicsOnDrop;

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        panic!("a drop that panics, on purpose");
    }
}

#[test]
fn future_that_panics_in_the_shutdown_returns_its_key() {
    let queue = Queue::new();
    queue.add(1).unwrap();
    let runtime = Builder::new_current_thread().build().unwrap();
    let pool = runtime.block_on(async {
        let pool = Pool::new(queue.clone()).run_async(|_: i32| async {
            let _bomb = PanicsOnDrop;
            pending::<Result<(), String>>().await
        });
        while queue.counts().processing == 0 {
            tokio::task::yield_now().await;
        }
        tokio::task::yield_now().await;
        pool.unwrap()
    });
    drop(runtime);
    pool.join_blocking();
    assert_eq!(pool.workers(), 0);
    assert_eq!(pool.drain_blocking(LONG).left, [1]);
}

/// Tasks that leave because the queue is closed are not a runtime that has shut down.
#[test]
fn tasks_on_a_closed_queue_are_no_error() {
    let runtime = runtime();
    let queue = Queue::<u32>::new();
    queue.close();
    runtime.block_on(async {
        let pool = Pool::new(queue).workers(50);
        let pool = pool.run_async(|_| ready(Ok::<_, String>(()))).unwrap();
        pool.join().await;
        assert_eq!(pool.workers(), 0);
    });
}
