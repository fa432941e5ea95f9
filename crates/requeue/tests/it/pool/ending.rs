//! Ways in which a pool ends.

use std::future::Future;
use std::sync::{Arc, mpsc};
use std::thread;

use requeue::testing::FakeClock;

use super::*;

#[test]
fn drain_finishes_what_is_ready_and_hands_back_what_is_delayed() {
    let clock = FakeClock::new();
    let queue = queue_on(&clock);
    let runs = Runs::default();
    let seen = runs.clone();
    queue.add_all(["a", "b", "c"]).unwrap();
    queue.add_after("later", SECOND).unwrap();
    let pool = Pool::new(queue.clone()).clock(clock).run(move |key: &&'static str| {
        seen.note(key);
        if *key == "b" { Err("fails") } else { Ok(()) }
    });
    let stopped = pool.unwrap().drain_blocking(LONG);
    assert!(stopped.in_time());
    assert_eq!(["a", "b", "c"].map(|key| runs.of(key)), [1, 1, 1]);
    let mut left = stopped.left;
    left.sort_unstable();
    assert_eq!(left, ["b", "later"], "what failed is not retried any more");
    assert!(queue.is_closed());
}

#[test]
fn stop_finishes_what_runs_and_hands_back_the_rest() {
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
fn stop_names_the_keys_that_still_run_at_the_deadline() {
    let clock = FakeClock::new();
    let queue = Queue::new();
    queue.add_all(["slow", "slower", "never ran"]).unwrap();
    let (start, begun) = mpsc::channel();
    let (leave, left) = mpsc::channel::<()>();
    let (start, left) = (Mutex::new(start), Mutex::new(left));
    let pool = Pool::new(queue.clone()).workers(2).clock(clock.clone());
    let pool = pool.run(move |key: &&'static str| {
        start.lock().unwrap().send(*key).unwrap();
        left.lock().unwrap().recv().unwrap_or_default();
        Ok::<_, String>(())
    });
    let pool = pool.unwrap();
    for _ in 0..2 {
        begun.recv().unwrap();
    }
    queue.add("slow").unwrap(); // once more: it is to be worked on, whatever becomes of the run
    let stopping = pool.clone();
    let waiting = thread::spawn(move || stopping.stop_blocking(SECOND));
    clock.wait_for_timers_blocking(1);
    clock.advance(SECOND);
    let mut stopped = waiting.join().unwrap();
    stopped.still_running.sort_unstable();
    assert_eq!(stopped.still_running, ["slow", "slower"]);
    assert_eq!(stopped.left, ["never ran", "slow"]);
    drop(leave);
    pool.join_blocking(); // threads end their run, and leave
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
fn deadline_that_never_comes_is_none() {
    let queue = Queue::<u32>::new();
    let pool = Pool::new(queue).workers(2).run(|_| Ok::<_, String>(())).unwrap();
    assert!(pool.stop_blocking(Duration::MAX).in_time());
}

#[test]
fn workers_leave_when_the_queue_is_closed_and_empty() {
    let queue = Queue::new();
    queue.add_all(0..100).unwrap();
    let runs = Arc::new(Mutex::new(0));
    let count = Arc::clone(&runs);
    let pool = Pool::new(queue.clone()).workers(3).run(move |_: &i32| {
        *count.lock().unwrap() += 1;
        Ok::<_, String>(())
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
    let (over, is_over) = mpsc::channel::<()>();
    let pool = Pool::new(queue).workers(3).run(move |_: &i32| {
        let _kept = &over;
        Ok::<_, String>(())
    });
    drop(pool);
    // The handler goes with the last worker, and the sender with the handler.
    assert!(is_over.recv().is_err());
}

#[test]
fn paused_pool_drains_nothing_and_says_so() {
    let queue = Queue::new();
    queue.add(1).unwrap();
    let pool = Pool::new(queue).workers(0).run(|_| Ok::<_, String>(())).unwrap();
    let stopped = pool.drain_blocking(LONG);
    assert_eq!((stopped.in_time(), stopped.left), (true, vec![1]));
}

#[test]
fn debug_shows_counts_and_no_key() {
    let queue = Queue::<&str>::new();
    queue.add("secret").unwrap();
    let pool = Pool::new(queue).workers(0);
    assert!(!format!("{pool:?}").contains("secret"));
    let pool = pool.run(|_| Ok::<_, String>(())).unwrap();
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
fn drain_that_is_dropped_takes_no_key() {
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
