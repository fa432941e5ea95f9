use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Waker;

use proptest::prelude::*;

use super::*;
use crate::rate::bucket::{At, Claim, Patience, Rate, TokenBucket};
use crate::rate::limit::Limit;
use crate::rate::moment::{FOREVER, Nanos};

const START: Moment = Moment::START;
const MS: Nanos = 1_000_000;

/// A bucket whose rate can change.
struct Tokens {
    bucket: TokenBucket,
    rate: Rate,
}

impl Tokens {
    /// An empty bucket.
    fn empty(limit: f64, burst: u32) -> Self {
        let rate = Rate { limit: Limit::per_second(limit), burst };
        Self { bucket: TokenBucket::new(0, START), rate }
    }
}

impl TokenSource for Tokens {
    type Claim = Option<Claim>;

    fn reserve(&mut self, request: Request) -> Result<Held<Self::Claim>, Refusal> {
        let (next, grant) = self.bucket.reserve(self.rate, request)?;
        self.bucket = next.unwrap_or(self.bucket);
        Ok(Held { ready: grant.ready, claim: grant.claim })
    }

    fn give_back(&mut self, claim: Self::Claim, now: Moment) {
        let claim = claim.expect("a finite limit");
        let next = self.bucket.return_unused(self.rate, claim, now);
        self.bucket = next.unwrap_or(self.bucket);
    }

    fn expect(&self, request: Request, ahead: u64) -> Result<Moment, Refusal> {
        self.bucket.expect(self.rate, request, ahead)
    }
}

/// Counts how often it is woken.
#[derive(Default)]
struct Counter(AtomicU32);

impl std::task::Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Counter {
    fn wake_of(self: &Arc<Self>) -> Wake {
        Wake::Task(Waker::from(Arc::clone(self)))
    }

    fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A line, its tokens, and how often each waiter was woken.
struct Subject {
    line: WaiterLine<Option<Claim>>,
    source: Tokens,
    wakes: Vec<Arc<Counter>>,
}

fn at(ms: Nanos) -> Moment {
    START.plus(ms * MS)
}

fn request(ms: Nanos, n: u32) -> Request {
    Request { at: At::Now(at(ms)), n, patience: Patience::UpTo(FOREVER) }
}

fn by(ms: Nanos, n: u32, deadline: Nanos) -> Request {
    Request { patience: Patience::UpTo((deadline - ms) * MS), ..request(ms, n) }
}

impl Subject {
    /// A line with an empty bucket.
    fn new(limit: f64, burst: u32) -> Self {
        let source = Tokens::empty(limit, burst);
        Self { line: WaiterLine::new(), source, wakes: Vec::new() }
    }

    fn join(&mut self, request: Request) -> LineStatus<Option<Claim>> {
        let counter = Arc::new(Counter::default());
        let (status, wakes) =
            self.line.join(&mut self.source, request, counter.wake_of());
        self.wakes.push(counter);
        self.after(wakes);
        status
    }

    /// Joins, and expects to wait until `ms`.
    #[track_caller]
    fn wait(&mut self, request: Request, ms: Nanos) -> Ticket {
        match self.join(request) {
            LineStatus::Wait(ticket, until) => {
                assert_eq!(until, at(ms));
                ticket
            }
            LineStatus::Done(answer) => panic!("does not wait: {answer:?}"),
        }
    }

    fn poll(&mut self, ticket: Ticket, ms: Nanos) -> LineStatus<Option<Claim>> {
        let wake = self.wakes[index(ticket)].wake_of();
        let (status, wakes) = self.line.poll(&mut self.source, ticket, at(ms), wake);
        self.after(wakes);
        status
    }

    /// Returns the time at which a served ticket got its tokens.
    #[track_caller]
    fn served(&mut self, ticket: Ticket, ms: Nanos) -> Moment {
        match self.poll(ticket, ms) {
            LineStatus::Done(Ok(held)) => held.ready,
            other @ (LineStatus::Done(_) | LineStatus::Wait(..)) => {
                panic!("not served: {other:?}")
            }
        }
    }

