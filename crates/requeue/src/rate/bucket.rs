//! The token bucket: the decisions of x/time/rate as a function of state and time.
//!
//! Nothing here locks, reads a clock or waits. A method takes the bucket, its rate and the
//! time, and returns the next bucket, or `None` if nothing changes.
//!
//! # Invariants
//!
//! 1. A refusal changes nothing.
//! 2. `tokens` has no lower bound, since a reservation is a debt. It exceeds the burst only
//!    between a reduction of the burst and the next call.
//! 3. `last` goes back only by [`At::Exactly`]; the interval is then credited twice, as in
//!    x/time/rate. [`At::Now`] never credits an interval twice.
//! 4. Every function is total: a torn read, with bits of two buckets, causes no panic.
//! 5. With [`At::Now`] alone, no outstanding claim acts later than both `last_event` and
//!    the present.
//!
//! # Why a cancelled claim mints no tokens
//!
//! Assign each event the stretch of time in which its tokens came in. The stretches are
//! disjoint, and each lies within `burst / limit` before its event, because a bucket holds
//! no more than its burst. So any span of time has at most `burst + limit × span` events.
//!
//! Cancelling a claim of `n` tokens frees its stretch, and the events after it move to
//! earlier stretches. Each of them acts at `last_event` at the latest (invariant 5), so
//! moving them by `n - limit × (last_event - act)` tokens keeps them within the burst.
//! [`TokenBucket::undo`] gives back that many and no more. x/time/rate uses the same formula,
//! but moves `last_event` back while later claims are outstanding, and so mints tokens.

use super::limit::Limit;
use super::moment::{FOREVER, Moment, Nanos};

/// How fast a bucket fills, and how much it holds.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Rate {
    pub(crate) limit: Limit,
    pub(crate) burst: u32,
}

impl Rate {
    /// Returns `tokens`, capped at the burst.
    #[inline]
    fn cap(self, tokens: f64) -> f64 {
        // Not `f64::min`, which spends instructions on NaN.
        let burst = f64::from(self.burst);
        if tokens > burst { burst } else { tokens }
    }
}

/// The tokens of one limiter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TokenBucket {
    /// The number of tokens at `last`. Negative if tokens are reserved.
    tokens: f64,
    last: Moment,
    /// The latest time to act of a claim (invariant 5).
    last_event: Moment,
}

/// The time of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum At {
    /// A reading of the clock. A call with a later reading may have come first.
    Now(Moment),
    /// A time that the caller chose.
    Exactly(Moment),
}

impl At {
    /// Returns the effective time for a bucket last used at `last`.
    #[inline]
    fn on(self, last: Moment) -> Moment {
        match self {
            Self::Now(now) => now.max(last), // invariant 3
            Self::Exactly(t) => t,
        }
    }

    /// Returns the time that the caller gave.
    #[inline]
    pub(crate) fn given(self) -> Moment {
        match self {
            Self::Now(t) | Self::Exactly(t) => t,
        }
    }
}

/// A request for tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) at: At,
    pub(crate) n: u32,
    pub(crate) patience: Patience,
}

impl Request {
    /// A request for tokens that are available now.
    #[inline]
    pub(crate) fn at_once(at: At, n: u32) -> Self {
        Self { at, n, patience: Patience::None }
    }

    /// A request that waits however long it takes.
    #[inline]
    pub(crate) fn patient(at: At, n: u32) -> Self {
        Self { at, n, patience: Patience::UpTo(FOREVER) }
    }

    /// A request that waits until `deadline`, if there is one.
    #[inline]
    pub(crate) fn by(now: Moment, n: u32, deadline: Option<Moment>) -> Self {
        let longest = deadline.map_or(FOREVER, |deadline| deadline.since(now));
        Self { at: At::Now(now), n, patience: Patience::UpTo(longest) }
    }

    /// Returns the latest time at which the caller accepts the tokens.
    pub(crate) fn deadline(self) -> Moment {
        match self.patience {
            Patience::None => self.at.given(),
            Patience::UpTo(FOREVER) => Moment::END,
            Patience::UpTo(most) => self.at.given().plus(most),
        }
    }
}

