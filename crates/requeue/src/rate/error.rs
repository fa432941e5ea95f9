//! Why a limiter refuses.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::bucket::{Refusal, Request};
use super::limit::Limit;
use super::moment::duration;

/// The reason why a reservation failed; see [`Limiter::reserve`](super::Limiter::reserve).
///
/// No tokens have been taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReserveError {
    /// The request exceeds what the bucket can hold.
    ExceedsBurst {
        /// Number of requested tokens.
        asked: u32,
        /// Number of tokens that the bucket can hold.
        burst: u32,
    },
    /// At the current limit the tokens come after more than 292 years, or never.
    Never {
        /// Number of requested tokens.
        asked: u32,
    },
}

impl ReserveError {
    /// Describes the refusal of a request for `asked` tokens that has no deadline.
    #[cold]
    pub(super) fn new(refusal: Refusal, asked: u32) -> Self {
        match refusal {
            Refusal::ExceedsBurst(burst) => Self::ExceedsBurst { asked, burst },
            Refusal::Never | Refusal::NotNow | Refusal::TooLate(_) => {
                Self::Never { asked }
            }
        }
    }
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

/// The reason why a wait failed; see [`Limiter::wait`](super::Limiter::wait).
///
/// No tokens have been taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// The request exceeds what the bucket can hold.
    ExceedsBurst {
        /// Number of requested tokens.
        asked: u32,
        /// Number of tokens that the bucket can hold.
        burst: u32,
    },
    /// At the current limit the tokens come after more than 292 years, or never.
    Never {
        /// Number of requested tokens.
        asked: u32,
    },
    /// The tokens would come after the deadline.
    ///
    /// The call does not wait for the deadline if it knows earlier.
    #[doc(alias = "would exceed context deadline")]
    Timeout {
        /// How long the wait would have been, from the call on.
        needed: Duration,
        /// How far away the deadline was at the call; zero if it had passed.
        left: Duration,
    },
}

impl WaitError {
    #[cold]
    pub(super) fn new(refusal: Refusal, request: Request) -> Self {
        match refusal {
            Refusal::TooLate(wait) => Self::Timeout {
                needed: duration(wait),
                left: duration(request.deadline().since(request.at.given())),
            },
            Refusal::ExceedsBurst(_) | Refusal::NotNow | Refusal::Never => {
                ReserveError::new(refusal, request.n).into()
            }
        }
    }
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ExceedsBurst { asked, burst } => exceeds_burst(f, *asked, *burst),
            Self::Never { asked } => never(f, *asked),
            Self::Timeout { needed, left } => {
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
    write!(f, "asked for {}, but the burst is {burst}", Tokens(asked))
}

fn never(f: &mut fmt::Formatter<'_>, asked: u32) -> fmt::Result {
    let verb = if asked == 1 { "comes" } else { "come" };
    write!(f, "asked for {}, which never {verb} at the current limit", Tokens(asked))
}

/// Displays a number of tokens.
struct Tokens(u32);

impl fmt::Display for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("1 token"),
            n => write!(f, "{n} tokens"),
        }
    }
}

/// The error of a number that is not a limit; see
/// [`Limit::try_per_second`](super::Limit::try_per_second).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InvalidLimit {
    /// The number.
    pub given: f64,
}

impl fmt::Display for InvalidLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a limit must be 0 or more events per second, not {}", self.given)
    }
}

impl Error for InvalidLimit {}

/// The error of an invalid pace; see
/// [`PacerBuilder::try_build`](super::PacerBuilder::try_build).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidPace {
    /// The number of permissions is zero.
    NoPermissions,
    /// The period is zero.
    NoPeriod,
}

impl fmt::Display for InvalidPace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoPermissions => "a pace needs at least 1 permission per period, not 0",
            Self::NoPeriod => "a pace needs a period longer than 0 ns",
        })
    }
}

impl Error for InvalidPace {}

/// The reason why a child could not be added; see
/// [`Hierarchy::child`](super::Hierarchy::child).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum InvalidShare {
    /// The parent does not have that much of its limit left.
    LimitTaken {
        /// The requested limit.
        asked: Limit,
        /// The limit that is left.
        left: Limit,
    },
    /// The parent does not have that much of its burst left.
    BurstTaken {
        /// The requested burst.
        asked: u32,
        /// The burst that is left.
        left: u32,
    },
    /// The limit of the ceiling is below the guaranteed limit.
    CeilBelowLimit {
        /// The limit of the ceiling.
        ceil: Limit,
        /// The guaranteed limit.
        limit: Limit,
    },
    /// The burst of the ceiling is below the guaranteed burst.
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
                write!(f, "asked for a limit of {asked}, but only {left} is left")
            }
            Self::BurstTaken { asked, left } => {
                write!(f, "asked for a burst of {asked}, but only {left} is left")
            }
            Self::CeilBelowLimit { ceil, limit } => {
                write!(f, "a ceiling of {ceil} is below the guaranteed limit of {limit}")
            }
            Self::CeilBelowBurst { ceil, burst } => {
                write!(f, "a ceiling of {ceil} is below the guaranteed burst of {burst}")
            }
        }
    }
}

impl Error for InvalidShare {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_value_and_the_bound() {
        let refused = ReserveError::ExceedsBurst { asked: 7, burst: 5 };
        let text = "asked for 7 tokens, but the burst is 5";
        assert_eq!(refused.to_string(), text);
        assert_eq!(WaitError::from(refused).to_string(), text);

        let refused = ReserveError::Never { asked: 1 };
        let text = "asked for 1 token, which never comes at the current limit";
        assert_eq!(refused.to_string(), text);
        assert_eq!(WaitError::from(refused).to_string(), text);

        let needed = Duration::from_millis(300);
        let left = Duration::from_millis(100);
        assert_eq!(
            WaitError::Timeout { needed, left }.to_string(),
            "the wait takes 300ms, but the deadline is 100ms away"
        );
        assert_eq!(
            InvalidLimit { given: f64::NAN }.to_string(),
            "a limit must be 0 or more events per second, not NaN"
        );
        assert_eq!(
            InvalidPace::NoPermissions.to_string(),
            "a pace needs at least 1 permission per period, not 0"
        );
        assert_eq!(
            InvalidPace::NoPeriod.to_string(),
            "a pace needs a period longer than 0 ns"
        );
    }

    #[test]
    fn messages_of_shares_name_the_value_and_the_bound() {
        let limit = Limit::per_second;
        let cases = [
            (
                InvalidShare::LimitTaken { asked: limit(7.0), left: limit(3.0) },
                "asked for a limit of 7/s, but only 3/s is left",
            ),
            (
                InvalidShare::BurstTaken { asked: 5, left: 1 },
                "asked for a burst of 5, but only 1 is left",
            ),
            (
                InvalidShare::CeilBelowLimit { ceil: limit(3.0), limit: limit(7.0) },
                "a ceiling of 3/s is below the guaranteed limit of 7/s",
            ),
            (
                InvalidShare::CeilBelowBurst { ceil: 1, burst: 5 },
                "a ceiling of 1 is below the guaranteed burst of 5",
            ),
        ];
        for (error, text) in cases {
            assert_eq!(error.to_string(), text);
        }
    }
}
