//! The bucket that the clones of a limiter share, with its clock and its line of waiters.
//!
//! # Invariants
//!
//! 1. `has_line` is a hint: it is written under the lock of the line and says whether the
//!    line has waiters. A call that reads it relaxed and finds none may be as old as a waiter
//!    that is about to join, so neither has to come first.
//! 2. A call that changes limit, burst or tokens takes the lock of the line afterwards. So a
//!    waiter that joins either sees the change or is seen by that call.
//! 3. The lock of the line is held around operations on the bucket, never the other way
//!    round. No clock and no waker is called with the lock held.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::clock::AnyClock;
use crate::rate::bucket::{At, Claim, Grant, Rate, Refusal, Request, TokenBucket};
use crate::rate::limit::Limit;
use crate::rate::line::wait::LineOwner;
use crate::rate::line::{Held, LineStatus, Ticket, TokenSource, WaiterLine};
use crate::rate::moment::{Moment, Timeline, duration};
use crate::rate::versioned::{Step, Versioned};
use crate::sync::{self, Mutex};
use crate::wake::{Wake, Wakes};

pub(in crate::rate) struct SharedBucket {
    clock: AnyClock,
    timeline: Timeline,
    /// Invariant 1.
    has_line: AtomicBool,
    state: Versioned<5>,
    line: Mutex<WaiterLine<Option<Claim>>>,
}

/// A bucket and its rate, which are read and written together.
#[derive(Clone, Copy)]
struct RatedBucket {
    bucket: TokenBucket,
    rate: Rate,
}

impl SharedBucket {
    /// Returns a full bucket.
    pub(in crate::rate) fn new(clock: AnyClock, rate: Rate) -> Self {
        let timeline = Timeline::from(clock.now());
        // A full bucket is full at any time, so its age does not matter.
        let bucket = TokenBucket::new(rate.burst, Moment::START);
        Self {
            clock,
            timeline,
            has_line: AtomicBool::new(false),
            state: Versioned::new(RatedBucket { bucket, rate }.to_words()),
            line: Mutex::new(WaiterLine::new()),
        }
    }

    #[cfg(feature = "tower")]
    pub(in crate::rate) fn clock(&self) -> &AnyClock {
        &self.clock
    }

    #[inline]
    pub(in crate::rate) fn now(&self) -> At {
        At::Now(self.moment(self.clock.now()))
    }

    pub(in crate::rate) fn exactly(&self, t: Instant) -> At {
        At::Exactly(self.moment(t))
    }

    #[inline]
    pub(in crate::rate) fn moment(&self, t: Instant) -> Moment {
        self.timeline.moment(t)
    }

    pub(in crate::rate) fn instant(&self, moment: Moment) -> Instant {
        self.timeline.instant(moment)
    }

    pub(super) fn rate(&self) -> Rate {
        self.read().rate
    }

    pub(super) fn tokens(&self, at: At) -> f64 {
        let RatedBucket { bucket, rate } = self.read();
        bucket.tokens(rate, at)
    }

    /// Takes tokens for good if they are available and no waiter comes first.
    #[inline]
    pub(super) fn allow(&self, at: At, n: u32) -> bool {
        let request = Request::at_once(at, n);
        // Relaxed: invariant 1.
        if self.has_line.load(Ordering::Relaxed) {
            return self.take_behind_line(request).is_ok();
        }
        self.allow_available(request) || self.allow_exact(request)
    }

    /// Takes available tokens, unless a waiter comes first. The caller may give them back.
    #[cfg(feature = "tower")]
    pub(in crate::rate) fn take_in_turn(
        &self,
        request: Request,
    ) -> Result<Grant, Refusal> {
        // Relaxed: invariant 1.
        if self.has_line.load(Ordering::Relaxed) {
            return self.take_behind_line(request);
        }
        self.take(request)
    }

    /// Takes tokens if no waiter is left after serving those whose time has come.
    #[cold]
    #[inline(never)]
    fn take_behind_line(&self, request: Request) -> Result<Grant, Refusal> {
        let (is_empty, wakes) = self.with_line(|line, source| {
            let wakes = line.settle(source, request.at.given());
            (line.is_empty(), wakes)
        });
        wakes.wake();
        if is_empty { self.take(request) } else { Err(Refusal::NotNow) }
    }

    /// Takes tokens, now or from the future, if they come in time.
    #[inline]
    pub(super) fn take(&self, request: Request) -> Result<Grant, Refusal> {
        match self.take_available(request) {
            Some(grant) => Ok(grant),
            None => self.take_exact(request),
        }
    }

