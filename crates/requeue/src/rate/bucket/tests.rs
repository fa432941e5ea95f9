#![expect(clippy::float_cmp, reason = "tokens are equal bit for bit or wrong")]

use proptest::prelude::*;

use super::*;

const MS: Nanos = 1_000_000;
const START: Moment = Moment::START;

fn rate(limit: f64, burst: u32) -> Rate {
    Rate { limit: Limit::per_second(limit), burst }
}

/// A bucket that is changed in place, with times in milliseconds from its start.
struct Subject {
    bucket: TokenBucket,
    rate: Rate,
}

impl Subject {
    fn full(rate: Rate) -> Self {
        Self { bucket: TokenBucket::new(rate.burst, START), rate }
    }

    fn at(ms: i64) -> At {
        At::Exactly(START.plus(ms * MS))
    }

    fn tokens(&self, ms: i64) -> f64 {
        self.bucket.tokens(self.rate, Self::at(ms))
    }

    /// Reserves, and checks that the quick path agrees.
    fn request(&mut self, request: Request) -> Result<Grant, Refusal> {
        let reserved = self.bucket.reserve(self.rate, request);
        if self.bucket.surely_has(self.rate, request) {
            let (next, grant) = self.bucket.take_available(self.rate, request);
            assert_eq!(reserved, Ok((Some(next), grant)));
        }
        let (next, grant) = reserved?;
        self.bucket = next.unwrap_or(self.bucket);
        Ok(grant)
    }

    fn allow(&mut self, ms: i64, n: u32) -> bool {
        self.request(Request { at: Self::at(ms), n, patience: Patience::None }).is_ok()
    }

    /// Reserves, and returns the claim and the wait.
    fn reserve(&mut self, at: At, n: u32) -> Result<(Claim, Nanos), Refusal> {
        let grant = self.request(Request { at, n, patience: Patience::UpTo(FOREVER) })?;
        let claim = grant.claim.expect("a finite limit");
        Ok((claim, grant.ready.since(at.given())))
    }

    fn reserve_ms(&mut self, ms: i64, n: u32) -> (Claim, Nanos) {
        let (claim, wait) = self.reserve(Self::at(ms), n).expect("within the burst");
        assert_eq!(wait % MS, 0, "a whole millisecond");
        (claim, wait / MS)
    }

    fn cancel(&mut self, ms: i64, claim: Claim) {
        let next = self.bucket.cancel(self.rate, claim, Self::at(ms));
        self.bucket = next.unwrap_or(self.bucket);
    }
}

/// Rows of time in ms, tokens before, requested tokens, and the answer.
fn check_timeline(rate: Rate, rows: &[(i64, f64, u32, bool)]) {
    let mut subject = Subject::full(rate);
    for (i, &(ms, tokens, n, ok)) in rows.iter().enumerate() {
        assert_eq!(subject.tokens(ms), tokens, "tokens before row {i}");
        assert_eq!(subject.allow(ms, n), ok, "answer of row {i}");
    }
}

#[test]
fn burst_of_one_allows_one_event_per_100_ms() {
    let rows = [
        (0, 1.0, 1, true),
        (0, 0.0, 1, false),
        (50, 0.5, 1, false),
        (100, 1.0, 1, true),
        (100, 0.0, 1, false),
        (200, 1.0, 2, false),
        (1000, 1.0, 1, true),
        (1000, 0.0, 1, false),
    ];
    check_timeline(rate(10.0, 1), &rows);
}

#[test]
fn burst_of_three_allows_three_events_and_then_the_limit() {
    let rows = [
        (0, 3.0, 2, true),
        (0, 1.0, 2, false),
        (0, 1.0, 1, true),
        (0, 0.0, 1, false),
        (100, 1.0, 4, false),
        (100, 1.0, 1, true),
        (300, 2.0, 2, true),
        (1000, 3.0, 3, true),
        (1000, 0.0, 0, true),
    ];
    check_timeline(rate(10.0, 3), &rows);
}

#[test]
fn explicit_time_that_goes_back_credits_the_interval_twice() {
    let rows = [
        (100, 3.0, 1, true),
        (0, 2.0, 1, true),
        (0, 1.0, 1, true),
        (0, 0.0, 1, false),
        (100, 1.0, 1, true),
        (100, 0.0, 1, false),
        (50, 0.0, 1, false),
    ];
    check_timeline(rate(10.0, 3), &rows);
}

