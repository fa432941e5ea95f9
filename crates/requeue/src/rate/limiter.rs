//! The limiter: a bucket that threads share, a clock, and the line of waiters.
//!
//! # Invariants
//!
//! 1. `has_line` is a hint: it is written under the lock of the line and says whether the
//!    line has waiters. A call that reads it relaxed and finds none may be as old as the
//!    waiter that is about to join, so neither comes first.
//! 2. A call that changes limit, burst or tokens takes the lock of the line afterwards. So
//!    a waiter that joins either sees the change or is seen by that call.
//! 3. The lock of the line is held around operations on the bucket, never the other way
//!    round. No clock and no waker is called with the lock held.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::bucket::{Ask, At, Bucket, Claim, Grant, Patience, Refusal, Terms};
use super::error::ReserveError;
use super::limit::Limit;
use super::line::{Held, Line, Meter};
use super::moment::{FOREVER, Moment, Timeline, duration};
use super::reservation::Reservation;
use super::versioned::{Step, Versioned};
use crate::clock::{AnyClock, Clock};
use crate::sync::{self, Mutex};
use crate::wake::Wakes;

/// Limits the rate of events with a token bucket.
///
/// The bucket holds up to *burst* tokens, starts full, and gains *limit* tokens a second.
/// Each event takes a token, so any stretch of time has at most `burst + limit × time`
/// events. There are three ways to ask for a token. They differ in what happens if none is
/// available:
///
/// | method | without a token | use it to |
/// |---|---|---|
/// | [`wait`](Self::wait) | lines up for one | slow down; most callers want this |
/// | [`allow`](Self::allow) | returns `false` | drop or skip excess events |
/// | [`reserve`](Self::reserve) | takes a future one and returns when it may be used | schedule the event yourself, or cancel it |
///
/// Each has a form for `n` tokens, and `allow` and `reserve` have one for an explicit time.
/// Clones share the bucket. A call that does not wait takes one compare-and-swap, and a
/// refused `allow` takes none. Limit and burst can change at any time.
///
/// # Waiting
///
/// Callers of `wait` are served in order. Only the first one holds a token, so callers that
/// give up cost the others nothing: under timeouts the limiter still serves its full rate.
/// `allow` returns `false` while callers wait. `reserve` does not line up: it takes the next
/// tokens after those of the first caller in line.
///
/// # Time
///
/// Calls without a time read the clock. They keep to `burst + limit × time` in all cases,
/// even if clock readings arrive out of order or reservations are cancelled in any order.
///
/// Calls with an explicit time (`…_at`) have the arithmetic of x/time/rate, to the last bit,
/// and so its exceptions from the bound. A time before the last one credits the interval
/// twice. [`Reservation::cancel_at`] can give back more than was taken if a later
/// reservation is outstanding. They do not look at the line either.
///
/// # Examples
///
/// ```
/// use requeue::rate::{Limit, Limiter};
///
/// let limiter = Limiter::new(Limit::per_second(10.0), 2);
/// assert!(limiter.allow());
/// assert!(limiter.allow());
/// assert!(!limiter.allow()); // the next token comes in 100 ms
/// ```
#[derive(Clone)]
pub struct Limiter {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    clock: AnyClock,
    timeline: Timeline,
    /// Invariant 1.
    has_line: AtomicBool,
    state: Versioned<5>,
    line: Mutex<Line<Option<Claim>>>,
}

/// What a limiter knows.
#[derive(Clone, Copy)]
struct State {
    bucket: Bucket,
    terms: Terms,
}

impl Limiter {
    /// Makes a limiter that is full: `burst` events may happen at once, then `limit` a
    /// second.
    ///
    /// Any burst will do. With 0 nothing is ever allowed, unless the limit is
    /// [`Limit::INF`], for which the burst does not matter.
    #[doc(alias = "NewLimiter")]
    pub fn new(limit: Limit, burst: u32) -> Self {
        Self::on(AnyClock::System, Terms { limit, burst })
    }

    /// Makes a limiter that asks `clock` for the time.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use requeue::rate::{Limit, Limiter};
    /// use requeue::testing::FakeClock;
    ///
    /// let clock = FakeClock::new();
    /// let limiter = Limiter::with_clock(Limit::per_second(10.0), 1, clock.clone());
    /// assert!(limiter.allow());
    /// assert!(!limiter.allow());
    /// clock.advance(Duration::from_millis(100));
    /// assert!(limiter.allow());
    /// ```
    pub fn with_clock(limit: Limit, burst: u32, clock: impl Clock) -> Self {
        Self::on(AnyClock::new(clock), Terms { limit, burst })
    }

