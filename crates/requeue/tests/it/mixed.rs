//! Threads and tasks that wait on the same queue.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use futures_executor::block_on;
use requeue::{Counts, Finish, GetTimeoutError, Lease, Queue};

use crate::helpers::{Task, finished, secs, timed, wait_for_parked};

/// One getter of each kind; `work` is called with every key that one of them takes.
fn spawn_getters<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    queue: &'scope Queue<u64>,
    work: &'scope (impl Fn(Lease<u64>) + Sync),
) {
    scope.spawn(move || {
        while let Some(lease) = queue.get_blocking() {
            work(lease);
        }
    });
    scope.spawn(move || {
        block_on(async move {
            while let Some(lease) = queue.get().await {
                work(lease);
            }
        });
    });
    scope.spawn(move || {
        while let Some(batch) = queue.get_many_blocking(3) {
            batch.into_iter().for_each(work);
        }
    });
    scope.spawn(move || {
        block_on(async move {
            while let Some(batch) = queue.get_many(3).await {
                batch.into_iter().for_each(work);
            }
        });
    });
    // It leaves when the queue is closed and no key is ready, as the others do. It once left
    // as soon as the queue was closed, and a key that it had made ready was not delivered.
    scope.spawn(move || {
        loop {
            match queue.get_blocking_timeout(secs(1)) {
                Ok(lease) => work(lease),
                Err(GetTimeoutError::Closed) => break,
                Err(_) => {}
            }
        }
    });
}

#[test]
fn getters_of_every_kind_share_the_keys_of_many_producers() {
    let queue = Queue::new();
    let seen = Mutex::new(Vec::new());
    let work = |lease: Lease<u64>| {
        seen.lock().expect("no worker panics").push(*lease);
        lease.succeed();
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            spawn_getters(scope, &queue, &work);
        }
        let producers: Vec<_> = (0..4)
            .map(|producer| {
                let queue = &queue;
                scope.spawn(move || {
                    for key in (0..20_000).filter(|key| key % 4 == producer) {
                        queue.add(key).unwrap();
                    }
                })
            })
            .collect();
        for producer in producers {
            producer.join().unwrap();
        }
        queue.drain_blocking();
    });
    let mut seen = seen.into_inner().unwrap();
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..20_000), "each key once");
}

#[test]
fn key_is_never_processed_by_two_workers_at_once() {
    const KEYS: usize = 4;
    let queue = Queue::new();
    let busy: Vec<_> = (0..KEYS).map(|_| AtomicBool::new(false)).collect();
    let runs = AtomicUsize::new(0);
    let work = |lease: Lease<u64>| {
        let busy = &busy[usize::try_from(*lease).expect("a small key")];
        assert!(!busy.swap(true, Ordering::SeqCst), "{} is with two workers", *lease);
        runs.fetch_add(1, Ordering::SeqCst);
        thread::yield_now();
        busy.store(false, Ordering::SeqCst);
        lease.finish(Finish::Done);
    };
    thread::scope(|scope| {
        spawn_getters(scope, &queue, &work);
        for round in 0..5000u64 {
            queue.add(round % KEYS as u64).unwrap();
        }
        queue.drain_blocking();
    });
    assert!((KEYS..=5000).contains(&runs.into_inner()));
    assert_eq!(queue.counts(), Counts::default());
}

/// The most important promise: a run after an add sees every change made before the add.
#[test]
fn last_add_of_a_key_is_followed_by_a_run() {
    let (queue, version, seen) = (Queue::new(), AtomicUsize::new(0), AtomicUsize::new(0));
    let work = |lease: Lease<u64>| {
        seen.store(version.load(Ordering::SeqCst), Ordering::SeqCst);
        lease.succeed();
    };
    thread::scope(|scope| {
        spawn_getters(scope, &queue, &work);
        for _ in 0..3000 {
            version.fetch_add(1, Ordering::SeqCst);
            queue.add(7).unwrap();
        }
        queue.drain_blocking();
        assert_eq!(seen.load(Ordering::SeqCst), 3000);
    });
}

#[test]
fn delayed_keys_reach_threads_and_tasks() {
    let (queue, clock) = timed();
    let seen = Mutex::new(HashSet::new());
    let work = |lease: Lease<u64>| {
        assert!(seen.lock().expect("no worker panics").insert(*lease));
        lease.succeed();
    };
    thread::scope(|scope| {
        spawn_getters(scope, &queue, &work);
        for key in 0..200 {
            queue.add_after(key, secs(key % 20 + 1)).unwrap();
        }
        for second in 1..=20 {
            wait_for_parked(&queue, 5);
            clock.advance(secs(1));
            while queue.counts().delayed > 200 - second * 10 || !queue.is_empty() {
                thread::yield_now();
            }
        }
        queue.wait_idle_blocking();
        queue.close();
    });
    assert_eq!(seen.into_inner().unwrap().len(), 200);
}

/// These timers are real: a getter that is not woken would hang.
#[test]
fn delayed_keys_reach_threads_and_tasks_on_the_system_clock() {
    let (queue, runs) = (Queue::new(), AtomicUsize::new(0));
    let work = |lease: Lease<u64>| {
        runs.fetch_add(1, Ordering::SeqCst);
        lease.succeed();
    };
    thread::scope(|scope| {
        spawn_getters(scope, &queue, &work);
        for key in 0..2000 {
            queue.add_after(key, Duration::from_micros(key * 7919 % 5000)).unwrap();
        }
        queue.wait_idle_blocking();
        queue.close();
    });
    assert_eq!(runs.into_inner(), 2000);
}

#[test]
fn threads_and_tasks_are_woken_in_order_of_arrival() {
    let queue = Queue::new();
    let mut first = Task::parked(queue.get());
    thread::scope(|scope| {
        let second = scope.spawn(|| queue.get_blocking().map(finished));
        wait_for_parked(&queue, 2);
        queue.add("a").unwrap();
        assert_eq!(first.wakes(), 1);
        assert_eq!(finished(first.output().unwrap()), "a");
        queue.add("b").unwrap();
        assert_eq!(second.join().unwrap(), Some("b"));
    });
}