#[test]
fn limit_of_zero_allows_the_burst_once() {
    let year = 365 * 24 * 3_600_000;
    let rows =
        [(0, 2.0, 1, true), (0, 1.0, 1, true), (0, 0.0, 1, false), (year, 0.0, 1, false)];
    check_timeline(rate(0.0, 2), &rows);
}

#[test]
fn infinite_limit_ignores_the_burst_and_keeps_the_bucket() {
    let mut subject = Subject::full(Rate { limit: Limit::INF, burst: 0 });
    let before = subject.bucket;
    assert!(subject.allow(0, u32::MAX));
    assert!(subject.allow(-5, 1));
    assert_eq!(subject.bucket, before);
}

#[test]
fn reservations_follow_each_other() {
    let mut subject = Subject::full(rate(10.0, 2));
    assert_eq!(subject.reserve_ms(0, 2).1, 0);
    assert_eq!(subject.reserve_ms(0, 1).1, 100);
    assert_eq!(subject.reserve_ms(0, 2).1, 300);
    assert_eq!(subject.reserve_ms(300, 1).1, 100);
    assert!(!subject.allow(399, 0), "in debt, even 0 tokens are refused");
    assert!(subject.allow(400, 0));
}

#[test]
fn refusal_has_a_reason_and_changes_nothing() {
    let mut subject = Subject::full(rate(10.0, 2));
    assert_eq!(subject.reserve_ms(0, 2).1, 0);
    let before = subject.bucket;
    let mut refusal = |n, patience| {
        let at = Subject::at(0);
        subject.request(Request { at, n, patience }).expect_err("a refusal")
    };
    assert_eq!(refusal(3, Patience::UpTo(FOREVER)), Refusal::ExceedsBurst(2));
    assert_eq!(refusal(1, Patience::None), Refusal::NotNow);
    assert_eq!(refusal(1, Patience::UpTo(99 * MS)), Refusal::TooLate(100 * MS));
    assert_eq!(refusal(0, Patience::UpTo(-1)), Refusal::TooLate(0));
    assert_eq!(subject.bucket, before, "invariant 1");
}

#[test]
fn tokens_that_never_come_are_refused() {
    for limit in [0.0, 1e-10, f64::MIN_POSITIVE] {
        let mut subject = Subject::full(rate(limit, 3));
        assert_eq!(subject.reserve_ms(0, 3).1, 0);
        let before = subject.bucket;
        let refusal = subject.reserve(Subject::at(0), 3).expect_err("a refusal");
        assert_eq!(refusal, Refusal::Never, "{limit}");
        assert_eq!(subject.bucket, before, "invariant 1");
    }
}

#[test]
fn tiny_limit_is_not_zero() {
    // 1e-9 per second is one event in 31 years: golang/go#71154.
    let mut subject = Subject::full(rate(1e-9, 1));
    assert!(subject.allow(0, 1));
    assert!(!subject.allow(24 * 3_600_000, 1));
    let (_, wait) = subject.reserve(Subject::at(0), 1).expect("far, but not never");
    assert_eq!(wait / 1_000_000_000, 999_999_999, "seconds");
}

#[test]
fn shortage_below_a_nanosecond_is_ignored() {
    // 7 steps of 0.1 s at 1/s yield a little less than 0.7 tokens. The missing part takes less
    // than a nanosecond: golang/go#46579.
    let mut subject = Subject::full(rate(1.0, 1));
    assert!(subject.allow(0, 1));
    let mut bucket = subject.bucket;
    for step in 1..=10 {
        bucket = bucket.settle(subject.rate, Subject::at(step * 100));
    }
    assert!(bucket.tokens < 1.0, "by rounding");
    subject.bucket = bucket;
    assert!(subject.allow(1000, 1));
}

#[test]
fn cancelling_the_last_reservation_returns_all_tokens() {
    let mut subject = Subject::full(rate(10.0, 2));
    subject.reserve_ms(0, 2);
    let (claim, wait) = subject.reserve_ms(0, 2);
    assert_eq!(wait, 200);
    subject.cancel(0, claim);
    assert_eq!(subject.tokens(0), 0.0);
    assert_eq!(subject.reserve_ms(0, 1).1, 100);
}

