//! Delayed keys become ready at their deadline, and the earliest deadline wins.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use requeue::{AddOptions, Added, Clock, Counts, Queue, SystemClock};

use crate::helpers::{Task, ms, secs, take_all, timed, timed_with, wait_for_parked};

#[test]
fn delayed_key_becomes_ready_at_its_deadline() {
    let (queue, clock) = timed();
    assert_eq!(queue.add_after("a", ms(10)), Ok(Added::Delayed));
    assert_eq!(queue.counts(), Counts { delayed: 1, ..Counts::default() });
    clock.advance(Duration::from_nanos(9_999_999));
    assert_eq!(queue.len(), 0);
    clock.advance(Duration::from_nanos(1));
    assert_eq!(queue.len(), 1);
    assert_eq!(take_all(&queue), ["a"]);
}

#[test]
fn keys_become_ready_in_the_order_of_their_deadlines() {
    let (queue, clock) = timed();
    for millis in [5, 1, 4000, 2, 90_000_000, 3] {
        queue.add_after(millis, ms(millis)).unwrap();
    }
    clock.advance(secs(1_000_000));
    assert_eq!(take_all(&queue), [1, 2, 3, 5, 4000, 90_000_000]);
}

#[test]
fn earlier_of_two_deadlines_wins() {
    let (queue, clock) = timed();
    queue.add_after("sooner", secs(10)).unwrap();
    assert_eq!(queue.add_after("sooner", secs(1)), Ok(Added::Delayed));
    queue.add_after("kept", secs(1)).unwrap();
    assert_eq!(queue.add_after("kept", secs(10)), Ok(Added::Duplicate));
    assert_eq!(queue.counts().delayed, 2);
    clock.advance(secs(1));
    assert_eq!(queue.len(), 2);
    clock.advance(secs(10));
    take_all(&queue);
    assert_eq!(queue.counts(), Counts::default(), "neither came twice");
}

#[test]
fn zero_delay_is_an_immediate_add() {
    let (queue, clock) = timed();
    assert_eq!(queue.add_after("a", Duration::ZERO), Ok(Added::Ready));
    let past = clock.now();
    assert_eq!(queue.add_at("b", past), Ok(Added::Ready));
    clock.advance(secs(1));
    assert_eq!(queue.add_at("c", past), Ok(Added::Ready));
    let now = AddOptions::new().after(Duration::ZERO);
    assert_eq!(queue.add_with("d", now), Ok(Added::Ready));
    assert_eq!(take_all(&queue), ["a", "b", "c", "d"]);
}

#[test]
fn delay_can_have_any_length() {
    let (queue, clock) = timed();
    let far = [Duration::MAX, secs(u64::MAX), secs(u64::from(u32::MAX) * 1000)];
    for (key, delay) in far.into_iter().enumerate() {
        assert_eq!(queue.add_after(key, delay), Ok(Added::Delayed));
    }
    assert_eq!(queue.postpone(3, Duration::MAX), Ok(Added::Delayed));
    queue.add(4).unwrap();
    queue.try_get().unwrap().retry_after(Duration::MAX);
    clock.advance(secs(100 * 365 * 86400));
    assert_eq!(queue.counts(), Counts { delayed: 5, ..Counts::default() });
    assert_eq!(queue.close_now().len(), 5);
}

#[test]
fn getter_can_wait_for_a_deadline_in_the_far_future() {
    let (queue, _clock) = timed();
    queue.add_after("never", Duration::MAX).unwrap();
    let waiting = Task::parked(queue.get());
    let error = queue.get_blocking_timeout(Duration::ZERO).unwrap_err();
    assert_eq!(error, requeue::GetTimeoutError::Timeout);
    drop(waiting);
    // On the clock of the system, where the far future must fit into a real timer.
    let queue = Queue::new();
    queue.add_after("never", Duration::MAX).unwrap();
    let mut waiting = Task::parked(queue.get());
    queue.close();
    assert!(waiting.output().is_none());
}