    /// Returns the time at which a waiting ticket polls again.
    #[track_caller]
    fn waits(&mut self, ticket: Ticket, ms: Nanos) -> Moment {
        match self.poll(ticket, ms) {
            LineStatus::Wait(same, until) if same == ticket => until,
            other @ (LineStatus::Done(_) | LineStatus::Wait(..)) => {
                panic!("does not wait: {other:?}")
            }
        }
    }

    #[track_caller]
    fn refused(&mut self, ticket: Ticket, ms: Nanos) -> Refusal {
        match self.poll(ticket, ms) {
            LineStatus::Done(Err(refusal)) => refusal,
            other @ (LineStatus::Done(_) | LineStatus::Wait(..)) => {
                panic!("not refused: {other:?}")
            }
        }
    }

    fn set_limit(&mut self, ms: Nanos, limit: Limit) {
        let Tokens { bucket, rate } = &mut self.source;
        *bucket = bucket.settle(*rate, At::Now(at(ms)));
        rate.limit = limit;
        let wakes = self.line.rate_changed(&mut self.source, at(ms));
        self.after(wakes);
    }

    fn leave(&mut self, ticket: Ticket, ms: Nanos) {
        let wakes = self.line.leave(&mut self.source, ticket, at(ms));
        self.after(wakes);
    }

    fn after(&mut self, wakes: Wakes) {
        wakes.wake();
        self.line.check();
    }