#[test]
fn cancelling_an_earlier_reservation_keeps_the_times_of_later_ones() {
    let mut subject = Subject::full(rate(10.0, 3));
    subject.reserve_ms(0, 3);
    let (early, _) = subject.reserve_ms(0, 3);
    let (late, _) = subject.reserve_ms(0, 1);
    subject.cancel(0, early);
    assert_eq!(subject.tokens(0), -2.0, "3 less the 1 promised after");
    subject.cancel(0, late);
    assert_eq!(subject.tokens(0), -1.0);
}

#[test]
fn cancelling_in_reverse_order_returns_all_tokens() {
    let mut subject = Subject::full(rate(10.0, 2));
    subject.reserve_ms(0, 2);
    let (first, _) = subject.reserve_ms(0, 1);
    let (second, _) = subject.reserve_ms(0, 2);
    subject.cancel(0, second);
    subject.cancel(0, first);
    assert_eq!(subject.tokens(0), 0.0);
}

#[test]
fn cancelling_has_no_effect_after_the_time_to_act() {
    let reserved = || {
        let mut subject = Subject::full(rate(10.0, 2));
        subject.reserve_ms(0, 2);
        let (claim, _) = subject.reserve_ms(0, 1);
        (subject, claim)
    };
    let (mut subject, claim) = reserved();
    subject.cancel(100, claim);
    assert_eq!(subject.tokens(100), 1.0);
    let (mut subject, claim) = reserved();
    let before = subject.bucket;
    subject.cancel(101, claim);
    assert_eq!(subject.bucket, before);
}

#[test]
fn cancelling_never_exceeds_the_burst() {
    let mut subject = Subject::full(rate(10.0, 5));
    let (claim, _) = subject.reserve_ms(100, 5);
    subject.rate.burst = 2;
    subject.cancel(100, claim);
    assert_eq!(subject.tokens(100), 2.0);
}

#[test]
fn settled_tokens_come_from_the_old_rate() {
    let mut subject = Subject::full(rate(10.0, 10));
    subject.reserve_ms(0, 10);
    subject.bucket = subject.bucket.settle(subject.rate, Subject::at(500));
    subject.rate = rate(1.0, 3);
    assert_eq!(subject.tokens(500), 3.0, "capped when read");
    subject.rate.burst = 10;
    assert_eq!(subject.tokens(500), 5.0, "but not lost before");
    assert_eq!(subject.tokens(1500), 6.0);
}

#[test]
fn refill_is_capped_at_the_burst_and_clears_debt() {
    let mut subject = Subject::full(rate(10.0, 4));
    subject.reserve_ms(0, 4);
    subject.reserve_ms(0, 4);
    subject.bucket = subject.bucket.refill(subject.rate, 3, Subject::at(0));
    assert_eq!(subject.tokens(0), 3.0);
    subject.bucket = subject.bucket.refill(subject.rate, u32::MAX, Subject::at(0));
    assert_eq!(subject.tokens(0), 4.0);
}

#[test]
fn late_clock_reading_credits_no_interval_twice() {
    let mut subject = Subject::full(rate(10.0, 1));
    let now = |ms: i64| At::Now(START.plus(ms * MS));
    let asks =
        [(0, true), (100, true), (0, false), (100, false), (50, false), (200, true)];
    let asks = asks.map(|(ms, ok)| (now(ms), ok));
    for (i, (at, ok)) in asks.into_iter().enumerate() {
        let granted =
            subject.request(Request { at, n: 1, patience: Patience::None }).is_ok();
        assert_eq!(granted, ok, "request {i}");
    }
}

#[test]
fn late_clock_reading_acts_at_once_if_tokens_are_available() {
    let mut subject = Subject::full(rate(10.0, 2));
    assert!(subject.allow(100, 1));
    let early = At::Now(START);
    assert_eq!(subject.reserve(early, 1).expect("a token").1, 0);
    let (claim, wait) = subject.reserve(early, 1).expect("a reservation");
    assert_eq!(wait, 200 * MS, "100 to catch up, 100 for the token");
    subject.bucket =
        subject.bucket.cancel(subject.rate, claim, early).expect("all tokens come back");
    assert_eq!(subject.tokens(100), 0.0);
}

