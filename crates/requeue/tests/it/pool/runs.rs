//! What a handler learns about its run.

use requeue::AddOptions;
use requeue::order::Priority;

use super::*;

#[test]
fn run_counts_its_attempts() {
    let clock = FakeClock::new();
    let queue = queue_on(&clock);
    let (runs, (send, attempts)) = (Runs::default(), mpsc::channel());
    let pool = Pool::new(queue.clone()).spawn_threads(move |run| {
        send.send(run.attempt()).unwrap();
        if runs.note(run.key()) < 2 { Err("not yet") } else { Ok(()) }
    });
    queue.add("a").unwrap();
    for backoff in [SECOND, SECOND * 2] {
        clock.wait_for_timers_blocking(1);
        clock.advance(backoff);
    }
    queue.wait_idle_blocking();
    queue.add("a").unwrap();
    queue.wait_idle_blocking();
    assert_eq!(attempts.try_iter().collect::<Vec<_>>(), [1, 2, 3, 1]);
    drop(pool);
}

#[test]
fn run_knows_its_priority_and_has_no_token_in_memory() {
    let queue = Queue::builder().order(Priority::new()).build();
    queue.add_with("a", AddOptions::new().priority(7)).unwrap();
    let (send, seen) = mpsc::channel();
    let pool = Pool::new(queue).spawn_threads(move |run: &Run<&str>| {
        send.send((run.priority(), run.token(), run.lease_deadline())).unwrap();
    });
    assert_eq!(seen.recv(), Ok((7, None, None)));
    pool.unwrap().drain_blocking(LONG);
}

#[test]
fn run_on_a_thread_is_cancelled_at_the_deadline_of_stop() {
    let queue = Queue::new();
    queue.add("a").unwrap();
    let (start, begun) = mpsc::channel();
    let pool = Pool::new(queue).spawn_threads(move |run: &Run<&str>| {
        start.send(run.is_cancelled()).unwrap();
        while !run.is_cancelled() {
            std::thread::yield_now();
        }
        futures_executor::block_on(run.cancelled());
        Finish::Release
    });
    let pool = pool.unwrap();
    assert_eq!(begun.recv(), Ok(false));
    assert_eq!(pool.stop_blocking(Duration::ZERO).still_running, ["a"]);
    pool.join_blocking();
    assert_eq!(pool.stop_blocking(LONG).left, ["a"]);
}

/// A thread cannot be interrupted, but its handler can look.
#[test]
fn run_on_a_thread_is_cancelled_when_it_exceeds_its_timeout() {
    let (clock, queue) = (FakeClock::new(), Queue::new());
    queue.add("a").unwrap();
    let (send, cancelled) = mpsc::channel();
    let time = clock.clone();
    let pool = Pool::new(queue).clock(clock).timeout(SECOND);
    let pool = pool.spawn_threads(move |run| {
        let waiting = run.cancelled();
        time.advance(SECOND / 2);
        send.send(run.is_cancelled()).unwrap();
        time.advance(SECOND / 2);
        send.send(run.is_cancelled()).unwrap();
        futures_executor::block_on(waiting);
    });
    assert!(pool.unwrap().drain_blocking(LONG).in_time());
    assert_eq!(cancelled.iter().collect::<Vec<_>>(), [false, true]);
}

/// A child task outlives the cancelled run and is notified.
#[cfg(feature = "tokio")]
#[test]
fn cancellation_of_a_task_reaches_its_child_tasks() {
    let queue = Queue::new();
    queue.add("a").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let child = Arc::new(Mutex::new(None));
        let spawned = Arc::clone(&child);
        let pool = Pool::new(queue.clone()).spawn_tasks(move |run: Run<&str>| {
            *spawned.lock().unwrap() = Some(tokio::spawn(run.cancelled()));
            std::future::pending::<()>()
        });
        let pool = pool.unwrap();
        let child = loop {
            tokio::task::yield_now().await;
            let taken = child.lock().unwrap().take();
            if let Some(child) = taken {
                break child;
            }
        };
        assert_eq!(pool.stop(Duration::ZERO).await.still_running, ["a"]);
        child.await.unwrap();
    });
}

#[test]
fn run_shows_its_key() {
    let queue = Queue::new();
    queue.add("a").unwrap();
    let (send, text) = mpsc::channel();
    let pool = Pool::new(queue);
    let pool = pool.spawn_threads(move |run| send.send(format!("{run:?}")).unwrap());
    let expected = "Run { key: \"a\", attempt: 1, priority: 0, .. }";
    assert_eq!(text.recv().unwrap(), expected);
    drop(pool);
}
