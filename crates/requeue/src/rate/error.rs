//! Why a limiter refuses.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::limit::Limit;

/// Why [`Limiter::reserve`](super::Limiter::reserve) and its kin gave no reservation.
///
/// Nothing has been taken from the limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReserveError {
    /// More tokens than the bucket ever holds.
    ExceedsBurst {
        /// How many tokens were asked for.
        asked: u32,
        /// How many the bucket holds at most.
        burst: u32,
    },
    /// At the present limit the tokens come after more than 292 years, or never.
    Never {
        /// How many tokens were asked for.
        asked: u32,
    },
}

impl fmt::Display for ReserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ExceedsBurst { asked, burst } => exceeds_burst(f, *asked, *burst),
            Self::Never { asked } => never(f, *asked),
        }
    }
}

impl Error for ReserveError {}

/// Why [`Limiter::wait`](super::Limiter::wait) and its kin gave up without waiting.
///
/// Nothing has been taken from the limiter, and no time has been spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// More tokens than the bucket ever holds.
    ExceedsBurst {
        /// How many tokens were asked for.
        asked: u32,
        /// How many the bucket holds at most.
        burst: u32,
    },
    /// At the present limit the tokens come after more than 292 years, or never.
    Never {
        /// How many tokens were asked for.
        asked: u32,
    },
    /// The tokens come later than the caller can wait.
    WouldExceedDeadline {
        /// How long the tokens take to come.
        needed: Duration,
        /// How far away the deadline is; zero if it has passed.
        left: Duration,
    },
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ExceedsBurst { asked, burst } => exceeds_burst(f, *asked, *burst),
            Self::Never { asked } => never(f, *asked),
            Self::WouldExceedDeadline { needed, left } => {
                write!(f, "the wait takes {needed:?}, but the deadline is {left:?} away")
            }
        }
    }
}

impl Error for WaitError {}

impl From<ReserveError> for WaitError {
    fn from(error: ReserveError) -> Self {
        match error {
            ReserveError::ExceedsBurst { asked, burst } => {
                Self::ExceedsBurst { asked, burst }
            }
            ReserveError::Never { asked } => Self::Never { asked },
        }
    }
}

fn exceeds_burst(f: &mut fmt::Formatter<'_>, asked: u32, burst: u32) -> fmt::Result {
    let tokens = if asked == 1 { "token" } else { "tokens" };
    write!(f, "asked for {asked} {tokens} at once, but the burst is {burst}")
}

fn never(f: &mut fmt::Formatter<'_>, asked: u32) -> fmt::Result {
    let come =
        if asked == 1 { "token that never comes" } else { "tokens that never come" };
    write!(f, "asked for {asked} {come} at the present limit")
}

/// A number that is no frequency; see [`Limit::try_per_second`](super::Limit::try_per_second).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InvalidLimit {
    /// The number that was given.
    pub given: f64,
}

impl fmt::Display for InvalidLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let given = self.given;
        write!(
            f,
            "a limit is a number of events a second from 0 to infinity, not {given}"
        )
    }
}

impl Error for InvalidLimit {}

/// A pace that is none; see [`PacerBuilder::try_build`](super::PacerBuilder::try_build).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidPace {
    /// No permissions at all.
    NoPermissions,
    /// All permissions at once.
    NoPeriod,
}

impl fmt::Display for InvalidPace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoPermissions => "a pace is at least 1 permission in a period, not 0",
            Self::NoPeriod => "a pace has a period longer than 0 ns",
        })
    }
}

impl Error for InvalidPace {}

/// Why [`Hierarchy::child`](super::Hierarchy::child) made no child.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum InvalidShare {
    /// More of the parent's limit than is left to promise.
    LimitTaken {
        /// The limit that was asked for.
        asked: Limit,
        /// What the parent has left.
        left: Limit,
    },
    /// More of the parent's burst than is left to promise.
    BurstTaken {
        /// The burst that was asked for.
        asked: u32,
        /// What the parent has left.
        left: u32,
    },
    /// A ceiling that is lower than what is guaranteed.
    CeilBelowLimit {
        /// The ceiling.
        ceil: Limit,
        /// The guaranteed limit.
        limit: Limit,
    },
    /// The burst of the ceiling is lower than the guaranteed burst.
    CeilBelowBurst {
        /// The burst of the ceiling.
        ceil: u32,
        /// The guaranteed burst.
        burst: u32,
    },
}

impl fmt::Display for InvalidShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LimitTaken { asked, left } => {
                write!(f, "asked for {asked} of a limit of which {left} is left")
            }
            Self::BurstTaken { asked, left } => {
                write!(f, "asked for {asked} tokens of a burst of which {left} are left")
            }
            Self::CeilBelowLimit { ceil, limit } => {
                write!(f, "a ceiling of {ceil} is below the guaranteed {limit}")
            }
            Self::CeilBelowBurst { ceil, burst } => {
                let tokens = if *ceil == 1 { "token" } else { "tokens" };
                write!(
                    f,
                    "a ceiling of {ceil} {tokens} is below the guaranteed burst of {burst}"
                )
            }
        }
    }
}

impl Error for InvalidShare {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_say_what_was_given_and_what_is_accepted() {
        let refused = ReserveError::ExceedsBurst { asked: 7, burst: 5 };
        let text = "asked for 7 tokens at once, but the burst is 5";
        assert_eq!(refused.to_string(), text);
        assert_eq!(WaitError::from(refused).to_string(), text);

        let refused = ReserveError::Never { asked: 7 };
        let text = "asked for 7 tokens that never come at the present limit";
        assert_eq!(refused.to_string(), text);
        assert_eq!(WaitError::from(refused).to_string(), text);

        let needed = Duration::from_millis(300);
        let left = Duration::from_millis(100);
        assert_eq!(
            WaitError::WouldExceedDeadline { needed, left }.to_string(),
            "the wait takes 300ms, but the deadline is 100ms away"
        );
        assert_eq!(
            InvalidLimit { given: f64::NAN }.to_string(),
            "a limit is a number of events a second from 0 to infinity, not NaN"
        );
        assert_eq!(
            InvalidPace::NoPermissions.to_string(),
            "a pace is at least 1 permission in a period, not 0"
        );
        assert_eq!(
            InvalidPace::NoPeriod.to_string(),
            "a pace has a period longer than 0 ns"
        );
    }
}