/// A straightforward model of x/time/rate: a record that is changed in place, with times as
/// wide integers.
#[derive(Clone, Debug)]
struct Model {
    limit: f64,
    burst: f64,
    tokens: f64,
    last: Option<i128>,
    last_event: i128,
}

#[derive(Clone, Copy, Debug)]
struct ModelClaim {
    n: f64,
    act: i128,
    limit: f64,
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "Go converts numbers this way"
)]
impl Model {
    fn tokens_from(limit: f64, ns: i128) -> f64 {
        let ns = ns.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64;
        let seconds = (ns / 1_000_000_000) as f64 + (ns % 1_000_000_000) as f64 / 1e9;
        if limit > 0.0 { seconds * limit } else { 0.0 }
    }

    fn duration_from(limit: f64, tokens: f64) -> i64 {
        if limit > 0.0 { (tokens / limit * 1e9) as i64 } else { i64::MAX }
    }

    fn advance(&self, t: i128) -> f64 {
        let elapsed = self.last.map_or(i128::MAX, |last| t - last.min(t));
        (self.tokens + Self::tokens_from(self.limit, elapsed)).min(self.burst)
    }

    fn reserve(&mut self, t: i128, n: u32, max_wait: i64) -> Option<(ModelClaim, i64)> {
        let n = f64::from(n);
        if self.limit == f64::MAX {
            return Some((ModelClaim { n: 0.0, act: t, limit: 0.0 }, 0));
        }
        let tokens = self.advance(t) - n;
        let wait =
            if tokens < 0.0 { Self::duration_from(self.limit, -tokens) } else { 0 };
        if n > self.burst || wait > max_wait || wait == i64::MAX {
            return None;
        }
        let act = t + i128::from(wait);
        self.last = Some(t);
        self.tokens = tokens;
        self.last_event = act;
        Some((ModelClaim { n, act, limit: self.limit }, wait))
    }

    fn cancel(&mut self, claim: ModelClaim, t: i128) {
        if self.limit == f64::MAX || claim.n == 0.0 || claim.act < t {
            return;
        }
        let after = Self::tokens_from(claim.limit, self.last_event - claim.act);
        let restore = claim.n - after;
        if restore <= 0.0 {
            return;
        }
        self.tokens = (self.advance(t) + restore).min(self.burst);
        self.last = Some(t);
        let previous = claim.act + i128::from(Self::duration_from(claim.limit, -claim.n));
        if claim.act == self.last_event && previous >= t {
            self.last_event = previous;
        }
    }

    fn settle(&mut self, t: i128) {
        self.tokens = self.advance(t);
        self.last = Some(t);
    }
}

#[derive(Clone, Debug)]
enum Call {
    Allow(u32),
    Reserve(u32),
    Cancel(prop::sample::Index),
    SetLimit(f64),
    SetBurst(u32),
}

fn limits() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => 0.1..1000.0,
        1 => Just(f64::MAX),
        1 => Just(0.0),
        1 => 1e-12..1e-6,
        1 => 1e6..1e15,
    ]
}

fn calls() -> impl Strategy<Value = Call> {
    prop_oneof![
        4 => (0_u32..6).prop_map(Call::Allow),
        4 => (0_u32..6).prop_map(Call::Reserve),
        3 => any::<prop::sample::Index>().prop_map(Call::Cancel),
        1 => limits().prop_map(Call::SetLimit),
        1 => (0_u32..8).prop_map(Call::SetBurst),
    ]
}

