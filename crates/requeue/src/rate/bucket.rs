//! The token bucket: the decisions of x/time/rate as a function of state and time.
//!
//! Nothing here locks, reads a clock or waits. A method takes the bucket, its terms and the
//! time, and returns the next bucket, or `None` if nothing changes.
//!
//! # Invariants
//!
//! 1. A refusal changes nothing.
//! 2. `tokens` has no lower bound, since a reservation is a debt. It exceeds the burst only
//!    between a reduction of the burst and the next call.
//! 3. `last` goes back only by [`At::Exactly`]; the interval is then credited twice, as in
//!    x/time/rate. [`At::Now`] never credits an interval twice.
//! 4. Every function is total: mixed-up bits of two buckets cause no panic.
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
//! [`Bucket::undo`] gives back that many and no more. x/time/rate uses the same formula,
//! but moves `last_event` back while later claims are outstanding, and so mints tokens.

use super::limit::Limit;
use super::moment::{FOREVER, Moment, Nanos};

/// What a bucket is filled by and how much it holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Terms {
    pub(crate) limit: Limit,
    pub(crate) burst: u32,
}

impl Terms {
    /// `tokens`, or as many of them as the bucket holds.
    #[inline]
    fn cap(self, tokens: f64) -> f64 {
        // Not `f64::min`, which spends instructions on NaN.
        let burst = f64::from(self.burst);
        if tokens > burst { burst } else { tokens }
    }
}

/// The tokens of one limiter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bucket {
    /// How many tokens there were at `last`; a debt if negative.
    tokens: f64,
    last: Moment,
    /// The latest time to act of a claim (invariant 5).
    last_event: Moment,
}

/// The time of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum At {
    /// A reading of the clock. Another call may have read it later and come first.
    Now(Moment),
    /// A time that the caller chose.
    Exactly(Moment),
}

impl At {
    /// The time that counts on a bucket that has seen `last`.
    #[inline]
    fn on(self, last: Moment) -> Moment {
        match self {
            Self::Now(now) => now.max(last), // invariant 3
            Self::Exactly(t) => t,
        }
    }

    /// The time that the caller gave.
    #[inline]
    pub(crate) fn given(self) -> Moment {
        match self {
            Self::Now(t) | Self::Exactly(t) => t,
        }
    }
}

/// A request for tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) at: At,
    pub(crate) n: u32,
    pub(crate) patience: Patience,
}

impl Ask {
    /// The latest time at which the tokens are of use.
    pub(crate) fn deadline(self) -> Moment {
        match self.patience {
            Patience::None => self.at.given(),
            Patience::UpTo(FOREVER) => Moment::END,
            Patience::UpTo(most) => self.at.given().plus(most),
        }
    }
}

/// How long a caller can wait for tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// Not at all, and it does not want to know how long it would have been.
    None,
    /// This long; less than nothing if it is too late already.
    UpTo(Nanos),
}

impl Patience {
    #[inline]
    fn is_none(self) -> bool {
        matches!(self, Self::None)
    }

    /// Refuses a wait that is too long.
    #[inline]
    pub(crate) fn bear(self, wait: Nanos) -> Result<(), Refusal> {
        match self {
            Self::None if wait > 0 => Err(Refusal::NotNow),
            Self::UpTo(most) if wait > most => Err(Refusal::TooLate(wait)),
            Self::None | Self::UpTo(_) => Ok(()),
        }
    }
}

/// Tokens granted, for now or later.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Grant {
    /// When they may be used.
    pub(crate) ready: Moment,
    /// What cancelling gives back; `None` if nothing was taken.
    pub(crate) claim: Option<Claim>,
}

/// Tokens that were taken from a bucket, with what it takes to give them back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Claim {
    n: u32,
    /// When they may be used, on the time of the bucket.
    act: Moment,
    /// The limit when they were taken.
    limit: Limit,
    /// The latest event before this claim.
    before: Moment,
}

#[cfg(test)]
impl Claim {
    /// When the tokens may be used, on the time of the bucket.
    pub(crate) fn act(self) -> Moment {
        self.act
    }
}

/// Why tokens were not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// More than this burst.
    ExceedsBurst(u32),
    /// They are not there now.
    NotNow,
    /// They come after this long, which is longer than the caller can wait.
    TooLate(Nanos),
    /// They never come.
    Never,
}

impl Bucket {
    /// A bucket of `tokens` at `last`.
    pub(crate) fn new(tokens: u32, last: Moment) -> Self {
        Self { tokens: f64::from(tokens), last, last_event: last }
    }

