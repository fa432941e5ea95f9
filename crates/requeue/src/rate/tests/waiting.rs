//! Waiting for a limiter: the line and the calls around it.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use super::tasks::Tasks;
use crate::rate::{Hierarchy, Keyed, Limit, Limiter, Pacer, Share, WaitError, Window};
use crate::testing::FakeClock;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A limiter without tokens.
fn empty(limit: f64, burst: u32) -> (FakeClock, Limiter) {
    let clock = FakeClock::new();
    let limiter = Limiter::with_clock(Limit::per_second(limit), burst, clock.clone());
    (clock, limiter.with_tokens(0))
}

fn poll<F: Future>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn allow_does_not_overtake_the_line() {
    let (clock, limiter) = empty(10.0, 5);
    let mut waits: Vec<_> = (0..3).map(|_| Box::pin(limiter.wait())).collect();
    for wait in &mut waits {
        assert!(poll(wait).is_pending());
    }
    clock.advance(ms(250));
    assert!(!limiter.allow(), "the third waiter comes first");
    clock.advance(ms(250));
    assert!(limiter.allow(), "five tokens came in, three are for waiters");
    assert!(limiter.allow());
    assert!(!limiter.allow());
    for wait in &mut waits {
        assert_eq!(poll(wait), Poll::Ready(Ok(())));
    }
}

#[test]
fn new_waiter_lines_up_behind_due_ones() {
    let (clock, limiter) = empty(10.0, 1);
    let mut first = Box::pin(limiter.wait());
    let mut second = Box::pin(limiter.wait());
    assert!(poll(&mut first).is_pending());
    assert!(poll(&mut second).is_pending());
    clock.advance(ms(100));
    let mut third = Box::pin(limiter.wait());
    assert!(poll(&mut third).is_pending());
    clock.advance(ms(100));
    assert!(poll(&mut third).is_pending());
    assert!(poll(&mut second).is_ready());
    assert!(poll(&mut first).is_ready());
    clock.advance(ms(100));
    assert!(poll(&mut third).is_ready());
}

#[test]
fn reservation_goes_before_waits_without_one() {
    let (clock, limiter) = empty(10.0, 1);
    let mut first = Box::pin(limiter.wait());
    let mut second = Box::pin(limiter.wait());
    assert!(poll(&mut first).is_pending());
    assert!(poll(&mut second).is_pending());
    assert_eq!(limiter.reserve().unwrap().delay(), ms(200));
    clock.advance(ms(100));
    assert!(poll(&mut first).is_ready());
    clock.advance(ms(100));
    assert!(poll(&mut second).is_pending());
    clock.advance(ms(100));
    assert!(poll(&mut second).is_ready());
}

#[test]
fn cancelled_reservation_moves_the_first_waiter_up() {
    // Without moving up, the first waiter and all behind it would sleep for 1.1 s. The token
    // that it holds does not come back by the cancel.
    let (clock, limiter) = empty(10.0, 10);
    let reserved = limiter.reserve_n(10).unwrap();
    let mut tasks = Tasks::new();
    tasks.spawn(limiter.wait());
    tasks.spawn(limiter.wait());
    assert!(tasks.run().is_empty());
    clock.advance(ms(50));
    reserved.cancel();
    clock.advance(ms(149));
    assert!(tasks.run().is_empty());
    clock.advance(ms(1));
    assert_eq!(tasks.run().len(), 1);
    clock.advance(ms(100));
    assert_eq!(tasks.run().len(), 1);
}

#[test]
fn higher_limit_serves_waiters_sooner_and_a_lower_one_keeps_promises() {
    let (clock, limiter) = empty(0.001, 1);
    let mut tasks = Tasks::new();
    for _ in 0..3 {
        tasks.spawn(limiter.wait());
    }
    assert!(tasks.run().is_empty());
    limiter.set_limit(Limit::per_second(10.0));
    for _ in 0..3 {
        clock.advance(ms(100));
        assert_eq!(tasks.run().len(), 1, "not after 1,000 s");
    }

    for _ in 0..2 {
        tasks.spawn(limiter.wait());
    }
    assert!(tasks.run().is_empty());
    limiter.set_limit(Limit::per_second(1.0));
    clock.advance(ms(100));
    assert_eq!(tasks.run().len(), 1, "the first keeps its time");
    clock.advance(ms(1899));
    assert!(tasks.run().is_empty(), "two tokens take two seconds");
    clock.advance(ms(1));
    assert_eq!(tasks.run().len(), 1);
}