    fn woken(&self) -> Vec<u32> {
        self.wakes.iter().map(|counter| counter.count()).collect()
    }
}

/// Returns the position of a ticket among all that joined, if all of them waited.
fn index(Ticket(number): Ticket) -> usize {
    usize::try_from(number).unwrap()
}

#[test]
fn waiters_are_served_in_order_and_sleep_until_their_own_time() {
    let mut subject = Subject::new(10.0, 3);
    let a = subject.wait(request(0, 1), 100);
    let b = subject.wait(request(0, 3), 400);
    let c = subject.wait(request(50, 1), 500);
    assert_eq!(subject.waits(b, 99), at(400));
    assert_eq!(subject.served(a, 100), at(100));
    assert_eq!(subject.served(b, 400), at(400));
    assert_eq!(subject.served(c, 500), at(500));
    assert_eq!(subject.woken(), [0, 0, 0], "all slept until their timers fired");
    assert!(subject.line.is_unused());
}

#[test]
fn next_waiter_moves_up_when_the_first_leaves() {
    let mut subject = Subject::new(10.0, 3);
    let a = subject.wait(request(0, 3), 300);
    let b = subject.wait(request(0, 2), 500);
    let c = subject.wait(request(0, 1), 600);
    subject.leave(a, 50);
    assert_eq!(subject.woken(), [0, 1, 0], "the next one has an earlier time");
    assert_eq!(subject.waits(b, 50), at(200));
    subject.leave(b, 50);
    assert_eq!(subject.woken(), [0, 1, 1]);
    assert_eq!(subject.waits(c, 50), at(100));
    assert_eq!(subject.served(c, 100), at(100));
}

#[test]
fn waiter_without_a_reservation_leaves_without_cost() {
    let mut subject = Subject::new(10.0, 3);
    let a = subject.wait(request(0, 1), 100);
    let b = subject.wait(request(0, 3), 400);
    let c = subject.wait(request(0, 1), 500);
    subject.leave(b, 0);
    assert_eq!(subject.woken(), [0, 0, 0]);
    assert_eq!(subject.served(a, 100), at(100));
    assert_eq!(subject.woken(), [0, 0, 1], "it moves up to 200 ms");
    assert_eq!(subject.waits(c, 100), at(200));
}

#[test]
fn clock_that_jumps_releases_all_due_waiters_in_order() {
    let mut subject = Subject::new(10.0, 1);
    let tickets: Vec<_> = (1..=5).map(|k| subject.wait(request(0, 1), 100 * k)).collect();
    assert_eq!(subject.served(tickets[2], 450), at(300));
    assert_eq!(subject.woken(), [1, 1, 0, 1, 0], "by the one that polled");
    assert_eq!(subject.served(tickets[3], 450), at(400));
    assert_eq!(subject.served(tickets[0], 450), at(100));
    assert_eq!(subject.waits(tickets[4], 450), at(500));
    assert_eq!(subject.served(tickets[1], 450), at(200));
}

#[test]
fn waiter_that_never_polls_delays_no_other() {
    let mut subject = Subject::new(10.0, 1);
    let a = subject.wait(request(0, 1), 100);
    let b = subject.wait(request(0, 1), 200);
    assert_eq!(subject.served(b, 200), at(200));
    subject.leave(a, 200);
    assert!(subject.line.is_unused());
}

#[test]
fn unused_tokens_come_back_minus_those_gained_since() {
    for (burst, left) in [(1, 100), (1, 150), (1, 175), (3, 175), (3, 200)] {
        let mut subject = Subject::new(10.0, burst);
        let a = subject.wait(request(0, 1), 100);
        let wakes = subject.line.settle(&mut subject.source, at(100));
        subject.after(wakes);
        subject.leave(a, left);
        let mut next = || subject.source.reserve(request(left, 1)).unwrap().ready;
        assert_eq!(next(), at(left), "burst {burst}, left at {left}");
        assert_eq!(next(), at(left + 100), "burst {burst}, left at {left}");
    }
}

#[test]
fn deadline_counts_the_tokens_ahead() {
    let mut subject = Subject::new(10.0, 3);
    subject.wait(request(0, 1), 100);
    subject.wait(request(0, 3), 400);
    let LineStatus::Done(Err(refusal)) = subject.join(by(0, 2, 599)) else {
        panic!("it waits")
    };
    assert_eq!(refusal, Refusal::TooLate(600 * MS));
    assert_eq!(subject.line.wanted(), 3, "a refused request wants nothing");
    match subject.join(by(0, 2, 600)) {
        LineStatus::Wait(_, until) => assert_eq!(until, at(600)),
        LineStatus::Done(answer) => panic!("600 ms is in time: {answer:?}"),
    }
}

#[test]
fn line_that_becomes_slower_ends_a_wait_at_its_deadline() {
    let mut subject = Subject::new(10.0, 3);
    let a = subject.wait(request(0, 1), 100);
    let b = subject.wait(by(0, 1, 250), 200);
    let c = subject.wait(by(0, 1, 350), 300);
    subject.source.reserve(request(0, 3)).unwrap(); // overtakes b and c
    assert_eq!(subject.served(a, 100), at(100));
    assert_eq!(
        subject.refused(b, 200),
        Refusal::TooLate(500 * MS),
        "refused as the first"
    );
    assert_eq!(subject.refused(c, 300), Refusal::TooLate(500 * MS));
    assert!(subject.line.is_unused());

    let mut subject = Subject::new(10.0, 3);
    subject.wait(request(0, 3), 300);
    let b = subject.wait(by(0, 1, 450), 400);
    subject.set_limit(0, Limit::ZERO);
    assert_eq!(subject.waits(b, 449), at(450));
    assert_eq!(subject.refused(b, 450), Refusal::TooLate(450 * MS));
}

#[test]
fn waiters_in_a_slow_line_poll_less_and_less_often() {
    let mut subject = Subject::new(10.0, 3);
    let a = subject.wait(request(0, 1), 100);
    let b = subject.wait(request(0, 1), 200);
    let c = subject.wait(request(0, 1), 300);
    subject.source.reserve(request(0, 3)).unwrap();
    assert_eq!(subject.served(a, 100), at(100));
    assert_eq!(subject.waits(b, 200), at(500));
    assert_eq!(subject.waits(c, 300), at(600), "twice as long as it has waited");
    assert_eq!(subject.served(b, 500), at(500));
    assert_eq!(subject.served(c, 600), at(600));
}

#[test]
fn impossible_requests_end_and_others_move_up() {
    let mut subject = Subject::new(10.0, 3);
    let a = subject.wait(request(0, 3), 300);
    let b = subject.wait(request(0, 3), 600);
    let c = subject.wait(request(0, 1), 700);
    subject.wait(request(0, 1), 800);
    subject.source.rate.burst = 2;
    let wakes = subject.line.rate_changed(&mut subject.source, at(0));
    subject.after(wakes);
    assert_eq!(subject.line.wanted(), 2);
    assert_eq!(subject.woken(), [0, 1, 0, 0], "the first keeps its reservation");
    assert_eq!(subject.refused(b, 0), Refusal::ExceedsBurst(2));
    assert_eq!(subject.served(a, 300), at(300));
    assert_eq!(subject.waits(c, 300), at(400));
}

#[test]
fn waiter_for_tokens_that_never_come_waits_for_a_new_limit() {
    let mut subject = Subject::new(10.0, 1);
    let a = subject.wait(request(0, 1), 100);
    let b = subject.wait(request(0, 1), 200);
    subject.set_limit(50, Limit::ZERO);
    assert_eq!(subject.served(a, 100), at(100), "it keeps its time");
    assert_eq!(subject.waits(b, 200), Moment::END, "until it is woken");
    let LineStatus::Done(Err(refusal)) = subject.join(request(200, 1)) else {
        panic!("it waits")
    };
    assert_eq!(refusal, Refusal::Never);
    subject.set_limit(250, Limit::per_second(10.0));
    assert_eq!(subject.woken()[1], 1);
    assert_eq!(subject.waits(b, 250), at(400), "half a token of debt, and its own");
}

#[test]
fn only_the_latest_waker_is_woken_once() {
    let mut subject = Subject::new(10.0, 3);
    let a = subject.wait(request(0, 3), 300);
    let b = subject.wait(request(0, 1), 400);
    let old = Arc::clone(&subject.wakes[1]);
    subject.wakes[1] = Arc::new(Counter::default());
    assert_eq!(subject.waits(b, 10), at(400));
    subject.leave(a, 20);
    subject.join(request(20, 3));
    assert_eq!((old.count(), subject.wakes[1].count()), (0, 1));
    assert_eq!(Arc::strong_count(&old), 1, "the old waker is dropped");
}

#[test]
fn a_hundred_thousand_waiters_leave_in_any_order() {
    const WAITERS: u64 = if cfg!(miri) { 100 } else { 100_000 };
    let mut subject = Subject::new(10.0, 1);
    for _ in 0..WAITERS {
        let wake = Wake::Task(Waker::noop().clone());
        let (_, wakes) = subject.line.join(&mut subject.source, request(0, 1), wake);
        wakes.wake();
    }
    subject.line.check();
    for k in 0..WAITERS {
        let ticket = Ticket(k * 7919 % WAITERS); // a prime, so each occurs once
        subject.line.leave(&mut subject.source, ticket, START).wake();
    }
    subject.line.check();
    assert!(subject.line.is_unused());
    assert_eq!(subject.source.reserve(request(0, 1)).unwrap().ready, at(100));
}

proptest! {
    #[test]
    fn times_equal_a_chain_of_reservations_bit_for_bit(
        limit in prop_oneof![Just(3.0), Just(7.0), 0.01..1e6_f64],
        burst in 1..6_u32,
        asks in proptest::collection::vec((0..400_000_000_i64, 0..6_u32), 1..40),
        late in 0..10_000_000_000_i64,
    ) {
        let mut subject = Subject::new(limit, burst);
        let mut chain = Tokens::empty(limit, burst);
        let (mut now, mut expected, mut waiting) = (START, Vec::new(), Vec::new());
        for (step, n) in asks {
            now = now.plus(step);
            let patience = Patience::UpTo(FOREVER);
            let request = Request { at: At::Now(now), n: n.min(burst), patience };
            expected.push(chain.reserve(request).unwrap().ready);
            let (status, wakes) =
                subject.line.join(&mut subject.source, request, Wake::Task(Waker::noop().clone()));
            wakes.wake();
            waiting.push(status);
        }
        let mut got = Vec::new();
        for (place, status) in waiting.into_iter().enumerate() {
            let held = match status {
                LineStatus::Done(held) => held.unwrap(),
                LineStatus::Wait(ticket, _) => {
                    let now = expected[place].plus(late);
                    let wake = Wake::Task(Waker::noop().clone());
                    let status = subject.line.poll(&mut subject.source, ticket, now, wake).0;
                    let LineStatus::Done(held) = status else { panic!("its time has come") };
                    held.unwrap()
                }
            };
            got.push(held.ready);
        }
        prop_assert_eq!(got, expected);
    }
}