/// How long a caller is willing to wait for tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// Not at all. The refusal does not say how long the wait would be.
    None,
    /// This long. Negative if the deadline has passed.
    UpTo(Nanos),
}

impl Patience {
    #[inline]
    fn is_none(self) -> bool {
        matches!(self, Self::None)
    }

    /// Returns a refusal if `wait` is too long.
    #[inline]
    pub(crate) fn accept(self, wait: Nanos) -> Result<(), Refusal> {
        match self {
            Self::None if wait > 0 => Err(Refusal::NotNow),
            Self::UpTo(most) if wait > most => Err(Refusal::TooLate(wait)),
            Self::None | Self::UpTo(_) => Ok(()),
        }
    }
}

/// Tokens that were granted, for now or later.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Grant {
    /// When they may be used.
    pub(crate) ready: Moment,
    /// What a cancel gives back. `None` if nothing was taken.
    pub(crate) claim: Option<Claim>,
}

/// Tokens that were taken from a bucket, and how to give them back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Claim {
    n: u32,
    /// When they may be used, in the time of the bucket.
    act: Moment,
    /// The limit when they were taken.
    limit: Limit,
    /// The latest event before this claim.
    before: Moment,
}

#[cfg(test)]
impl Claim {
    /// Returns when the tokens may be used, in the time of the bucket.
    pub(crate) fn act(self) -> Moment {
        self.act
    }
}

/// Why tokens were not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The request exceeds this burst.
    ExceedsBurst(u32),
    /// The tokens are not available now.
    NotNow,
    /// The tokens come after this time, which is longer than the caller waits.
    TooLate(Nanos),
    /// The tokens never come.
    Never,
}

impl TokenBucket {
    /// Returns a bucket with `tokens` at `last`.
    pub(crate) fn new(tokens: u32, last: Moment) -> Self {
        Self { tokens: f64::from(tokens), last, last_event: last }
    }

    /// Returns when the bucket is full, if no more tokens are taken.
    pub(crate) fn full_at(&self, rate: Rate) -> Moment {
        let missing = f64::from(rate.burst) - self.tokens;
        self.last.plus(rate.limit.time_for(missing))
    }

    /// Returns the number of tokens at `at`.
    #[inline]
    pub(crate) fn tokens(&self, rate: Rate, at: At) -> f64 {
        self.tokens_at(rate, at.on(self.last))
    }

    #[inline]
    fn tokens_at(&self, rate: Rate, t: Moment) -> f64 {
        if self.is_surely_full(rate, t) {
            return f64::from(rate.burst);
        }
        rate.cap(self.tokens + rate.limit.tokens_in(t.since(self.last.min(t))))
    }

    /// Returns whether the bucket is full at `t`.
    pub(crate) fn is_full(&self, rate: Rate, t: Moment) -> bool {
        self.tokens_at(rate, t) >= f64::from(rate.burst)
    }

    /// Returns whether the bucket is certainly full at `t`, without a division.
    ///
    /// The exact number of tokens is at least the one computed here.
    #[inline]
    pub(crate) fn is_surely_full(&self, rate: Rate, t: Moment) -> bool {
        let gained = rate.limit.tokens_in_roughly(t.since(self.last.min(t)));
        self.tokens + gained.least >= f64::from(rate.burst)
    }

    /// Returns whether `n` tokens are certainly not available at `t`.
    ///
    /// A quick answer for a busy limiter, which refuses most calls. It agrees with
    /// [`reserve`](Self::reserve), since all steps from the tokens gained to the time to wait,
    /// rounding included, are monotonic.
    #[inline]
    fn surely_lacks(&self, rate: Rate, t: Moment, n: u32) -> bool {
        let gained = rate.limit.tokens_in_roughly(t.since(self.last.min(t)));
        let lacking = f64::from(n) - rate.cap(self.tokens + gained.most);
        lacking > 0.0 && rate.limit.surely_takes_time_for(lacking)
    }