    fn on(clock: AnyClock, terms: Terms) -> Self {
        let timeline = Timeline::from(clock.now());
        // A full bucket is full at any time, so it does not matter that it has not been
        // used yet.
        let bucket = Bucket::new(terms.burst, Moment::START);
        let state = Versioned::new(State { bucket, terms }.to_words());
        let (has_line, line) = (AtomicBool::new(false), Mutex::new(Line::new()));
        Self { shared: Arc::new(Shared { clock, timeline, has_line, state, line }) }
    }

    /// Starts the limiter with `tokens` in place of a full bucket.
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue::rate::{Limit, Limiter};
    ///
    /// let limiter = Limiter::new(Limit::every(std::time::Duration::from_secs(60)), 10)
    ///     .with_tokens(1);
    /// assert!(limiter.allow());
    /// assert!(!limiter.allow());
    /// ```
    #[must_use = "the limiter comes back"]
    pub fn with_tokens(self, tokens: u32) -> Self {
        self.set_tokens(tokens);
        self
    }

    /// The limit at present.
    #[doc(alias = "Limit")]
    pub fn limit(&self) -> Limit {
        self.state().terms.limit
    }

    /// The burst at present.
    #[doc(alias = "Burst")]
    pub fn burst(&self) -> u32 {
        self.state().terms.burst
    }

    /// Returns the number of tokens; negative while tokens are reserved or waited for.
    ///
    /// A snapshot; do not base decisions on it. Of the callers in line it counts the first.
    #[doc(alias = "Tokens")]
    pub fn tokens(&self) -> f64 {
        self.tokens_on(self.now())
    }

    /// Returns the number of tokens at `t`, if none are taken until then.
    #[doc(alias = "TokensAt")]
    pub fn tokens_at(&self, t: Instant) -> f64 {
        self.tokens_on(self.exactly(t))
    }

    /// Takes a token if one is available. Returns whether it did.
    #[doc(alias = "Allow")]
    #[inline]
    pub fn allow(&self) -> bool {
        self.allow_n(1)
    }

    /// Takes `n` tokens if that many are available. Returns whether it did.
    ///
    /// All or none: a refusal changes nothing. Refused while callers of
    /// [`wait`](Self::wait) are in line. Even 0 tokens are refused then, and while reserved
    /// tokens are outstanding.
    #[doc(alias = "AllowN")]
    #[inline]
    pub fn allow_n(&self, n: u32) -> bool {
        self.allows(self.now(), n)
    }

    /// Takes `n` tokens if that many are available at `t`. Returns whether it did.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use requeue::rate::{Limit, Limiter};
    ///
    /// let limiter = Limiter::new(Limit::per_second(10.0), 3);
    /// let t = Instant::now();
    /// assert!(limiter.allow_at(t, 3));
    /// assert!(!limiter.allow_at(t + Duration::from_millis(100), 2));
    /// assert!(limiter.allow_at(t + Duration::from_millis(200), 2));
    /// ```
    #[doc(alias = "AllowN")]
    pub fn allow_at(&self, t: Instant, n: u32) -> bool {
        self.take(Ask { at: self.exactly(t), n, patience: Patience::None }).is_ok()
    }

    /// Takes a token, now or from the future, and returns when it may be used.
    ///
    /// See [`reserve_n`](Self::reserve_n).
    ///
    /// # Errors
    ///
    /// As [`reserve_n`](Self::reserve_n).
    #[doc(alias = "Reserve")]
    pub fn reserve(&self) -> Result<Reservation, ReserveError> {
        self.reserve_n(1)
    }

