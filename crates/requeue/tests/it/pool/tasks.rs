//! Pools of tasks: cancellation, timeouts, and the rules that also hold for threads.

use std::future::{Future, pending, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;

use requeue::metrics::RunResult;
use requeue::testing::FakeClock;
use tokio::runtime::{Builder, Runtime};

use super::recording::{Event, Events};
use super::*;

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).build().unwrap()
}

/// Runs a test in a runtime with one thread, where other tasks run only at an await.
fn alone<T>(test: impl Future<Output = T>) -> T {
    Builder::new_current_thread().build().unwrap().block_on(test)
}

/// Lets all other tasks run until each of them waits.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn tasks_and_threads_finish_keys_in_the_same_way() {
    let clock = FakeClock::new();
    let queue = queue_on(&clock);
    let (dead, runs) = (Failures::default(), Runs::default());
    let seen = runs.clone();
    alone(async {
        queue.add_all(["success", "after", "give up", "error", "panic"]).unwrap();
        let pool = Pool::new(queue.clone())
            .workers(2)
            .max_retries(1)
            .on_dead(dead.callback())
            .spawn_tasks(move |run| {
                seen.note(run.key());
                async move {
                    tokio::task::yield_now().await;
                    match *run.key() {
                        "after" => Ok(Finish::RequeueAfter(LONG)),
                        "give up" => Ok(Finish::GiveUp),
                        "error" => Err("no"),
                        "panic" => panic!("on purpose"),
                        _ => Ok(Finish::Succeed),
                    }
                }
            })
            .unwrap();
        settle().await;
        assert_eq!(queue.counts().delayed, 3);
        assert_eq!(dead.take(), [failed("give up", "the handler gave up")]);
        clock.advance(SECOND);
        settle().await;
        let mut dead = dead.take();
        dead.sort_unstable();
        let panicked = failed("panic", "the handler panicked: on purpose");
        assert_eq!(dead, [failed("error", "no"), panicked]);
        let keys = ["success", "after", "give up", "error", "panic"];
        assert_eq!(keys.map(|key| runs.of(key)), [1, 1, 1, 2, 2]);
        assert_eq!(pool.drain(SECOND).await.left, ["after"]);
    });
}

/// Counts its living instances.
struct Counted(Arc<AtomicU32>);

impl Counted {
    fn new(count: &Arc<AtomicU32>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn run_that_exceeds_its_timeout_is_cancelled_and_retried() {
    let clock = FakeClock::new();
    let backoff = Exponential::new(SECOND, SECOND * 1000);
    let queue = Queue::<&str>::builder()
        .name("files")
        .clock(clock.clone())
        .retry(backoff)
        .build();
    let (events, alive) = (Events::default(), Arc::new(AtomicU32::new(0)));
    let futures = Arc::clone(&alive);
    alone(async {
        let pool = Pool::new(queue.clone())
            .clock(clock.clone())
            .timeout(SECOND * 5)
            .metrics(events.clone())
            .spawn_tasks(move |run| {
                let counted = Counted::new(&futures);
                async move {
                    let _counted = counted;
                    if *run.key() == "slow" {
                        pending::<()>().await;
                    }
                }
            })
            .unwrap();
        queue.add_all(["slow", "quick"]).unwrap();
        settle().await;
        assert_eq!((queue.len(), alive.load(Ordering::Relaxed)), (1, 1));
        clock.advance(SECOND * 5);
        settle().await;
        assert_eq!(alive.load(Ordering::Relaxed), 0, "the future is gone");
        assert_eq!((queue.num_requeues(&"slow"), queue.counts().delayed), (1, 1));
        let expected = [
            Event::Workers(1),
            Event::Started,
            Event::Ended(RunResult::TimedOut, SECOND * 5),
            Event::Started,
            Event::Ended(RunResult::Succeeded, Duration::ZERO),
        ];
        assert_eq!(events.take(), expected);
        assert_eq!(pool.drain(SECOND).await.left, ["slow"]);
    });
}

#[test]
fn stop_cancels_and_lists_the_runs_at_its_deadline() {
    let clock = FakeClock::new();
    let queue = Queue::builder().name("files").clock(clock.clone()).build();
    let events = Events::default();
    alone(async {
        queue.add_all(["stuck", "stuck too", "never ran"]).unwrap();
        let pool = Pool::new(queue.clone())
            .workers(2)
            .clock(clock.clone())
            .metrics(events.clone())
            .spawn_tasks(|_| pending::<()>())
            .unwrap();
        settle().await;
        let stopping = pool.clone();
        let waiting = tokio::spawn(async move { stopping.stop(SECOND).await });
        settle().await;
        assert!(queue.is_closed() && !waiting.is_finished());
        clock.advance(SECOND);
        let mut stopped = waiting.await.unwrap();
        stopped.still_running.sort_unstable();
        assert_eq!(stopped.still_running, ["stuck", "stuck too"]);
        assert_eq!(stopped.left, ["never ran"]);
        pool.join().await;
        assert_eq!(queue.counts().processing, 0, "the runs are cancelled");
        let failures = ["stuck", "stuck too"].map(|key| queue.num_requeues(&key));
        assert_eq!(failures, [0, 0], "and have not failed");
        assert_eq!(events.take()[3..], [Event::Ended(RunResult::Released, SECOND); 2]);
    });
}

#[test]
fn dropped_stop_loses_nothing() {
    let queue = Queue::new();
    alone(async {
        queue.add_all(["stuck", "left"]).unwrap();
        let pool = Pool::new(queue.clone());
        let pool = pool.spawn_tasks(|_| pending::<()>()).unwrap();
        settle().await;
        {
            let mut stop = Box::pin(pool.stop(LONG));
            let polled = std::future::poll_fn(|cx| Poll::Ready(stop.as_mut().poll(cx)));
            assert!(polled.await.is_pending());
        }
        let stopped = pool.stop(Duration::ZERO).await;
        assert_eq!((stopped.still_running, stopped.left), (vec!["stuck"], vec!["left"]));
    });
}

struct PanicsOnDrop;

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        panic!("a drop that panics, on purpose");
    }
}