#[test]
fn waiters_stay_in_line_while_the_limit_is_zero() {
    for raise in [
        (|limiter, _| limiter.set_limit(Limit::per_second(10.0)))
            as fn(&Limiter, Instant),
        |limiter, _| limiter.set_limit(Limit::INF),
        |limiter, _| limiter.set_tokens(2),
        |limiter, now| limiter.set_tokens_at(now, 2),
    ] {
        let (clock, limiter) = empty(10.0, 2);
        let mut tasks = Tasks::new();
        tasks.spawn(limiter.wait());
        tasks.spawn(limiter.wait());
        assert!(tasks.run().is_empty());
        limiter.set_limit(Limit::ZERO);
        clock.advance(ms(100));
        assert_eq!(tasks.run().len(), 1, "the first has its token");
        clock.advance(ms(10_000));
        assert!(tasks.run().is_empty(), "the second waits, and is not refused");
        raise(&limiter, clock.now());
        clock.advance(ms(200));
        assert_eq!(tasks.run().len(), 1);
        assert_eq!(clock.timers(), 0);
    }
}

#[test]
fn burst_below_the_request_of_a_waiter_ends_its_wait() {
    let (clock, limiter) = empty(10.0, 3);
    let mut tasks = Tasks::new();
    let first = tasks.spawn(limiter.wait_n(3));
    let second = tasks.spawn(limiter.wait_n(2));
    let third = tasks.spawn(limiter.wait_n(1));
    assert!(tasks.run().is_empty());
    limiter.set_burst(1);
    let error = WaitError::ExceedsBurst { asked: 2, burst: 1 };
    assert_eq!(tasks.run(), [(second, Err(error))]);
    clock.advance(ms(300));
    assert_eq!(tasks.run(), [(first, Ok(()))], "its tokens were reserved");
    clock.advance(ms(100));
    assert_eq!(tasks.run(), [(third, Ok(()))]);
}

#[test]
fn infinite_limit_releases_the_whole_line() {
    let (_clock, limiter) = empty(0.1, 3);
    let mut tasks = Tasks::new();
    for n in [3, 1, 2] {
        tasks.spawn(limiter.wait_n(n));
    }
    assert!(tasks.run().is_empty());
    limiter.set_limit(Limit::INF);
    assert_eq!(tasks.run().len(), 3);
    assert!(limiter.allow_n(100));
}

#[test]
fn deadline_counts_the_callers_ahead() {
    let (clock, limiter) = empty(10.0, 2);
    let t = clock.now();
    let mut ahead = Box::pin(limiter.wait_n(2));
    let mut behind = Box::pin(limiter.wait());
    assert!(poll(&mut ahead).is_pending());
    assert!(poll(&mut behind).is_pending());
    let mut refused = Box::pin(limiter.wait_deadline(t + ms(399)));
    let error = WaitError::Timeout { needed: ms(400), left: ms(399) };
    assert_eq!(poll(&mut refused), Poll::Ready(Err(error)));
    let mut kept = Box::pin(limiter.wait_deadline(t + ms(400)));
    assert!(poll(&mut kept).is_pending());
    drop(ahead);
    clock.advance(ms(100));
    assert!(poll(&mut behind).is_ready());
    clock.advance(ms(100));
    assert_eq!(poll(&mut kept), Poll::Ready(Ok(())), "sooner than expected");
}

#[test]
fn deadline_ends_a_wait_in_line() {
    let (clock, limiter) = empty(10.0, 2);
    let mut tasks = Tasks::new();
    tasks.spawn(limiter.wait_n(2));
    let late = tasks.spawn(limiter.wait_deadline(clock.now() + ms(300)));
    assert!(tasks.run().is_empty());
    limiter.set_limit(Limit::ZERO);
    clock.advance(ms(200));
    assert_eq!(tasks.run().len(), 1);
    clock.advance(ms(99));
    assert!(tasks.run().is_empty());
    clock.advance(ms(1));
    let error = WaitError::Timeout { needed: ms(300), left: ms(300) };
    assert_eq!(tasks.run(), [(late, Err(error))], "woken by its own timer");
    assert!(!limiter.allow());
}