    /// Takes `n` tokens, now or from the future, and returns when they may be used.
    ///
    /// Wait for [`Reservation::delay`] and act, or give the tokens back with
    /// [`Reservation::cancel`]. Dropping a reservation keeps the tokens taken.
    ///
    /// A reservation does not line up. Callers of [`wait`](Self::wait) that are in line, but
    /// not the first, are served after it.
    ///
    /// # Errors
    ///
    /// [`ReserveError::ExceedsBurst`] if `n` is more than the burst, and
    /// [`ReserveError::Never`] if the tokens never come, as from an empty bucket with
    /// [`Limit::ZERO`]. The limiter is then unchanged.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use requeue::rate::{Limit, Limiter, ReserveError};
    /// use requeue::testing::FakeClock;
    ///
    /// let clock = FakeClock::new();
    /// let limiter = Limiter::with_clock(Limit::per_second(10.0), 2, clock);
    /// assert_eq!(limiter.reserve_n(2)?.delay(), Duration::ZERO);
    /// assert_eq!(limiter.reserve()?.delay(), Duration::from_millis(100));
    ///
    /// let refused = limiter.reserve_n(3).unwrap_err();
    /// assert_eq!(refused, ReserveError::ExceedsBurst { asked: 3, burst: 2 });
    /// # Ok::<(), ReserveError>(())
    /// ```
    #[doc(alias = "ReserveN")]
    #[inline]
    pub fn reserve_n(&self, n: u32) -> Result<Reservation, ReserveError> {
        self.reserve_on(self.now(), n)
    }

    /// Takes `n` tokens as of `t`, and returns when they may be used.
    ///
    /// # Errors
    ///
    /// As [`reserve_n`](Self::reserve_n).
    #[doc(alias = "ReserveN")]
    pub fn reserve_at(&self, t: Instant, n: u32) -> Result<Reservation, ReserveError> {
        self.reserve_on(self.exactly(t), n)
    }

    /// Returns how long a [`reserve`](Self::reserve) would have to wait, without taking a
    /// token.
    ///
    /// # Errors
    ///
    /// As [`reserve_n`](Self::reserve_n).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use requeue::rate::{Limit, Limiter};
    /// use requeue::testing::FakeClock;
    ///
    /// let clock = FakeClock::new();
    /// let limiter = Limiter::with_clock(Limit::per_second(4.0), 1, clock);
    /// assert_eq!(limiter.peek(), Ok(Duration::ZERO));
    /// assert!(limiter.allow());
    /// assert_eq!(limiter.peek(), Ok(Duration::from_millis(250)));
    /// assert_eq!(limiter.peek(), Ok(Duration::from_millis(250)));
    /// ```
    pub fn peek(&self) -> Result<Duration, ReserveError> {
        self.peek_n(1)
    }

    /// Returns how long a reservation of `n` tokens would have to wait, without taking them.
    ///
    /// # Errors
    ///
    /// As [`reserve_n`](Self::reserve_n).
    pub fn peek_n(&self, n: u32) -> Result<Duration, ReserveError> {
        self.peek_on(self.now(), n)
    }

    /// Returns how long after `t` a reservation of `n` tokens would have to wait, without
    /// taking them.
    ///
    /// # Errors
    ///
    /// As [`reserve_n`](Self::reserve_n).
    pub fn peek_at(&self, t: Instant, n: u32) -> Result<Duration, ReserveError> {
        self.peek_on(self.exactly(t), n)
    }

    /// Changes the limit from now on.
    ///
    /// Reservations keep their times. The first caller in line is served at its old time,
    /// or earlier if the new limit permits that. The callers behind it are served at the new
    /// limit; while it is zero, they wait for it to change.
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue::rate::{Limit, Limiter};
    ///
    /// let limiter = Limiter::new(Limit::ZERO, 0);
    /// assert!(!limiter.allow());
    /// limiter.set_limit(Limit::INF);
    /// assert!(limiter.allow());
    /// ```
    #[doc(alias = "SetLimit")]
    pub fn set_limit(&self, limit: Limit) {
        self.change(self.now(), |terms| Terms { limit, ..terms });
    }

    /// Changes the limit as of `t`: until then the bucket fills at the old one.
    #[doc(alias = "SetLimitAt")]
    pub fn set_limit_at(&self, t: Instant, limit: Limit) {
        self.change(self.exactly(t), |terms| Terms { limit, ..terms });
    }

    /// Changes the burst from now on.
    ///
    /// A larger burst adds no tokens by itself; a smaller one spills those that no longer
    /// fit. Callers in line that want more than the new burst end with
    /// [`WaitError::ExceedsBurst`](super::WaitError::ExceedsBurst), except the first one,
    /// whose tokens are reserved.
    #[doc(alias = "SetBurst")]
    pub fn set_burst(&self, burst: u32) {
        self.change(self.now(), |terms| Terms { burst, ..terms });
    }