#[test]
fn key_added_at_a_moment_becomes_ready_then() {
    let (queue, clock) = timed();
    let moment = clock.now() + secs(5);
    assert_eq!(queue.add_at("a", moment), Ok(Added::Delayed));
    clock.advance(secs(5));
    assert_eq!(take_all(&queue), ["a"]);
}

/// A clock that moves forward with each reading, by smaller and smaller steps.
struct Restless {
    start: Instant,
    reads: AtomicU64,
}

impl Clock for Restless {
    fn now(&self) -> Instant {
        let reads = self.reads.fetch_add(1, Ordering::SeqCst).min(1000);
        self.start + Duration::from_nanos(reads * (1_000_000 - reads))
    }
}

/// An add once read the clock twice, so two keys that were added for the same moment got
/// different deadlines, and the later add came first.
#[test]
fn keys_added_at_one_moment_keep_their_order_while_the_clock_moves() {
    let start = SystemClock.now();
    let clock = Restless { start, reads: AtomicU64::new(0) };
    let queue = Queue::builder().clock(clock).build();
    for key in 0..10 {
        queue.add_at(key, start + secs(3600)).unwrap();
    }
    assert_eq!(queue.close_now(), (0..10).collect::<Vec<_>>());
}

#[test]
fn delayed_key_that_is_added_is_ready_now_and_again_at_its_deadline() {
    let (queue, clock) = timed();
    queue.add_after("a", secs(1)).unwrap();
    assert_eq!(queue.add("a"), Ok(Added::Ready));
    assert_eq!(queue.counts(), Counts { ready: 1, delayed: 1, ..Counts::default() });
    assert_eq!(take_all(&queue), ["a"]);
    clock.advance(secs(1));
    assert_eq!(take_all(&queue), ["a"]);
}

#[test]
fn delay_that_ends_while_the_key_is_ready_merges_with_it() {
    let (queue, clock) = timed();
    queue.add("a").unwrap();
    assert_eq!(queue.add_after("a", secs(1)), Ok(Added::Delayed));
    clock.advance(secs(1));
    assert_eq!(take_all(&queue), ["a"]);
}

#[test]
fn delay_that_ends_while_the_key_is_processing_makes_it_dirty() {
    let (queue, clock) = timed();
    queue.add_after("a", secs(1)).unwrap();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    clock.advance(secs(1));
    assert_eq!(queue.counts(), Counts { processing: 1, dirty: 1, ..Counts::default() });
    lease.done();
    assert_eq!(take_all(&queue), ["a"]);
}

#[test]
fn absorbed_delay_never_ends() {
    let (queue, clock) = timed_with(Queue::builder().absorb_delays(true));
    queue.add_after("a", secs(1)).unwrap();
    assert_eq!(queue.add("a"), Ok(Added::Ready));
    assert_eq!(queue.counts().delayed, 0);
    assert_eq!(queue.add_after("a", secs(1)), Ok(Added::Duplicate));
    let lease = queue.try_get().unwrap();
    assert_eq!(queue.add_after("a", secs(1)), Ok(Added::Delayed));
    assert_eq!(queue.add("a"), Ok(Added::Dirty));
    assert_eq!(queue.add_after("a", secs(1)), Ok(Added::Duplicate));
    lease.done();
    assert_eq!(take_all(&queue), ["a"]);
    clock.advance(secs(1));
    assert_eq!(queue.counts(), Counts::default());
}

#[test]
fn removed_delay_never_ends() {
    let (queue, clock) = timed();
    queue.add_after("a", secs(1)).unwrap();
    assert!(queue.contains("a"));
    assert!(queue.remove("a"));
    clock.advance(secs(1));
    assert_eq!(queue.counts(), Counts::default());
}