#[test]
fn panic_of_a_cancelled_future_costs_no_worker() {
    let clock = FakeClock::new();
    let queue = queue_on(&clock);
    let failures = Failures::default();
    alone(async {
        let pool = Pool::new(queue.clone())
            .clock(clock.clone())
            .timeout(SECOND)
            .on_failure(failures.callback())
            .spawn_tasks(|run| async move {
                if *run.key() != "quick" {
                    let _panics = PanicsOnDrop;
                    pending::<()>().await;
                }
            })
            .unwrap();
        queue.add_all(["panic", "quick"]).unwrap();
        settle().await;
        clock.advance(SECOND);
        settle().await;
        let message = "the handler panicked: a drop that panics, on purpose";
        assert_eq!(failures.take(), [failed("panic", message)]);
        assert_eq!(queue.counts().delayed, 1);
        assert_eq!(queue.len(), 0, "the worker took the next key");
        drop(pool);
    });
}

#[test]
fn number_of_tasks_changes_while_the_pool_runs() {
    let queue = Queue::new();
    let held = Arc::new(AtomicU32::new(0));
    let running = Arc::clone(&held);
    alone(async {
        queue.add_all(0..10).unwrap();
        let pool = Pool::new(queue.clone()).spawn_tasks(move |_| {
            let counted = Counted::new(&running);
            async move {
                let _counted = counted;
                pending::<()>().await;
            }
        });
        let pool = pool.unwrap();
        for workers in [1, 4, 2] {
            pool.set_workers(workers).unwrap();
            settle().await;
            let expected =
                u32::try_from(workers).unwrap().max(held.load(Ordering::Relaxed));
            assert_eq!(held.load(Ordering::Relaxed), expected);
        }
        assert_eq!(held.load(Ordering::Relaxed), 4, "no run is disturbed");
        assert_eq!(pool.stop(Duration::ZERO).await.still_running.len(), 4);
        pool.join().await;
        assert_eq!(held.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn no_key_is_processed_by_two_tasks() {
    let queue = Queue::<usize>::new();
    let (busy, runs): (Arc<[AtomicU32; 8]>, Arc<[AtomicU32; 8]>) = Default::default();
    let (held, counted) = (Arc::clone(&busy), Arc::clone(&runs));
    let overlaps = Arc::new(AtomicU32::new(0));
    let overlapped = Arc::clone(&overlaps);
    runtime().block_on(async {
        let pool = Pool::new(queue.clone()).workers(16).max_retries(0);
        let pool = pool.on_failure(move |_, _| {
            overlapped.fetch_add(1, Ordering::SeqCst);
        });
        let pool = pool.spawn_tasks(move |run| {
            let (held, counted) = (Arc::clone(&held), Arc::clone(&counted));
            async move {
                let key = run.into_key();
                let others = held[key].fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                held[key].fetch_sub(1, Ordering::SeqCst);
                counted[key].fetch_add(1, Ordering::SeqCst);
                if others == 0 { Ok(()) } else { Err("two tasks") }
            }
        });
        let pool = pool.unwrap();
        for round in 0..500 {
            queue.add(round % 8).unwrap();
            if round % 50 == 0 {
                pool.set_workers(1 + round % 17).unwrap();
            }
            tokio::task::yield_now().await;
        }
        queue.wait_idle().await;
        assert!(pool.drain(LONG).await.left.is_empty());
    });
    assert!(runs.iter().all(|runs| runs.load(Ordering::SeqCst) > 0));
    assert_eq!(overlaps.load(Ordering::SeqCst), 0);
}

#[test]
fn pool_of_tasks_needs_a_runtime() {
    let pool = Pool::new(Queue::<u32>::new());
    let error = pool.spawn_tasks(|_| ready(())).unwrap_err();
    assert!(error.to_string().contains("no reactor running"), "{error}");
}

#[test]
fn thread_can_resize_and_drain_a_pool_of_tasks() {
    let runtime = runtime();
    let queue = Queue::new();
    queue.add_all(0..100).unwrap();
    let pool =
        runtime.block_on(async { Pool::new(queue).spawn_tasks(|_| ready(())).unwrap() });
    pool.set_workers(3).unwrap();
    let stopped = pool.drain_blocking(LONG);
    assert!(stopped.in_time() && stopped.left.is_empty());
}