#[test]
fn wait_that_is_neither_polled_nor_dropped_delays_no_other() {
    let (clock, limiter) = empty(10.0, 1);
    let mut forgotten = Box::pin(limiter.wait());
    assert!(poll(&mut forgotten).is_pending());
    let mut tasks = Tasks::new();
    tasks.spawn(limiter.wait());
    tasks.spawn(limiter.wait());
    assert!(tasks.run().is_empty());
    clock.advance(ms(200));
    assert_eq!(tasks.run().len(), 1);
    clock.advance(ms(100));
    assert_eq!(tasks.run().len(), 1);
    assert!(poll(&mut forgotten).is_ready());
}

#[test]
fn threads_and_tasks_share_one_line() {
    let (clock, limiter) = empty(10.0, 1);
    let start = clock.now();
    let mut first = Box::pin(limiter.wait());
    assert!(poll(&mut first).is_pending());
    thread::scope(|scope| {
        let thread = scope.spawn(|| limiter.wait_blocking().map(|()| clock.now()));
        clock.wait_for_timers_blocking(2);
        let mut third = Box::pin(limiter.wait());
        assert!(poll(&mut third).is_pending());
        drop(first); // the thread moves up
        while clock.timers() != 2 || limiter.peek() != Ok(ms(200)) {
            thread::yield_now();
        }
        clock.advance(ms(100));
        assert_eq!(thread.join().unwrap(), Ok(start + ms(100)));
        assert!(poll(&mut third).is_pending());
        clock.advance(ms(100));
        assert!(poll(&mut third).is_ready());
    });
}

#[test]
fn threads_that_wait_together_are_all_served() {
    const THREADS: u32 = if cfg!(miri) { 3 } else { 16 };
    let (clock, limiter) = empty(100.0, 1);
    let start = clock.now();
    let mut served: Vec<Instant> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| scope.spawn(|| limiter.wait_blocking().map(|()| clock.now())))
            .collect();
        let threads_left = || threads.iter().any(|thread| !thread.is_finished());
        while threads_left() {
            clock.advance(ms(1));
            thread::yield_now();
        }
        threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect()
    });
    served.sort_unstable();
    for (place, at) in (1..).zip(served) {
        assert!(at >= start + ms(10) * place, "{place} of {THREADS}");
    }
}

#[test]
fn keys_with_waiters_are_not_evicted() {
    let clock = FakeClock::new();
    let keyed = Keyed::with_clock(Limit::per_second(1.0), 1, clock.clone()).max_keys(2);
    assert!(keyed.allow(&0));
    let mut tasks = Tasks::new();
    tasks.spawn(keyed.wait(&0));
    tasks.spawn(keyed.wait(&0));
    assert!(tasks.run().is_empty());
    for key in 1..100 {
        assert!(keyed.allow(&key));
    }
    assert_eq!(keyed.tracked(), 2);
    assert!(!keyed.allow(&0));
    assert_eq!(keyed.peek(&0), Ok(ms(2000)));
    for _ in 0..2 {
        clock.advance(ms(1000));
        assert_eq!(tasks.run().len(), 1);
        assert!(!keyed.allow(&0));
    }
    // The other key is full by now, and may have been dropped or not.
    assert!((1..=2).contains(&keyed.tracked()));
}

#[test]
fn key_is_dropped_when_its_last_waiter_has_left() {
    let clock = FakeClock::new();
    let keyed = Keyed::with_clock(Limit::per_second(1.0), 1, clock.clone());
    assert!(keyed.allow(&0));
    {
        let mut wait = Box::pin(keyed.wait(&0));
        assert!(poll(&mut wait).is_pending());
        clock.advance(ms(5000));
        assert_eq!(keyed.tracked(), 1);
    }
    assert_eq!(keyed.tracked(), 0, "its bucket is full");
    assert_eq!(
        keyed.wait_n_blocking(&1, 2),
        Err(WaitError::ExceedsBurst { asked: 2, burst: 1 })
    );
    assert_eq!(keyed.tracked(), 0, "a refusal leaves nothing behind");
}