#[test]
fn postponed_key_is_delivered_once_at_its_new_deadline() {
    let (queue, clock) = timed();
    queue.add("ready").unwrap();
    queue.add_after("delayed", secs(1)).unwrap();
    for key in ["ready", "delayed", "new"] {
        assert_eq!(queue.postpone(key, secs(5)), Ok(Added::Delayed));
    }
    assert_eq!(queue.counts(), Counts { delayed: 3, ..Counts::default() });
    clock.advance(secs(4));
    assert_eq!(queue.len(), 0);
    clock.advance(secs(1));
    assert_eq!(take_all(&queue), ["ready", "delayed", "new"]);
    clock.advance(secs(10));
    assert_eq!(queue.counts(), Counts::default());
}

#[test]
fn postponed_dirty_key_is_delivered_after_the_delay() {
    let (queue, clock) = timed();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    queue.add("a").unwrap();
    queue.postpone("a", secs(1)).unwrap();
    assert_eq!(queue.counts(), Counts { processing: 1, delayed: 1, ..Counts::default() });
    lease.done();
    assert_eq!(queue.len(), 0);
    clock.advance(secs(1));
    assert_eq!(take_all(&queue), ["a"]);
}

#[test]
fn postponing_on_every_event_waits_until_the_events_stop() {
    let (queue, clock) = timed();
    for _ in 0..1000 {
        queue.postpone("noisy", secs(3)).unwrap();
        clock.advance(secs(2));
        assert_eq!(queue.len(), 0);
    }
    clock.advance(secs(1));
    assert_eq!(take_all(&queue), ["noisy"]);
}

#[test]
fn delayed_add_wakes_a_parked_thread_at_its_deadline() {
    let (queue, clock) = timed();
    thread::scope(|scope| {
        let getter = scope.spawn(|| queue.get_blocking().map(|lease| *lease));
        wait_for_parked(&queue, 1);
        queue.add_after("a", secs(60)).unwrap();
        clock.wait_for_timers_blocking(1);
        clock.advance(secs(60));
        assert_eq!(getter.join().unwrap(), Some("a"));
    });
}

#[test]
fn delayed_add_wakes_a_parked_task_at_its_deadline() {
    let (queue, clock) = timed();
    let mut getter = Task::parked(queue.get());
    queue.add_after("a", secs(60)).unwrap();
    assert_eq!(getter.wakes(), 1, "it wakes to set a timer");
    assert!(getter.poll().is_pending());
    clock.advance(secs(60));
    assert_eq!(getter.wakes(), 2);
    assert_eq!(*getter.output().unwrap(), "a");
}

#[test]
fn earlier_delay_wakes_a_getter_that_sleeps_until_a_later_one() {
    let (queue, clock) = timed();
    queue.add_after("later", secs(60)).unwrap();
    let mut getter = Task::parked(queue.get());
    queue.add_after("sooner", secs(1)).unwrap();
    assert_eq!(getter.wakes(), 1);
    assert!(getter.poll().is_pending());
    clock.advance(secs(1));
    assert_eq!(*getter.output().unwrap(), "sooner");
}

#[test]
fn later_delay_wakes_no_getter() {
    let (queue, _clock) = timed();
    queue.add_after("sooner", secs(1)).unwrap();
    let getter = Task::parked(queue.get());
    queue.add_after("later", secs(60)).unwrap();
    assert_eq!(getter.wakes(), 0);
}

#[test]
fn keys_that_are_due_together_wake_as_many_getters() {
    let (queue, clock) = timed();
    let mut getters: Vec<_> = (0..3).map(|_| Task::parked(queue.get())).collect();
    for key in 0..3 {
        queue.add_after(key, secs(1)).unwrap();
    }
    for getter in &mut getters {
        assert!(getter.poll().is_pending());
    }
    assert_eq!(clock.timers(), 1, "one of them sleeps for all");
    clock.advance(secs(1));
    let leader = getters.iter().position(|getter| getter.wakes() > 0).unwrap();
    let first = getters.swap_remove(leader).output().unwrap();
    assert!(getters.iter().all(|getter| getter.wakes() > 0), "the others are woken");
    let mut keys: Vec<i32> =
        getters.iter_mut().map(|getter| *getter.output().unwrap()).collect();
    keys.push(*first);
    keys.sort_unstable();
    assert_eq!(keys, [0, 1, 2]);
}

