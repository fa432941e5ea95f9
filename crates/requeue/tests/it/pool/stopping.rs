//! Draining and stopping a pool.

use std::future::Future;
use std::sync::{Arc, mpsc};
use std::thread;

use requeue::testing::FakeClock;

use super::*;

#[test]
fn drain_processes_ready_keys_and_returns_delayed_ones() {
    let clock = FakeClock::new();
    let queue = queue_on(&clock);
    let runs = Runs::default();
    let seen = runs.clone();
    queue.add_all(["a", "b", "c"]).unwrap();
    queue.add_after("later", SECOND).unwrap();
    let pool = Pool::new(queue.clone()).clock(clock).spawn_threads(move |run| {
        seen.note(run.key());
        if *run.key() == "b" { Err("fails") } else { Ok(()) }
    });
    let stopped = pool.unwrap().drain_blocking(LONG);
    assert!(stopped.in_time());
    assert_eq!(["a", "b", "c"].map(|key| runs.of(key)), [1, 1, 1]);
    let mut left = stopped.left;
    left.sort_unstable();
    assert_eq!(left, ["b", "later"], "failed keys are not retried any more");
    assert!(queue.is_closed());
}

#[test]
fn stop_finishes_the_current_runs_and_returns_the_other_keys() {
    let queue = Queue::new();
    let (gate, pool) = gated(&queue, 1);
    queue.add_all([1, 2, 3]).unwrap();
    assert_eq!(gate.begun.recv(), Ok(1));
    let stopping = pool.clone();
    let waiting = thread::spawn(move || stopping.stop_blocking(LONG));
    while !queue.is_closed() {
        thread::yield_now();
    }
    gate.leave.send(()).unwrap();
    let stopped = waiting.join().unwrap();
    assert!(stopped.in_time());
    assert_eq!(stopped.left, [2, 3]);
}

#[test]
fn stop_lists_the_keys_that_are_running_at_the_deadline() {
    let clock = FakeClock::new();
    let queue = Queue::new();
    queue.add_all(["slow", "slower", "never ran"]).unwrap();
    let (start, begun) = mpsc::channel();
    let (leave, left) = mpsc::channel::<()>();
    let left = Mutex::new(left);
    let pool = Pool::new(queue.clone()).workers(2).clock(clock.clone());
    let pool = pool.spawn_threads(move |run| {
        start.send(*run.key()).unwrap();
        left.lock().unwrap().recv().unwrap_or_default();
    });
    let pool = pool.unwrap();
    for _ in 0..2 {
        begun.recv().unwrap();
    }
    queue.add("slow").unwrap(); // dirty: to be processed again, however the run ends
    let stopping = pool.clone();
    let waiting = thread::spawn(move || stopping.stop_blocking(SECOND));
    clock.wait_for_timers_blocking(1);
    clock.advance(SECOND);
    let mut stopped = waiting.join().unwrap();
    stopped.still_running.sort_unstable();
    assert_eq!(stopped.still_running, ["slow", "slower"]);
    assert_eq!(stopped.left, ["never ran", "slow"]);
    drop(leave);
    pool.join_blocking(); // threads leave after their run
    assert_eq!(queue.counts().processing, 0);
}

#[test]
fn deadline_of_zero_does_not_wait() {
    let queue = Queue::new();
    let (gate, pool) = gated(&queue, 1);
    queue.add_all([1, 2]).unwrap();
    gate.begun.recv().unwrap();
    let stopped = pool.stop_blocking(Duration::ZERO);
    assert_eq!((stopped.still_running, stopped.left), (vec![1], vec![2]));
    gate.leave.send(()).unwrap();
    pool.join_blocking();
    let again = pool.stop_blocking(Duration::ZERO);
    assert!(again.in_time() && again.left.is_empty(), "stopping twice");
}

#[test]
fn longest_duration_means_no_deadline() {
    let queue = Queue::<u32>::new();
    let pool = Pool::new(queue).workers(2).spawn_threads(|_| ()).unwrap();
    assert!(pool.stop_blocking(Duration::MAX).in_time());
}

/// Two pools share a queue. The runs of the other pool do not make this one late.
#[test]
fn pool_that_stops_in_time_does_not_list_the_keys_of_another() {
    let queue = Queue::new();
    let (gate, other) = gated(&queue, 1);
    queue.add(1).unwrap();
    gate.begun.recv().unwrap();
    let pool = Pool::new(queue).spawn_threads(|_| ()).unwrap();
    assert!(pool.stop_blocking(LONG).in_time());
    assert_eq!(other.stop_blocking(Duration::ZERO).still_running, [1]);
    drop(gate);
    other.join_blocking();
}