    /// Changes the burst as of `t`.
    #[doc(alias = "SetBurstAt")]
    pub fn set_burst_at(&self, t: Instant, burst: u32) {
        self.change(self.exactly(t), |terms| Terms { burst, ..terms });
    }

    /// Replaces the number of available tokens, capped at the burst.
    ///
    /// Use it to follow a limit that a server reports, for example in a
    /// `RateLimit-Remaining` header. Debts are forgotten, but reservations keep their times.
    /// Callers in line are served earlier if the new tokens permit it.
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue::rate::{Limit, Limiter};
    ///
    /// let limiter = Limiter::new(Limit::ZERO, 100);
    /// limiter.set_tokens(1); // the server says: one call is left
    /// assert!(limiter.allow());
    /// assert!(!limiter.allow());
    /// ```
    pub fn set_tokens(&self, tokens: u32) {
        self.refill(self.now(), tokens);
    }

    /// Replaces the number of available tokens as of `t`.
    pub fn set_tokens_at(&self, t: Instant, tokens: u32) {
        self.refill(self.exactly(t), tokens);
    }

    #[inline]
    pub(super) fn clock(&self) -> &AnyClock {
        &self.shared.clock
    }

    #[inline]
    pub(super) fn now(&self) -> At {
        At::Now(self.moment(self.clock().now()))
    }

    pub(super) fn exactly(&self, t: Instant) -> At {
        At::Exactly(self.moment(t))
    }

    #[inline]
    pub(super) fn moment(&self, t: Instant) -> Moment {
        self.shared.timeline.moment(t)
    }