#[test]
fn allow_does_not_overtake_the_line_of_its_key() {
    let clock = FakeClock::new();
    let keyed = Keyed::with_clock(Limit::per_second(10.0), 5, clock.clone());
    assert!(keyed.allow_n(&0, 5));
    let mut waits = [Box::pin(keyed.wait(&0)), Box::pin(keyed.wait(&0))];
    assert!(waits.iter_mut().all(|wait| poll(wait).is_pending()));
    clock.advance(ms(150));
    assert!(!keyed.allow(&0));
    assert!(keyed.allow(&1), "each key has its own line");
    let reserved = keyed.reserve(&0).unwrap();
    assert_eq!(reserved.delay(), ms(150), "before waits without a reservation");
    clock.advance(ms(350));
    assert!(keyed.allow_n(&0, 2), "five came in, three are taken");
    assert!(!keyed.allow(&0));
    assert!(waits.iter_mut().all(|wait| poll(wait).is_ready()));
}

#[test]
fn window_does_not_let_calls_overtake_its_line() {
    let clock = FakeClock::new();
    let window = Window::with_clock(2, ms(100), clock.clone());
    assert!(window.allow_n(2));
    let mut waits: Vec<_> = (0..3).map(|_| Box::pin(window.wait())).collect();
    assert!(waits.iter_mut().all(|wait| poll(wait).is_pending()));
    clock.advance(ms(100));
    assert!(!window.allow());
    assert!(poll(&mut waits[1]).is_ready());
    assert!(poll(&mut waits[2]).is_pending());
    drop(waits.remove(0));
    assert!(!window.allow(), "the event that did not happen is for the third waiter");
    assert!(poll(&mut waits[1]).is_pending());
    clock.advance(ms(100));
    assert!(poll(&mut waits[1]).is_ready());
}

#[test]
fn node_that_cannot_be_served_holds_up_no_other_node() {
    let clock = FakeClock::new();
    let per_second = Limit::per_second;
    let root = Hierarchy::with_clock(per_second(10.0), 4, clock.clone());
    let busy = root.child(Share::new(per_second(5.0), 1)).unwrap();
    let poor = root.child(Share::new(Limit::ZERO, 0)).unwrap();
    assert!(poor.allow_n(3));
    assert!(busy.allow());
    let mut tasks = Tasks::new();
    let large = tasks.spawn(poor.wait_n(3));
    let small = tasks.spawn(poor.wait());
    let own = tasks.spawn(busy.wait());
    assert!(tasks.run().is_empty());
    assert!(!poor.allow_n(0), "behind its own line");
    clock.advance(ms(200));
    assert_eq!(tasks.run(), [(own, Ok(()))], "its guarantee");
    clock.advance(ms(1000));
    assert_eq!(tasks.run(), [(large, Ok(()))], "all that can be borrowed at once");
    clock.advance(ms(200));
    assert_eq!(tasks.run(), [(small, Ok(()))]);
    assert!(poor.allow_n(0));
}

#[test]
fn waiter_whose_burst_went_to_a_new_child_is_refused() {
    let clock = FakeClock::new();
    let root = Hierarchy::with_clock(Limit::per_second(10.0), 4, clock.clone());
    assert!(root.allow_n(4));
    let mut tasks = Tasks::new();
    let large = tasks.spawn(root.wait_n(3));
    let small = tasks.spawn(root.wait_n(1));
    assert!(tasks.run().is_empty());
    root.child(Share::new(Limit::per_second(5.0), 2)).unwrap();
    clock.advance(ms(300));
    let error = WaitError::ExceedsBurst { asked: 3, burst: 2 };
    assert_eq!(tasks.run(), [(large, Err(error)), (small, Ok(()))]);
}

#[test]
fn pacer_refuses_try_take_while_takes_wait() {
    let clock = FakeClock::new();
    let pacer = Pacer::builder(10).slack(5).clock(clock.clone()).build();
    assert!(pacer.try_take().is_ok());
    let mut takes = [Box::pin(pacer.take()), Box::pin(pacer.take())];
    assert!(takes.iter_mut().all(|take| poll(take).is_pending()));
    clock.advance(ms(150));
    assert_eq!(pacer.try_take(), Err(ms(150)), "the slot at 200 ms is waited for");
    clock.advance(ms(150));
    assert_eq!(pacer.try_take(), Ok(clock.now()), "all slots before are taken");
    assert_eq!(pacer.try_take(), Err(ms(100)));
    assert!(takes.iter_mut().all(|take| poll(take).is_ready()));
}