    /// Takes tokens that are certainly available; see [`Versioned::exchange_if`].
    #[inline]
    fn take_available(&self, request: Request) -> Option<Grant> {
        self.state.exchange_if(
            |words| {
                let RatedBucket { bucket, rate } = RatedBucket::from_words(words);
                bucket.surely_has(rate, request)
            },
            |words| {
                let RatedBucket { bucket, rate } = RatedBucket::from_words(words);
                let (bucket, grant) = bucket.take_available(rate, request);
                (RatedBucket { bucket, rate }.to_words(), grant)
            },
        )
    }

    /// Takes tokens after computing exactly when they come.
    #[inline]
    fn take_exact(&self, request: Request) -> Result<Grant, Refusal> {
        self.state.update(|words| {
            let state = RatedBucket::from_words(words);
            match state.bucket.reserve(state.rate, request) {
                Ok((Some(bucket), grant)) => {
                    Step::Replace(RatedBucket { bucket, ..state }.to_words(), Ok(grant))
                }
                Ok((None, grant)) => Step::Keep(Ok(grant)),
                Err(refusal) => Step::Keep(Err(refusal)),
            }
        })
    }

    /// As [`take_available`](Self::take_available) without a claim, which saves a tenth.
    #[inline]
    fn allow_available(&self, request: Request) -> bool {
        let taken = self.state.exchange_if(
            |words| {
                let RatedBucket { bucket, rate } = RatedBucket::from_words(words);
                bucket.surely_has(rate, request)
            },
            |words| {
                let RatedBucket { bucket, rate } = RatedBucket::from_words(words);
                let (bucket, _) = bucket.take_available(rate, request);
                (RatedBucket { bucket, rate }.to_words(), ())
            },
        );
        taken.is_some()
    }

    /// As [`take_exact`](Self::take_exact) without a claim.
    #[inline]
    fn allow_exact(&self, request: Request) -> bool {
        self.state.update(|words| {
            let state = RatedBucket::from_words(words);
            match state.bucket.reserve(state.rate, request) {
                Ok((Some(bucket), _)) => {
                    Step::Replace(RatedBucket { bucket, ..state }.to_words(), true)
                }
                Ok((None, _)) => Step::Keep(true),
                Err(_) => Step::Keep(false),
            }
        })
    }

    /// Takes one token for good and returns how long to wait for it, if it ever comes.
    #[inline]
    pub(super) fn take_one(&self) -> Option<Duration> {
        let at = self.now();
        // The caller retries after failures. When there are many, the bucket is in debt.
        let request = Request::patient(at, 1);
        let grant = self.take_exact(request).ok()?;
        Some(duration(grant.ready.since(at.given())))
    }

    /// Returns how long a reservation would have to wait, without taking tokens.
    pub(super) fn peek(&self, at: At, n: u32) -> Result<Duration, Refusal> {
        let RatedBucket { bucket, rate } = self.read();
        let (_, grant) = bucket.reserve(rate, Request::patient(at, n))?;
        Ok(duration(grant.ready.since(at.given())))
    }

    /// Gives back the tokens of a reservation.
    pub(super) fn cancel(&self, claim: Claim, at: At) {
        self.replace(|bucket, rate| bucket.cancel(rate, claim, at));
        self.wake_line(|line, source, now| line.tokens_came(source, now));
    }

    /// Gives back tokens that were not used although their time has come.
    #[cfg(feature = "tower")]
    pub(in crate::rate) fn return_unused(&self, claim: Claim) {
        let now = self.now().given();
        self.replace(|bucket, rate| bucket.return_unused(rate, claim, now));
        self.wake_line(|line, source, now| line.tokens_came(source, now));
    }

    /// Changes the rate as of `at`.
    pub(super) fn change_rate(&self, at: At, new: impl Fn(Rate) -> Rate) {
        self.state.update(|words| {
            let RatedBucket { bucket, rate } = RatedBucket::from_words(words);
            let bucket = bucket.settle(rate, at);
            Step::Replace(RatedBucket { bucket, rate: new(rate) }.to_words(), ())
        });
        self.wake_line(|line, source, now| line.rate_changed(source, now));
    }

    /// Replaces the tokens as of `at`.
    pub(super) fn refill(&self, at: At, tokens: u32) {
        self.replace(|bucket, rate| Some(bucket.refill(rate, tokens, at)));
        self.wake_line(|line, source, now| line.rate_changed(source, now));
    }

