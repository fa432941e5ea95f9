//! Pools of tasks when their runtime shuts down.

use std::future::{pending, ready};
use std::thread;

use requeue::metrics::RunResult;
use tokio::runtime::{Builder, Runtime};

use super::recording::{Event, Events};
use super::*;

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).build().unwrap()
}

/// Starts a pool of two tasks that run forever, on its own runtime.
fn stuck(queue: &Queue<u32>, events: &Events) -> (Runtime, Handle<Queue<u32>>) {
    let runtime = runtime();
    let (start, begun) = mpsc::channel();
    let pool = runtime.block_on(async {
        let pool = Pool::new(queue.clone()).name("files").workers(2);
        pool.metrics(events.clone()).spawn_tasks(move |run| {
            start.send(run.into_key()).unwrap();
            pending::<()>()
        })
    });
    begun.recv().unwrap();
    begun.recv().unwrap();
    (runtime, pool.unwrap())
}

/// Such a key was lost, and the end of its run was never recorded.
#[test]
fn shutdown_releases_the_keys_of_running_tasks() {
    let (queue, events) = (Queue::new(), Events::default());
    queue.add_all([1, 2, 3]).unwrap();
    let (runtime, pool) = stuck(&queue, &events);
    assert_eq!(queue.counts().processing, 2);
    drop(runtime);
    assert_eq!(queue.counts().processing, 0);
    assert_eq!(pool.workers(), 0, "the tasks are gone");
    let ended = |event: &Event| matches!(event, Event::Ended(RunResult::Released, _));
    assert_eq!(events.take().iter().filter(|event| ended(event)).count(), 2);
    assert_eq!([1, 2].map(|key| queue.num_requeues(&key)), [0, 0], "not a failure");
    let mut stopped = pool.drain_blocking(LONG);
    stopped.left.sort_unstable();
    assert_eq!((stopped.in_time(), stopped.left), (true, vec![1, 2, 3]));
}

#[test]
fn callers_on_other_threads_return_when_the_runtime_shuts_down() {
    let (queue, events) = (Queue::new(), Events::default());
    queue.add_all([1, 2]).unwrap();
    let (runtime, pool) = stuck(&queue, &events);
    let calls: [fn(&Handle<Queue<u32>>); 3] = [
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

/// tokio drops such a task at once. The pool replaced its worker again and again.
#[test]
fn set_workers_after_the_shutdown_is_an_error() {
    let runtime = runtime();
    let queue = Queue::<u32>::new();
    let pool = runtime
        .block_on(async { Pool::new(queue.clone()).spawn_tasks(|_| ready(())).unwrap() });
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
    let error = pool.spawn_tasks(|_| ready(())).unwrap_err();
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
fn key_is_released_even_if_its_future_panics_in_the_shutdown() {
    let queue = Queue::new();
    queue.add(1).unwrap();
    let runtime = Builder::new_current_thread().build().unwrap();
    let pool = runtime.block_on(async {
        let pool = Pool::new(queue.clone()).spawn_tasks(|_| async {
            let _panics = PanicsOnDrop;
            pending::<()>().await;
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

/// Tasks that leave at once look like tasks that a dead runtime never started.
#[test]
fn tasks_on_a_closed_queue_are_not_an_error() {
    let runtime = runtime();
    let queue = Queue::<u32>::new();
    queue.close();
    runtime.block_on(async {
        let pool = Pool::new(queue).workers(50);
        let pool = pool.spawn_tasks(|_| ready(())).unwrap();
        pool.join().await;
        assert_eq!(pool.workers(), 0);
    });
}