#[test]
fn workers_leave_when_the_queue_is_closed_and_empty() {
    let queue = Queue::new();
    queue.add_all(0..100).unwrap();
    let runs = Arc::new(Mutex::new(0));
    let count = Arc::clone(&runs);
    let pool = Pool::new(queue.clone()).workers(3).spawn_threads(move |_| {
        *count.lock().unwrap() += 1;
    });
    let pool = pool.unwrap();
    queue.close();
    pool.join_blocking();
    assert_eq!(*runs.lock().unwrap(), 100);
}

#[test]
fn workers_leave_when_every_handle_is_dropped() {
    let queue = Queue::new();
    queue.add(1).unwrap();
    let (alive, gone) = mpsc::channel::<()>();
    let pool = Pool::new(queue).workers(3).spawn_threads(move |_| {
        let _alive = &alive;
    });
    drop(pool);
    // The last worker drops the handler, and the handler drops the sender.
    assert!(gone.recv().is_err());
}

/// A strong handle in the handler would keep the queue open forever.
#[test]
fn handler_with_a_weak_queue_does_not_keep_its_pool_running() {
    let queue = Queue::new();
    queue.add(3).unwrap();
    let (weak, (alive, gone)) = (queue.downgrade(), mpsc::channel::<u32>());
    let pool = Pool::new(queue.clone()).spawn_threads(move |run| {
        alive.send(*run.key()).unwrap();
        if let (Some(queue), Some(next)) = (weak.upgrade(), run.checked_sub(1)) {
            queue.add(next).unwrap();
        }
    });
    queue.wait_idle_blocking();
    drop((queue, pool));
    assert_eq!(gone.iter().collect::<Vec<_>>(), [3, 2, 1, 0]);
}

#[test]
fn drain_of_a_paused_pool_returns_its_ready_keys() {
    let queue = Queue::new();
    queue.add(1).unwrap();
    let pool = Pool::new(queue).workers(0).spawn_threads(|_| ()).unwrap();
    let stopped = pool.drain_blocking(LONG);
    assert_eq!((stopped.in_time(), stopped.left), (true, vec![1]));
}

#[test]
fn debug_shows_counts_and_no_key() {
    let queue = Queue::<&str>::new();
    queue.add("secret").unwrap();
    let pool = Pool::new(queue).workers(0);
    assert!(!format!("{pool:?}").contains("secret"));
    let pool = pool.spawn_threads(|_| ()).unwrap();
    let text = format!("{pool:?}");
    assert!(text.contains("workers: 0") && !text.contains("secret"), "{text}");
}

#[test]
fn second_stop_lists_the_runs_that_have_not_ended_yet() {
    let queue = Queue::new();
    let (gate, pool) = gated(&queue, 2);
    queue.add_all([1, 2]).unwrap();
    gate.begun.recv().unwrap();
    gate.begun.recv().unwrap();
    for _ in 0..2 {
        let mut still_running = pool.stop_blocking(Duration::ZERO).still_running;
        still_running.sort_unstable();
        assert_eq!(still_running, [1, 2]);
    }
    gate.leave.send(()).unwrap();
    while queue.counts().processing == 2 {
        thread::yield_now();
    }
    let third = pool.drain_blocking(Duration::ZERO);
    assert!(!third.in_time());
    drop(gate); // the last run fails, and its key is retried
    pool.join_blocking();
    assert_eq!(pool.stop_blocking(Duration::ZERO).left.len(), 1);
}

#[test]
fn dropped_drain_takes_no_key() {
    let queue = Queue::new();
    let (gate, pool) = gated(&queue, 1);
    queue.add(1).unwrap();
    queue.add_after(2, SECOND).unwrap();
    gate.begun.recv().unwrap();
    for _ in 0..2 {
        let mut drain = std::pin::pin!(pool.drain(LONG));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(drain.as_mut().poll(&mut cx).is_pending());
    }
    assert_eq!(queue.counts().delayed, 1);
    gate.leave.send(()).unwrap();
    assert_eq!(pool.drain_blocking(LONG).left, [2]);
}

/// A regression of the types, not of the code: keys that are `'static` references hit a
/// limit of the compiler (rust-lang/rust#110338).
#[test]
fn futures_of_a_handle_are_send() {
    fn assert_send(future: impl Future + Send) {
        drop(future);
    }

    let pool = Pool::new(Queue::<&'static str>::new()).spawn_threads(|_| ()).unwrap();
    let (join, drain, stop) = (pool.clone(), pool.clone(), pool);
    assert_send(async move { join.join().await });
    assert_send(async move { drain.drain(LONG).await });
    assert_send(async move { stop.stop(LONG).await });
}