#[test]
fn timed_get_returns_at_its_deadline() {
    let (queue, clock) = timed::<&str>();
    thread::scope(|scope| {
        let getter =
            scope.spawn(|| queue.get_blocking_timeout(secs(5)).map(|lease| *lease));
        clock.wait_for_timers_blocking(1);
        clock.advance(secs(5));
        assert_eq!(getter.join().unwrap(), Err(requeue::GetTimeoutError::Timeout));
    });
    let past = clock.now();
    clock.advance(secs(1));
    assert!(queue.get_blocking_deadline(past).is_err());
    queue.add("a").unwrap();
    assert_eq!(
        *queue.get_blocking_deadline(past).unwrap(),
        "a",
        "a ready key needs no time"
    );
}

#[test]
fn timed_get_takes_a_key_that_is_due_before_its_deadline() {
    let (queue, clock) = timed();
    queue.add_after("a", secs(3)).unwrap();
    thread::scope(|scope| {
        let getter =
            scope.spawn(|| queue.get_blocking_timeout(secs(5)).map(|lease| *lease));
        clock.wait_for_timers_blocking(1);
        clock.advance(secs(3));
        assert_eq!(getter.join().unwrap(), Ok("a"));
    });
}

/// The end of K's lease once did not read the clock: K came before L because its delay had
/// ended first, although K became ready only when its lease ended.
#[test]
fn key_made_dirty_by_its_delay_goes_behind_keys_that_are_due() {
    type End = fn(requeue::Lease<&'static str>);
    let ends: [End; 3] =
        [|lease| lease.done(), |lease| lease.succeed(), |lease| drop(lease.next())];
    for end in ends {
        let (queue, clock) = timed();
        queue.add("K").unwrap();
        let lease = queue.try_get().unwrap();
        queue.add_after("K", secs(10)).unwrap();
        queue.add_after("L", secs(20)).unwrap();
        clock.advance(secs(30));
        end(lease);
        assert_eq!(take_all(&queue), ["L", "K"]);
    }
}

#[test]
fn dirty_key_goes_behind_keys_that_are_due_when_its_lease_ends() {
    let (queue, clock) = timed();
    queue.add("K").unwrap();
    let lease = queue.try_get().unwrap();
    queue.add("K").unwrap();
    queue.add_after("L", secs(20)).unwrap();
    clock.advance(secs(30));
    lease.done();
    assert_eq!(take_all(&queue), ["L", "K"]);
}

/// Work on delays is bounded per lock scope. A chunk of it once ended before the first due
/// key, and `try_get` found none.
#[test]
fn first_of_many_due_keys_is_found_whatever_the_order_of_their_delays() {
    let (queue, clock) = timed();
    for key in 0..50_000_u64 {
        let micros = key * 7919 % 50_000 * 20;
        queue.add_after(micros, secs(1) + Duration::from_micros(micros)).unwrap();
    }
    clock.advance(secs(3));
    for expected in (0..50_000).map(|number| number * 20) {
        assert_eq!(*queue.try_get().unwrap(), expected);
    }
}

/// They become ready in several lock scopes, which callers do not notice.
#[test]
fn hundred_thousand_keys_due_at_once_are_delivered_in_order() {
    let (queue, clock) = timed();
    for key in 0..100_000_u32 {
        queue.add_after(key, secs(1) + Duration::from_nanos(u64::from(key) / 7)).unwrap();
    }
    clock.advance(secs(2));
    let first = queue.try_get().unwrap();
    assert_eq!(*first, 0);
    assert_eq!(queue.add(100_000), Ok(Added::Ready));
    assert_eq!(queue.len(), 100_000);
    assert!(take_all(&queue).into_iter().eq(1..=100_000));
}