    pub(super) fn instant(&self, moment: Moment) -> Instant {
        self.shared.timeline.instant(moment)
    }

    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "measured: a quarter of a call's instructions"
    )]
    pub(super) fn take(&self, ask: Ask) -> Result<Grant, Refusal> {
        match self.take_at_hand(ask) {
            Some(grant) => Ok(grant),
            None => self.take_or_refuse(ask),
        }
    }

    /// Takes tokens that need not be counted first: a tenth quicker, see
    /// [`Versioned::exchange`].
    #[inline]
    fn take_at_hand(&self, ask: Ask) -> Option<Grant> {
        self.shared.state.exchange_if(
            |words| {
                let State { bucket, terms } = State::from_words(words);
                bucket.surely_has(terms, ask)
            },
            |words| {
                let State { bucket, terms } = State::from_words(words);
                let (bucket, grant) = bucket.hand_out(terms, ask);
                (State { bucket, terms }.to_words(), grant)
            },
        )
    }

    #[inline]
    fn take_or_refuse(&self, ask: Ask) -> Result<Grant, Refusal> {
        self.shared.take_or_refuse(ask)
    }

    /// Takes tokens for good if they are available and no waiter comes first.
    #[inline]
    pub(super) fn allows(&self, at: At, n: u32) -> bool {
        let ask = Ask { at, n, patience: Patience::None };
        // Relaxed: invariant 1.
        if self.shared.has_line.load(Ordering::Relaxed) {
            return self.take_behind_line(ask).is_ok();
        }
        self.shared.takes_at_hand(ask) || self.shared.takes(ask)
    }

    /// As [`allows`](Self::allows) for a caller that may give the tokens back.
    #[cfg(feature = "tower")]
    pub(super) fn take_in_turn(&self, ask: Ask) -> Result<Grant, Refusal> {
        // Relaxed: invariant 1.
        if self.shared.has_line.load(Ordering::Relaxed) {
            return self.take_behind_line(ask);
        }
        self.take(ask)
    }

    /// Takes tokens if no waiter is left after those whose time has come.
    #[cold]
    #[inline(never)]
    fn take_behind_line(&self, ask: Ask) -> Result<Grant, Refusal> {
        let (is_empty, wakes) = self.with_line(|line, meter| {
            let wakes = line.settle(meter, ask.at.given());
            (line.is_empty(), wakes)
        });
        wakes.wake();
        if is_empty { self.take(ask) } else { Err(Refusal::NotNow) }
    }

    /// Gives back the tokens of a reservation.
    pub(super) fn cancel(&self, claim: Claim, at: At) {
        self.shared.replace(|bucket, terms| bucket.cancel(terms, claim, at));
        self.wake_line(|line, meter, now| line.tokens_came(meter, now));
    }

    /// Gives back tokens whose time has come, but which were not used.
    #[cfg(feature = "tower")]
    pub(super) fn return_unused(&self, claim: Claim) {
        let now = self.now().given();
        self.shared.replace(|bucket, terms| bucket.return_unused(terms, claim, now));
        self.wake_line(|line, meter, now| line.tokens_came(meter, now));
    }

    /// Runs `step` with the line locked.
    pub(super) fn with_line<R>(
        &self,
        step: impl FnOnce(&mut Line<Option<Claim>>, &mut &Shared) -> R,
    ) -> R {
        let mut line = sync::lock(&self.shared.line);
        let result = step(&mut line, &mut &*self.shared);
        self.shared.has_line.store(!line.is_empty(), Ordering::Relaxed);
        result
    }

    /// Lets waiters profit from a change of the bucket (invariant 2).
    fn wake_line(
        &self,
        step: impl FnOnce(&mut Line<Option<Claim>>, &mut &Shared, Moment) -> Wakes,
    ) {
        if !self.with_line(|line, _| line.is_empty()) {
            let now = self.now().given();
            self.with_line(|line, meter| step(line, meter, now)).wake();
        }
    }

    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "measured: a quarter of a call's instructions"
    )]
    fn reserve_on(&self, at: At, n: u32) -> Result<Reservation, ReserveError> {
        match self.take(Ask { at, n, patience: Patience::UpTo(FOREVER) }) {
            Ok(grant) => Ok(Reservation::new(self.clone(), at.given(), grant)),
            Err(refusal) => Err(refused(refusal, n)),
        }
    }

    /// As [`reserve`](Self::reserve) for one who cannot give the token back: how long to
    /// wait for it. `None` if it never comes.
    #[inline]
    pub(crate) fn take_one(&self) -> Option<Duration> {
        self.take_one_on(self.now())
    }

    /// The same for one who has just read the system's clock.
    #[inline]
    pub(crate) fn take_one_at(&self, now: Instant) -> Option<Duration> {
        self.take_one_on(At::Now(self.moment(self.clock().reread(now))))
    }

    #[inline]
    fn take_one_on(&self, at: At) -> Option<Duration> {
        // Retries are many when they come: the bucket is in debt then.
        let ask = Ask { at, n: 1, patience: Patience::UpTo(FOREVER) };
        let grant = self.take_or_refuse(ask).ok()?;
        Some(duration(grant.ready.since(at.given())))
    }

    fn peek_on(&self, at: At, n: u32) -> Result<Duration, ReserveError> {
        let State { bucket, terms } = self.state();
        match bucket.reserve(terms, Ask { at, n, patience: Patience::UpTo(FOREVER) }) {
            Ok((_, grant)) => Ok(duration(grant.ready.since(at.given()))),
            Err(refusal) => Err(refused(refusal, n)),
        }
    }

    fn tokens_on(&self, at: At) -> f64 {
        let State { bucket, terms } = self.state();
        bucket.tokens(terms, at)
    }

    fn change(&self, at: At, new: impl Fn(Terms) -> Terms) {
        self.shared.state.update(|words| {
            let State { bucket, terms } = State::from_words(words);
            let bucket = bucket.settle(terms, at);
            Step::Replace(State { bucket, terms: new(terms) }.to_words(), ())
        });
        self.wake_line(|line, meter, now| line.terms_changed(meter, now));
    }

    fn refill(&self, at: At, tokens: u32) {
        self.shared.replace(|bucket, terms| Some(bucket.refill(terms, tokens, at)));
        self.wake_line(|line, meter, now| line.terms_changed(meter, now));
    }

    fn state(&self) -> State {
        self.shared.read()
    }

    #[inline]
    pub(super) fn timeline(&self) -> Timeline {
        self.shared.timeline
    }
}

impl Shared {
    /// As [`Limiter::take_at_hand`] without a claim, which saves some instructions.
    #[inline]
    fn takes_at_hand(&self, ask: Ask) -> bool {
        let taken = self.state.exchange_if(
            |words| {
                let State { bucket, terms } = State::from_words(words);
                bucket.surely_has(terms, ask)
            },
            |words| {
                let State { bucket, terms } = State::from_words(words);
                let (bucket, _) = bucket.hand_out(terms, ask);
                (State { bucket, terms }.to_words(), ())
            },
        );
        taken.is_some()
    }