/// Steps of time, mostly forward, of whole seconds and odd nanoseconds.
fn steps() -> impl Strategy<Value = i64> {
    prop_oneof![
        2 => Just(0_i64),
        4 => 0_i64..300_000_000,
        2 => (0_i64..30).prop_map(|ms| ms * 10_000_000),
        2 => -200_000_000_i64..0,
        1 => 0_i64..10_000_000_000_000,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn bucket_equals_the_model_bit_for_bit(
        limit in limits(),
        burst in 0_u32..8,
        history in prop::collection::vec((steps(), calls()), 1..120),
    ) {
        let mut subject = Subject::full(rate(limit, burst));
        let burst = f64::from(burst);
        let mut model = Model { limit, burst, tokens: burst, last: None, last_event: 0 };
        let mut claims = Vec::new();
        let mut t = 0_i64;
        for (step, call) in history {
            t += step;
            let (at, wide) = (At::Exactly(START.plus(t)), i128::from(t));
            match call {
                Call::Allow(n) => {
                    let ok = subject.request(Request { at, n, patience: Patience::None }).is_ok();
                    prop_assert_eq!(ok, model.reserve(wide, n, 0).is_some());
                }
                Call::Reserve(n) => {
                    let ours = subject.request(Request { at, n, patience: Patience::UpTo(FOREVER) });
                    let theirs = model.reserve(wide, n, i64::MAX);
                    let ready = ours.ok().map(|grant| grant.ready.since(START.plus(t)));
                    prop_assert_eq!(ready, theirs.map(|(_, wait)| wait));
                    claims.extend(ours.ok().zip(theirs.map(|(claim, _)| claim)));
                }
                Call::Cancel(_) if claims.is_empty() => {}
                Call::Cancel(which) => {
                    let (grant, claim) = claims.swap_remove(which.index(claims.len()));
                    if let Some(claim) = grant.claim {
                        let next = subject.bucket.cancel(subject.rate, claim, at);
                        subject.bucket = next.unwrap_or(subject.bucket);
                    }
                    model.cancel(claim, wide);
                }
                Call::SetLimit(limit) => {
                    subject.bucket = subject.bucket.settle(subject.rate, at);
                    subject.rate.limit = Limit::per_second(limit);
                    model.settle(wide);
                    model.limit = limit;
                }
                Call::SetBurst(burst) => {
                    subject.bucket = subject.bucket.settle(subject.rate, at);
                    subject.rate.burst = burst;
                    model.settle(wide);
                    model.burst = f64::from(burst);
                }
            }
            let (ours, theirs) = (subject.bucket.tokens(subject.rate, at), model.advance(wide));
            prop_assert_eq!(ours.to_bits(), theirs.to_bits(), "{} and {}", ours, theirs);
        }
    }
}

/// A clock reading `ms` after the start.
fn now(ms: i64) -> At {
    At::Now(START.plus(ms * MS))
}

fn patient(ms: i64, n: u32) -> Request {
    Request { at: now(ms), n, patience: Patience::UpTo(FOREVER) }
}

/// An empty bucket of 1 token per second and a burst of 3.
fn drained() -> Subject {
    let rate = rate(1.0, 3);
    Subject { bucket: TokenBucket::new(0, START), rate }
}

impl Subject {
    /// Reserves by a clock reading, checks the time to act, and returns the claim.
    #[track_caller]
    fn claim(&mut self, ms: i64, n: u32, act: i64) -> Claim {
        let claim = self.request(patient(ms, n)).expect("within the burst").claim;
        let claim = claim.expect("a finite limit");
        assert_eq!(claim.act, START.plus(act * MS));
        claim
    }

    fn cancel_now(&mut self, ms: i64, claim: Claim) {
        let next = self.bucket.cancel(self.rate, claim, now(ms));
        self.bucket = next.unwrap_or(self.bucket);
    }
}

#[test]
fn latest_event_is_never_before_a_claim() {
    let mut subject = drained();
    let first = subject.claim(0, 3, 3000);
    let second = subject.claim(0, 1, 4000);
    subject.cancel_now(0, first);
    assert_eq!(subject.tokens(0), -2.0, "the second depends on one of three tokens");
    assert_eq!(subject.bucket.last_event, second.act);
    let third = subject.claim(0, 1, 3000);
    let latest = second.act.plus(1);
    assert_eq!(subject.bucket.last_event, latest, "no claim acts then");
    subject.cancel_now(0, second);
    assert_eq!(subject.tokens(0), -3.0 + (1.0 - 1e-9));
    assert_eq!(subject.bucket.last_event, latest);
    subject.cancel_now(0, third);
    assert_eq!(subject.tokens(0), -3.0 + (1.0 - 1e-9), "others may depend on it");
}

#[test]
fn claims_cancelled_in_reverse_order_restore_the_latest_event() {
    let mut subject = drained();
    let claims = [1000, 2000, 3000].map(|act| subject.claim(0, 1, act));
    for claim in claims.into_iter().rev() {
        assert_eq!(subject.bucket.last_event, claim.act);
        subject.cancel_now(0, claim);
        assert_eq!(subject.bucket.last_event, claim.act.plus(-1000 * MS));
    }
    assert_eq!(subject.tokens(0), 0.0);
}

#[test]
fn available_tokens_do_not_change_a_later_event() {
    let mut subject = drained();
    let first = subject.claim(0, 3, 3000);
    let second = subject.claim(2900, 1, 4000);
    subject.cancel_now(3000, first);
    assert_eq!(subject.tokens(3000), 1.0);
    let third = subject.claim(3000, 1, 3000);
    assert_eq!(subject.bucket.last_event, second.act);
    subject.cancel_now(3000, third);
    assert_eq!(subject.tokens(3000), 0.0, "the second depends on it");
}

#[test]
fn unused_tokens_come_back_minus_those_gained_since() {
    for (late, back) in [(0, 1.0), (250, 0.75), (1000, 0.0), (2000, 0.0)] {
        let mut subject = drained();
        let claim = subject.claim(0, 1, 1000);
        let t = START.plus((1000 + late) * MS);
        let before = subject.tokens(1000 + late);
        if late > 0 {
            assert_eq!(subject.bucket.cancel(subject.rate, claim, At::Now(t)), None);
        }
        let next = subject.bucket.return_unused(subject.rate, claim, t);
        assert_eq!(next.is_some(), back > 0.0, "{late}");
        subject.bucket = next.unwrap_or(subject.bucket);
        assert_eq!(subject.tokens(1000 + late), before + back, "{late}");
    }
}

#[test]
fn cancelled_claim_never_returns_more_than_it_took() {
    let mut subject = drained();
    let claim = subject.claim(0, 2, 2000);
    subject
        .reserve(Subject::at(-10_000), 0)
        .expect("an explicit time moves the event back");
    assert!(subject.bucket.last_event < claim.act);
    let before = subject.tokens(0);
    subject.cancel_now(0, claim);
    assert!(subject.tokens(0) <= before + 2.0);
}

#[test]
fn expected_time_counts_the_tokens_ahead() {
    let subject = drained();
    let expect = |rate, request, ahead| subject.bucket.expect(rate, request, ahead);
    let at = |ms: i64| Ok(START.plus(ms * MS));
    assert_eq!(expect(subject.rate, patient(0, 1), 0), at(1000));
    assert_eq!(expect(subject.rate, patient(0, 2), 5), at(7000));
    assert_eq!(expect(subject.rate, patient(500, 2), 5), at(7000));
    assert_eq!(expect(subject.rate, patient(2000, 2), 0), at(2000), "available");
    assert_eq!(expect(subject.rate, patient(2000, 1), 1), at(2000), "exactly");
    assert_eq!(expect(subject.rate, patient(0, 3), 0), at(3000));
    let exceeded = Err(Refusal::ExceedsBurst(3));
    assert_eq!(expect(subject.rate, patient(0, 4), 0), exceeded);
    assert_eq!(expect(rate(0.0, 3), patient(0, 1), 0), Err(Refusal::Never));
    assert_eq!(expect(rate(f64::INFINITY, 3), patient(7, 9), 9), at(7));
}

#[test]
fn claim_is_renewed_only_for_an_earlier_time() {
    let mut subject = drained();
    let claim = subject.claim(0, 1, 1000);
    let renew = |rate, ms| subject.bucket.renew(rate, claim, patient(ms, 1));
    assert_eq!(renew(subject.rate, 0), None, "the same time");
    assert_eq!(renew(rate(0.5, 3), 0), None, "a later time");
    let (next, grant) = renew(rate(10.0, 3), 0).expect("an earlier time");
    assert_eq!(grant.ready, START.plus(100 * MS));
    assert_eq!(next.expect("a finite limit").tokens, -1.0, "one claim, not two");
    let (next, grant) = renew(rate(f64::INFINITY, 3), 5).expect("at once");
    assert_eq!((next, grant.ready), (None, START.plus(5 * MS)));
}

#[test]
fn deadline_follows_from_patience() {
    let request = |patience| Request { at: now(5), n: 1, patience };
    assert_eq!(request(Patience::None).deadline(), START.plus(5 * MS));
    assert_eq!(request(Patience::UpTo(2 * MS)).deadline(), START.plus(7 * MS));
    assert_eq!(request(Patience::UpTo(FOREVER)).deadline(), Moment::END);
}
