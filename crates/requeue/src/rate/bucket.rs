//! The token bucket: what x/time/rate decides, as a function of state and time.
//!
//! Nothing here locks, reads a clock or waits. A method looks at the bucket, the terms and
//! the time it is given, and returns the bucket that follows; a caller that gets none has
//! nothing to write.
//!
//! # Invariants
//!
//! 1. A refusal has no following bucket: it changes nothing.
//! 2. `tokens` has no lower bound, since a reservation is a debt, and exceeds the burst
//!    only until the next look at it, after the burst has shrunk.
//! 3. `last` goes back only by [`At::Exactly`]; the interval that is then passed twice is
//!    credited twice, as upstream does. By [`At::Now`] no interval is.
//! 4. Every function is total: the bits of two buckets mixed up make nothing panic.

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
    /// When the tokens taken most recently may be used.
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

    #[inline]
    fn bear(self, wait: Nanos) -> Result<(), Refusal> {
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

    /// A bucket that held `tokens` at `last`, and whose latest event pays its debt.
    ///
    /// That is what the latest event is after any [`reserve`](Self::reserve) that had to
    /// wait; without a debt nothing depends on it.
    #[inline]
    pub(crate) fn in_debt(tokens: f64, last: Moment, terms: Terms) -> Self {
        let debt = if tokens < 0.0 { terms.limit.time_for(-tokens) } else { 0 };
        Self { tokens, last, last_event: last.plus(debt) }
    }

    /// How many tokens there were, and when.
    #[inline]
    pub(crate) fn level(self) -> (f64, Moment) {
        (self.tokens, self.last)
    }

    /// The bucket with `n` tokens that were taken from it put back unused.
    #[cfg(feature = "tower")]
    pub(crate) fn put_back(&self, terms: Terms, n: u32, at: At) -> Self {
        let settled = self.settle(terms, at);
        Self { tokens: terms.cap(settled.tokens + f64::from(n)), ..settled }
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
        let claim = Claim { n: ask.n, act, limit: terms.limit };
        let next = Self { tokens, last: t, last_event: act };
        Ok((Some(next), Grant { ready, claim: Some(claim) }))
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
        let claim = Claim { n: ask.n, act: t, limit: terms.limit };
        let next = Self { tokens, last: t, last_event: t };
        (next, Grant { ready: ask.at.given(), claim: Some(claim) })
    }

    /// Gives back what `claim` took, less what was promised to others after it.
    ///
    /// `None` if nothing comes back.
    pub(crate) fn cancel(&self, terms: Terms, claim: Claim, at: At) -> Option<Self> {
        let t = at.on(self.last);
        if terms.limit.is_infinite() || claim.act < t {
            return None;
        }
        let later = claim.limit.tokens_in(self.last_event.since(claim.act));
        let restored = f64::from(claim.n) - later;
        if claim.n == 0 || restored <= 0.0 {
            return None;
        }
        let tokens = terms.cap(self.tokens_at(terms, t) + restored);
        Some(Self { tokens, last: t, last_event: self.event_before(claim, t) })
    }

    /// The latest event once `claim` is cancelled at `t`.
    fn event_before(&self, claim: Claim, t: Moment) -> Moment {
        let before = claim.act.plus(claim.limit.time_for(-f64::from(claim.n)));
        if claim.act == self.last_event && before >= t { before } else { self.last_event }
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

#[inline]
fn finite(wait: Nanos) -> Result<Nanos, Refusal> {
    if wait == FOREVER { Err(Refusal::Never) } else { Ok(wait) }
}

#[cfg(test)]
mod tests;