    /// As [`take_or_refuse`](Self::take_or_refuse) without a claim.
    #[inline]
    fn takes(&self, ask: Ask) -> bool {
        self.state.update(|words| {
            let state = State::from_words(words);
            match state.bucket.reserve(state.terms, ask) {
                Ok((Some(bucket), _)) => {
                    Step::Replace(State { bucket, ..state }.to_words(), true)
                }
                Ok((None, _)) => Step::Keep(true),
                Err(_) => Step::Keep(false),
            }
        })
    }

    fn read(&self) -> State {
        State::from_words(self.state.read())
    }

    /// Replaces the bucket, unless `step` returns `None`.
    fn replace(&self, step: impl Fn(Bucket, Terms) -> Option<Bucket>) {
        self.state.update(|words| {
            let State { bucket, terms } = State::from_words(words);
            match step(bucket, terms) {
                Some(bucket) => Step::Replace(State { bucket, terms }.to_words(), ()),
                None => Step::Keep(()),
            }
        });
    }

    #[inline]
    fn take_or_refuse(&self, ask: Ask) -> Result<Grant, Refusal> {
        self.state.update(|words| {
            let state = State::from_words(words);
            match state.bucket.reserve(state.terms, ask) {
                Ok((Some(bucket), grant)) => {
                    Step::Replace(State { bucket, ..state }.to_words(), Ok(grant))
                }
                Ok((None, grant)) => Step::Keep(Ok(grant)),
                Err(refusal) => Step::Keep(Err(refusal)),
            }
        })
    }

    /// Replaces `claim` by one that acts earlier, if there is one.
    fn renew(&self, claim: Claim, ask: Ask) -> Option<Grant> {
        self.state.update(|words| {
            let state = State::from_words(words);
            match state.bucket.renew(state.terms, claim, ask) {
                Some((Some(bucket), grant)) => {
                    Step::Replace(State { bucket, ..state }.to_words(), Some(grant))
                }
                Some((None, grant)) => Step::Keep(Some(grant)),
                None => Step::Keep(None),
            }
        })
    }
}

impl Meter for &Shared {
    type Claim = Option<Claim>;

    fn reserve(&mut self, ask: Ask) -> Result<Held<Option<Claim>>, Refusal> {
        self.take_or_refuse(ask).map(held)
    }

    fn give_back(&mut self, claim: Option<Claim>, now: Moment) {
        if let Some(claim) = claim {
            self.replace(|bucket, terms| bucket.return_unused(terms, claim, now));
        }
    }

    fn expect(&self, ask: Ask, ahead: u64) -> Result<Moment, Refusal> {
        let State { bucket, terms } = self.read();
        bucket.expect(terms, ask, ahead)
    }

    fn renew(&mut self, held: &mut Held<Option<Claim>>, ask: Ask, now: Moment) {
        let ask = Ask { at: At::Now(now), patience: Patience::UpTo(FOREVER), ..ask };
        let sooner = held.claim.and_then(|claim| Shared::renew(self, claim, ask));
        if let Some(grant) = sooner {
            *held = self::held(grant);
        }
    }
}

pub(super) fn held(Grant { ready, claim }: Grant) -> Held<Option<Claim>> {
    Held { ready, claim }
}

/// The error for a refusal without a deadline.
#[cold]
pub(super) fn refused(refusal: Refusal, asked: u32) -> ReserveError {
    match refusal {
        Refusal::ExceedsBurst(burst) => ReserveError::ExceedsBurst { asked, burst },
        Refusal::Never | Refusal::NotNow | Refusal::TooLate(_) => {
            ReserveError::Never { asked }
        }
    }
}

impl State {
    #[inline]
    fn to_words(self) -> [u64; 5] {
        let [tokens, last, last_event] = self.bucket.to_words();
        let Terms { limit, burst } = self.terms;
        [tokens, last, last_event, limit.to_word(), u64::from(burst)]
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the word was made from a u32")]
    fn from_words([tokens, last, last_event, limit, burst]: [u64; 5]) -> Self {
        let terms = Terms { limit: Limit::from_word(limit), burst: burst as u32 };
        Self { bucket: Bucket::from_words([tokens, last, last_event]), terms }
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let State { bucket, terms } = self.state();
        f.debug_struct("Limiter")
            .field("limit", &terms.limit)
            .field("burst", &terms.burst)
            .field("tokens", &bucket.tokens(terms, self.now()))
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, requeue_loom))]
mod loom_tests;
#[cfg(test)]
mod tests;