    /// Returns how many tokens there were, and when.
    #[inline]
    pub(crate) fn level(self) -> (f64, Moment) {
        (self.tokens, self.last)
    }

    /// Returns a bucket without outstanding claims.
    #[inline]
    pub(crate) fn at_level(tokens: f64, last: Moment) -> Self {
        Self { tokens, last, last_event: last }
    }

    /// How many tokens there are at `at`.
    #[inline]
    pub(crate) fn tokens(&self, terms: Terms, at: At) -> f64 {
        self.tokens_at(terms, at.on(self.last))
    }

    #[inline]
    fn tokens_at(&self, terms: Terms, t: Moment) -> f64 {
        if self.is_surely_full(terms, t) {
            return f64::from(terms.burst);
        }
        terms.cap(self.tokens + terms.limit.tokens_in(t.since(self.last.min(t))))
    }

    /// Whether the bucket is full at `t` beyond doubt: the exact sum of tokens is no less
    /// than this one, and is cut to the same.
    #[inline]
    pub(crate) fn is_surely_full(&self, terms: Terms, t: Moment) -> bool {
        let gained = terms.limit.tokens_in_roughly(t.since(self.last.min(t)));
        self.tokens + gained.least >= f64::from(terms.burst)
    }

    /// Whether `n` tokens are out of reach at `t` beyond doubt: a quick no for the many
    /// calls that a busy limiter refuses.
    ///
    /// It agrees with [`reserve`](Self::reserve), since all steps from the tokens gained to
    /// the time to wait, roundings included, are monotonic.
    #[inline]
    fn surely_lacks(&self, terms: Terms, t: Moment, n: u32) -> bool {
        let gained = terms.limit.tokens_in_roughly(t.since(self.last.min(t)));
        let lacking = f64::from(n) - terms.cap(self.tokens + gained.most);
        lacking > 0.0 && terms.limit.surely_takes_time_for(lacking)
    }