    /// Runs `step` with the line locked.
    fn with_line<R>(
        &self,
        step: impl FnOnce(&mut WaiterLine<Option<Claim>>, &mut &Self) -> R,
    ) -> R {
        let mut line = sync::lock(&self.line);
        let result = step(&mut line, &mut &*self);
        self.has_line.store(!line.is_empty(), Ordering::Relaxed);
        result
    }

    /// Moves waiters up after a change of the bucket (invariant 2).
    fn wake_line(
        &self,
        step: impl FnOnce(&mut WaiterLine<Option<Claim>>, &mut &Self, Moment) -> Wakes,
    ) {
        if !self.with_line(|line, _| line.is_empty()) {
            let now = self.now().given();
            self.with_line(|line, source| step(line, source, now)).wake();
        }
    }

    fn read(&self) -> RatedBucket {
        RatedBucket::from_words(self.state.read())
    }

    /// Replaces the bucket, unless `step` returns `None`.
    fn replace(&self, step: impl Fn(TokenBucket, Rate) -> Option<TokenBucket>) {
        self.state.update(|words| {
            let RatedBucket { bucket, rate } = RatedBucket::from_words(words);
            match step(bucket, rate) {
                Some(bucket) => {
                    Step::Replace(RatedBucket { bucket, rate }.to_words(), ())
                }
                None => Step::Keep(()),
            }
        });
    }

    #[cfg(all(test, requeue_loom))]
    pub(super) fn first_sleep(&self) -> Option<(Moment, Moment)> {
        self.with_line(|line, _| line.first_sleep())
    }
}

impl TokenSource for &SharedBucket {
    type Claim = Option<Claim>;

    fn reserve(&mut self, request: Request) -> Result<Held<Option<Claim>>, Refusal> {
        self.take_exact(request).map(Held::from)
    }

    fn give_back(&mut self, claim: Option<Claim>, now: Moment) {
        if let Some(claim) = claim {
            self.replace(|bucket, rate| bucket.return_unused(rate, claim, now));
        }
    }

    fn expect(&self, request: Request, ahead: u64) -> Result<Moment, Refusal> {
        let RatedBucket { bucket, rate } = self.read();
        bucket.expect(rate, request, ahead)
    }

    fn renew(&mut self, held: &mut Held<Option<Claim>>, request: Request, now: Moment) {
        let Some(claim) = held.claim else { return };
        let request = Request::patient(At::Now(now), request.n);
        let sooner = self.state.update(|words| {
            let state = RatedBucket::from_words(words);
            match state.bucket.renew(state.rate, claim, request) {
                Some((Some(bucket), grant)) => {
                    Step::Replace(RatedBucket { bucket, ..state }.to_words(), Some(grant))
                }
                Some((None, grant)) => Step::Keep(Some(grant)),
                None => Step::Keep(None),
            }
        });
        if let Some(grant) = sooner {
            *held = Held::from(grant);
        }
    }
}

impl LineOwner for SharedBucket {
    type Claim = Option<Claim>;

    fn clock(&self) -> &AnyClock {
        &self.clock
    }

    fn timeline(&self) -> Timeline {
        self.timeline
    }

    fn join(&self, request: Request, wake: Wake) -> (LineStatus<Self::Claim>, Wakes) {
        self.with_line(|line, source| line.join(source, request, wake))
    }

    fn poll(
        &self,
        ticket: Ticket,
        now: Moment,
        wake: Wake,
    ) -> (LineStatus<Self::Claim>, Wakes) {
        self.with_line(|line, source| line.poll(source, ticket, now, wake))
    }

    fn leave(&self, ticket: Ticket, now: Moment) -> Wakes {
        self.with_line(|line, source| line.leave(source, ticket, now))
    }
}

impl RatedBucket {
    #[inline]
    fn to_words(self) -> [u64; 5] {
        let [tokens, last, last_event] = self.bucket.to_words();
        let Rate { limit, burst } = self.rate;
        [tokens, last, last_event, limit.to_word(), u64::from(burst)]
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the word was made from a u32")]
    fn from_words([tokens, last, last_event, limit, burst]: [u64; 5]) -> Self {
        let rate = Rate { limit: Limit::from_word(limit), burst: burst as u32 };
        Self { bucket: TokenBucket::from_words([tokens, last, last_event]), rate }
    }
}
