//! Pools of tasks: what only they can do, and that the rest holds for them too.

use std::future::{Future, pending, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;

use requeue::metrics::Ended;
use requeue::testing::FakeClock;
use tokio::runtime::{Builder, Runtime};

use super::recording::{Event, Events};
use super::*;

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).build().unwrap()
}

/// Runs a test in a runtime with one thread, where every step is where it is awaited.
fn alone<T>(test: impl Future<Output = T>) -> T {
    Builder::new_current_thread().build().unwrap().block_on(test)
}

/// Lets all other tasks go on until each of them waits.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn outcomes_of_tasks_are_those_of_threads() {
    let clock = FakeClock::new();
    let queue = queue_on(&clock);
    let (morgue, runs) = (Morgue::new(), Runs::default());
    let seen = runs.clone();
    alone(async {
        queue.add_all(["done", "after", "give up", "error", "panic"]).unwrap();
        let pool = Pool::new(queue.clone())
            .workers(2)
            .max_retries(1)
            .on_dead(morgue.callback())
            .run_async(move |key: &'static str| {
                seen.note(key);
                async move {
                    tokio::task::yield_now().await;
                    match key {
                        "after" => Ok(Outcome::After(LONG)),
                        "give up" => Ok(Outcome::GiveUp),
                        "error" => Err("no".to_owned()),
                        "panic" => panic!("as the test wants"),
                        _ => Ok(Outcome::Done),
                    }
                }
            })
            .unwrap();
        settle().await;
        assert_eq!(queue.counts().delayed, 3);
        assert_eq!(morgue.bodies(), [("give up", Failure::GaveUp)]);
        clock.advance(SECOND);
        settle().await;
        let panicked = Failure::Panicked("as the test wants".to_owned());
        let dead = [("error", Failure::Error("no".to_owned())), ("panic", panicked)];
        let mut bodies = morgue.bodies();
        bodies.sort_unstable_by_key(|(key, _)| *key);
        assert_eq!(bodies, dead);
        let runs = ["done", "after", "give up", "error", "panic"].map(|key| runs.of(key));
        assert_eq!(runs, [1, 1, 1, 2, 2]);
        assert_eq!(pool.drain(SECOND).await.left, ["after"]);
    });
}

/// Counts how many of it exist.
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
fn run_that_takes_too_long_is_cancelled_and_retried() {
    let clock = FakeClock::new();
    let backoff = Exponential::new(SECOND, SECOND * 1000);
    let queue =
        Queue::builder().name("files").clock(clock.clone()).retry(backoff).build();
    let (events, alive) = (Events::default(), Arc::new(AtomicU32::new(0)));
    let futures = Arc::clone(&alive);
    alone(async {
        let pool = Pool::new(queue.clone())
            .clock(clock.clone())
            .timeout(SECOND * 5)
            .metrics(events.clone())
            .run_async(move |key: &str| {
                let counted = Counted::new(&futures);
                async move {
                    let _counted = counted;
                    if key == "slow" { pending().await } else { Ok::<_, String>(()) }
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
            Event::Ended(Ended::TimedOut, SECOND * 5),
            Event::Started,
            Event::Ended(Ended::Done, Duration::ZERO),
        ];
        assert_eq!(events.take(), expected);
        assert_eq!(pool.drain(SECOND).await.left, ["slow"]);
    });
}

#[test]
fn stop_cancels_what_still_runs_at_the_deadline_and_names_it() {
    let clock = FakeClock::new();
    let queue = Queue::builder().name("files").clock(clock.clone()).build();
    let events = Events::default();
    alone(async {
        queue.add_all(["stuck", "stuck too", "never ran"]).unwrap();
        let pool = Pool::new(queue.clone())
            .workers(2)
            .clock(clock.clone())
            .metrics(events.clone())
            .run_async(|_| pending::<Result<(), String>>())
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
        assert_eq!(events.take()[3..], [Event::Ended(Ended::Cancelled, SECOND); 2]);
    });
}

#[test]
fn dropped_stop_loses_nothing() {
    let queue = Queue::new();
    alone(async {
        queue.add_all(["stuck", "left"]).unwrap();
        let pool = Pool::new(queue.clone());
        let pool = pool.run_async(|_| pending::<Result<(), String>>()).unwrap();
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

/// A future whose destructor panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("while it was dropped");
    }
}

#[test]
fn panic_of_a_future_that_is_dropped_costs_no_worker() {
    let clock = FakeClock::new();
    let queue = queue_on(&clock);
    let failures = Morgue::new();
    alone(async {
        let pool = Pool::new(queue.clone())
            .clock(clock.clone())
            .timeout(SECOND)
            .on_failure(failures.callback())
            .run_async(|key: &str| async move {
                if key == "quick" {
                    return Ok::<_, String>(());
                }
                let _bomb = Bomb;
                pending().await
            })
            .unwrap();
        queue.add_all(["bomb", "quick"]).unwrap();
        settle().await;
        clock.advance(SECOND);
        settle().await;
        let message = "while it was dropped".to_owned();
        assert_eq!(failures.bodies(), [("bomb", Failure::Panicked(message))]);
        assert_eq!(queue.counts().delayed, 1);
        assert_eq!(queue.len(), 0, "the worker went on to the next");
        drop(pool);
    });
}

#[test]
fn tasks_come_and_go_while_the_pool_runs() {
    let queue = Queue::new();
    let held = Arc::new(AtomicU32::new(0));
    let running = Arc::clone(&held);
    alone(async {
        queue.add_all(0..10).unwrap();
        let pool = Pool::new(queue.clone()).run_async(move |_: i32| {
            let counted = Counted::new(&running);
            async move {
                let _counted = counted;
                pending::<Result<(), String>>().await
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
fn many_tasks_on_several_threads_run_every_key_once_at_a_time() {
    let queue = Queue::new();
    let (busy, runs): (Arc<[AtomicU32; 8]>, Arc<[AtomicU32; 8]>) = Default::default();
    let (held, counted) = (Arc::clone(&busy), Arc::clone(&runs));
    let overlaps = Arc::new(AtomicU32::new(0));
    let overlapped = Arc::clone(&overlaps);
    runtime().block_on(async {
        let pool = Pool::new(queue.clone()).workers(16).max_retries(0);
        let pool = pool.on_failure(move |_, _| {
            overlapped.fetch_add(1, Ordering::SeqCst);
        });
        let pool = pool.run_async(move |key: usize| {
            let (held, counted) = (Arc::clone(&held), Arc::clone(&counted));
            async move {
                let others = held[key].fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                held[key].fetch_sub(1, Ordering::SeqCst);
                counted[key].fetch_add(1, Ordering::SeqCst);
                if others == 0 { Ok(Outcome::Done) } else { Err("with two workers") }
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
    let error = pool.run_async(|_| ready(Ok::<_, String>(()))).unwrap_err();
    assert!(error.to_string().contains("no reactor running"), "{error}");
}

#[test]
fn thread_can_change_and_drain_a_pool_of_tasks() {
    let runtime = runtime();
    let queue = Queue::new();
    queue.add_all(0..100).unwrap();
    let pool = runtime.block_on(async {
        Pool::new(queue).run_async(|_: i32| ready(Ok::<_, String>(()))).unwrap()
    });
    pool.set_workers(3).unwrap();
    let stopped = pool.drain_blocking(LONG);
    assert!(stopped.in_time() && stopped.left.is_empty());
}