    /// Takes tokens, if they come in time.
    ///
    /// Without a bucket in the answer the grant took nothing: there is no limit.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "measured: a quarter of a call's instructions"
    )]
    pub(crate) fn reserve(
        &self,
        terms: Terms,
        ask: Ask,
    ) -> Result<(Option<Self>, Grant), Refusal> {
        let given = ask.at.given();
        if terms.limit.is_infinite() {
            return unlimited(given, ask.patience);
        }
        if ask.n > terms.burst {
            return Err(Refusal::ExceedsBurst(terms.burst));
        }
        let t = ask.at.on(self.last);
        if ask.patience.is_none() && self.surely_lacks(terms, t, ask.n) {
            return Err(Refusal::NotNow);
        }
        let tokens = self.tokens_at(terms, t) - f64::from(ask.n);
        let (act, ready) = if tokens < 0.0 {
            let act = t.plus(finite(terms.limit.time_for(-tokens))?);
            (act, act)
        } else {
            // Tokens that are there may be used at once, also by a caller whose reading of
            // the clock is older than the bucket.
            (t, given)
        };
        ask.patience.bear(ready.since(given))?;
        let claim = Claim { n: ask.n, act, limit: terms.limit, before: self.last_event };
        let last_event = self.event_after(ask.at, act, t);
        let next = Self { tokens, last: t, last_event };
        Ok((Some(next), Grant { ready, claim: Some(claim) }))
    }

    /// When `ask` would be served after `ahead` other tokens.
    pub(crate) fn expect(
        &self,
        terms: Terms,
        ask: Ask,
        ahead: u64,
    ) -> Result<Moment, Refusal> {
        let given = ask.at.given();
        if terms.limit.is_infinite() {
            return Ok(given);
        }
        if ask.n > terms.burst {
            return Err(Refusal::ExceedsBurst(terms.burst));
        }
        let t = ask.at.on(self.last);
        let tokens = self.tokens_at(terms, t) - count(ahead) - f64::from(ask.n);
        let wait = if tokens < 0.0 { terms.limit.time_for(-tokens) } else { 0 };
        Ok(t.plus(finite(wait)?))
    }

    /// Replaces `claim` by one for `ask`, if that acts before `act`.
    ///
    /// Without a bucket in the answer the new claim took nothing, since the limit is infinite.
    pub(crate) fn renew(
        &self,
        terms: Terms,
        claim: Claim,
        ask: Ask,
    ) -> Option<(Option<Self>, Grant)> {
        let t = ask.at.on(self.last);
        let freed =
            if terms.limit.is_infinite() { *self } else { self.undo(terms, claim, t)? };
        let (next, grant) = freed.reserve(terms, ask).ok()?;
        (grant.ready < claim.act).then_some((next, grant))
    }

    /// Whether [`reserve`](Self::reserve) grants tokens that were there at `last` already:
    /// a quick yes for the many calls of a limiter that is far from its limit.
    #[inline]
    pub(crate) fn surely_has(&self, terms: Terms, ask: Ask) -> bool {
        let is_there = ask.n <= terms.burst && f64::from(ask.n) <= self.tokens;
        is_there && !terms.limit.is_infinite() && ask.patience.bear(0).is_ok()
    }

    /// What [`reserve`](Self::reserve) does if the bucket [surely has](Self::surely_has)
    /// the tokens.
    #[inline]
    pub(crate) fn hand_out(&self, terms: Terms, ask: Ask) -> (Self, Grant) {
        let t = ask.at.on(self.last);
        let tokens = self.tokens_at(terms, t) - f64::from(ask.n);
        let claim =
            Claim { n: ask.n, act: t, limit: terms.limit, before: self.last_event };
        let next = Self { tokens, last: t, last_event: self.event_after(ask.at, t, t) };
        (next, Grant { ready: ask.at.given(), claim: Some(claim) })
    }

    /// The latest event after a claim made at `t` that acts at `act`.
    #[inline]
    fn event_after(&self, at: At, act: Moment, t: Moment) -> Moment {
        match at {
            At::Now(_) if act > self.last_event => act,
            // The claim acts before another one. No claim acts at the next nanosecond, so
            // none moves the latest event back before this claim (invariant 5).
            At::Now(_) if act > t => self.last_event.plus(1),
            At::Now(_) => self.last_event,
            At::Exactly(_) => act,
        }
    }

    /// Gives back the tokens of `claim`, less those that later claims depend on.
    ///
    /// `None` if nothing comes back.
    pub(crate) fn cancel(&self, terms: Terms, claim: Claim, at: At) -> Option<Self> {
        let t = at.on(self.last);
        if claim.act < t {
            return None;
        }
        match at {
            At::Now(_) => self.undo(terms, claim, t),
            At::Exactly(_) => self.cancel_exactly(terms, claim, t),
        }
    }

    /// The arithmetic of x/time/rate.
    fn cancel_exactly(&self, terms: Terms, claim: Claim, t: Moment) -> Option<Self> {
        let later = claim.limit.tokens_in(self.last_event.since(claim.act));
        let tokens = self.restored(terms, claim, later, t)?;
        let before = claim.act.plus(claim.limit.time_for(-f64::from(claim.n)));
        let is_last = claim.act == self.last_event && before >= t;
        let last_event = if is_last { before } else { self.last_event };
        Some(Self { tokens, last: t, last_event })
    }

    /// Gives back the tokens of a claim whose event never happens, as far as the bound
    /// permits; see the module documentation. The time to act may have passed.
    fn undo(&self, terms: Terms, claim: Claim, t: Moment) -> Option<Self> {
        // Not before `claim.act`: an explicit time may have set the latest event back.
        let latest = self.last_event.max(t).max(claim.act);
        let later = claim.limit.tokens_in(latest.since(claim.act));
        let tokens = self.restored(terms, claim, later, t)?;
        let is_last = claim.act == self.last_event;
        let last_event = if is_last { claim.before } else { self.last_event };
        Some(Self { tokens, last: t, last_event })
    }

    /// As [`cancel`](Self::cancel) for tokens that were not used although their time may
    /// have come.
    pub(crate) fn return_unused(
        &self,
        terms: Terms,
        claim: Claim,
        now: Moment,
    ) -> Option<Self> {
        self.undo(terms, claim, now.max(self.last))
    }

    /// The tokens at `t` with those of `claim` but for `later`; `None` if none come back.
    fn restored(&self, terms: Terms, claim: Claim, later: f64, t: Moment) -> Option<f64> {
        let restored = f64::from(claim.n) - later;
        let is_void = terms.limit.is_infinite() || claim.n == 0 || restored <= 0.0;
        (!is_void).then(|| terms.cap(self.tokens_at(terms, t) + restored))
    }

    /// The same bucket as of `at`: what must be done before its terms change.
    pub(crate) fn settle(&self, terms: Terms, at: At) -> Self {
        let t = at.on(self.last);
        Self { tokens: self.tokens_at(terms, t), last: t, ..*self }
    }

    /// The bucket with `tokens` in it as of `at`, or as many as it holds.
    pub(crate) fn refill(&self, terms: Terms, tokens: u32, at: At) -> Self {
        let tokens = f64::from(tokens.min(terms.burst));
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
) -> Result<(Option<Bucket>, Grant), Refusal> {
    patience.bear(0)?;
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