    /// Takes tokens, if they come in time.
    ///
    /// Returns no bucket if the limit is infinite: then nothing was taken.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "measured: `Keyed::allow` takes 14 % more instructions without it"
    )]
    pub(crate) fn reserve(
        &self,
        rate: Rate,
        request: Request,
    ) -> Result<(Option<Self>, Grant), Refusal> {
        let given = request.at.given();
        if rate.limit.is_infinite() {
            return unlimited(given, request.patience);
        }
        if request.n > rate.burst {
            return Err(Refusal::ExceedsBurst(rate.burst));
        }
        let t = request.at.on(self.last);
        if request.patience.is_none() && self.surely_lacks(rate, t, request.n) {
            return Err(Refusal::NotNow);
        }
        let tokens = self.tokens_at(rate, t) - f64::from(request.n);
        let (act, ready) = if tokens < 0.0 {
            let act = t.plus(finite(rate.limit.time_for(-tokens))?);
            (act, act)
        } else {
            // Available tokens may be used at once, even if the caller's reading of the clock
            // is older than the bucket.
            (t, given)
        };
        request.patience.accept(ready.since(given))?;
        let claim =
            Claim { n: request.n, act, limit: rate.limit, before: self.last_event };
        let last_event = self.event_after(request.at, act, t);
        let next = Self { tokens, last: t, last_event };
        Ok((Some(next), Grant { ready, claim: Some(claim) }))
    }

    /// Returns when `request` would be served after `ahead` other tokens.
    pub(crate) fn expect(
        &self,
        rate: Rate,
        request: Request,
        ahead: u64,
    ) -> Result<Moment, Refusal> {
        let given = request.at.given();
        if rate.limit.is_infinite() {
            return Ok(given);
        }
        if request.n > rate.burst {
            return Err(Refusal::ExceedsBurst(rate.burst));
        }
        let t = request.at.on(self.last);
        let tokens = self.tokens_at(rate, t) - count(ahead) - f64::from(request.n);
        let wait = if tokens < 0.0 { rate.limit.time_for(-tokens) } else { 0 };
        Ok(t.plus(finite(wait)?))
    }

    /// Replaces `claim` by a claim for `request`, if that one acts earlier.
    ///
    /// Returns no bucket if the limit is infinite: then the new claim took nothing.
    pub(crate) fn renew(
        &self,
        rate: Rate,
        claim: Claim,
        request: Request,
    ) -> Option<(Option<Self>, Grant)> {
        let t = request.at.on(self.last);
        let freed =
            if rate.limit.is_infinite() { *self } else { self.undo(rate, claim, t)? };
        let (next, grant) = freed.reserve(rate, request).ok()?;
        (grant.ready < claim.act).then_some((next, grant))
    }

    /// Returns whether the tokens were available at `last` already.
    ///
    /// A quick answer for a limiter that is far from its limit, which grants most calls.
    #[inline]
    pub(crate) fn surely_has(&self, rate: Rate, request: Request) -> bool {
        let is_there = request.n <= rate.burst && f64::from(request.n) <= self.tokens;
        is_there && !rate.limit.is_infinite() && request.patience.accept(0).is_ok()
    }

    /// Takes tokens as [`reserve`](Self::reserve) does, if the bucket
    /// [surely has](Self::surely_has) them.
    #[inline]
    pub(crate) fn take_available(&self, rate: Rate, request: Request) -> (Self, Grant) {
        let t = request.at.on(self.last);
        let tokens = self.tokens_at(rate, t) - f64::from(request.n);
        let claim =
            Claim { n: request.n, act: t, limit: rate.limit, before: self.last_event };
        let next =
            Self { tokens, last: t, last_event: self.event_after(request.at, t, t) };
        (next, Grant { ready: request.at.given(), claim: Some(claim) })
    }

    /// Returns the latest event after a claim made at `t` that acts at `act`.
    #[inline]
    fn event_after(&self, at: At, act: Moment, t: Moment) -> Moment {
        match at {
            At::Now(_) if act > self.last_event => act,
            // The claim acts before another one. No claim acts one nanosecond later, so
            // cancelling one never moves the latest event before this claim (invariant 5).
            At::Now(_) if act > t => self.last_event.plus(1),
            At::Now(_) => self.last_event,
            At::Exactly(_) => act,
        }
    }

    /// Gives back the tokens of `claim`, except those that later claims depend on.
    ///
    /// Returns `None` if nothing comes back.
    pub(crate) fn cancel(&self, rate: Rate, claim: Claim, at: At) -> Option<Self> {
        let t = at.on(self.last);
        if claim.act < t {
            return None;
        }
        match at {
            At::Now(_) => self.undo(rate, claim, t),
            At::Exactly(_) => self.cancel_exactly(rate, claim, t),
        }
    }

    /// Cancels with the arithmetic of x/time/rate.
    fn cancel_exactly(&self, rate: Rate, claim: Claim, t: Moment) -> Option<Self> {
        let later = claim.limit.tokens_in(self.last_event.since(claim.act));
        let tokens = self.restored(rate, claim, later, t)?;
        let before = claim.act.plus(claim.limit.time_for(-f64::from(claim.n)));
        let is_last = claim.act == self.last_event && before >= t;
        let last_event = if is_last { before } else { self.last_event };
        Some(Self { tokens, last: t, last_event })
    }

    /// Gives back the tokens of an event that does not happen, as far as the bound permits.
    ///
    /// See the module documentation. The time to act may have passed.
    fn undo(&self, rate: Rate, claim: Claim, t: Moment) -> Option<Self> {
        // Not before `claim.act`: an explicit time may have moved the latest event back.
        let latest = self.last_event.max(t).max(claim.act);
        let later = claim.limit.tokens_in(latest.since(claim.act));
        let tokens = self.restored(rate, claim, later, t)?;
        let is_last = claim.act == self.last_event;
        let last_event = if is_last { claim.before } else { self.last_event };
        Some(Self { tokens, last: t, last_event })
    }

    /// Gives back tokens that were not used, even if their time to act has passed.
    pub(crate) fn return_unused(
        &self,
        rate: Rate,
        claim: Claim,
        now: Moment,
    ) -> Option<Self> {
        self.undo(rate, claim, now.max(self.last))
    }

    /// Returns the tokens at `t` plus those of `claim` minus `later`, if any come back.
    fn restored(&self, rate: Rate, claim: Claim, later: f64, t: Moment) -> Option<f64> {
        let restored = f64::from(claim.n) - later;
        let is_void = rate.limit.is_infinite() || claim.n == 0 || restored <= 0.0;
        (!is_void).then(|| rate.cap(self.tokens_at(rate, t) + restored))
    }

    /// Returns the bucket as of `at`. Call it before the rate changes.
    pub(crate) fn settle(&self, rate: Rate, at: At) -> Self {
        let t = at.on(self.last);
        Self { tokens: self.tokens_at(rate, t), last: t, ..*self }
    }

    /// Returns the bucket with `tokens`, capped at the burst, as of `at`.
    pub(crate) fn refill(&self, rate: Rate, tokens: u32, at: At) -> Self {
        let tokens = f64::from(tokens.min(rate.burst));
        Self { tokens, last: at.on(self.last), ..*self }
    }

    #[inline]
    pub(super) fn to_words(self) -> [u64; 3] {
        [self.tokens.to_bits(), self.last.to_word(), self.last_event.to_word()]
    }

    #[inline]
    pub(super) fn from_words([tokens, last, last_event]: [u64; 3]) -> Self {
        Self {
            tokens: f64::from_bits(tokens),
            last: Moment::from_word(last),
            last_event: Moment::from_word(last_event),
        }
    }
}

#[cold]
fn unlimited(
    given: Moment,
    patience: Patience,
) -> Result<(Option<TokenBucket>, Grant), Refusal> {
    patience.accept(0)?;
    Ok((None, Grant { ready: given, claim: None }))
}

#[expect(clippy::cast_precision_loss, reason = "an estimate above 2^53 tokens")]
fn count(tokens: u64) -> f64 {
    tokens as f64
}

#[inline]
fn finite(wait: Nanos) -> Result<Nanos, Refusal> {
    if wait == FOREVER { Err(Refusal::Never) } else { Ok(wait) }
}

#[cfg(test)]
mod tests;
