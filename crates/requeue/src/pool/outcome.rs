//! How one run of a handler ends.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::contain::discard;

/// What a handler that returned `Ok` wants to happen to its key.
///
/// | the handler returns | the key | its failures |
/// |---|---|---|
/// | `Ok(())`, `Ok(Outcome::Done)` | is done | are forgotten |
/// | `Ok(Outcome::After(delay))` | comes again after the delay | are forgotten |
/// | `Ok(Outcome::GiveUp)` | is done and [dead](super::Pool::on_dead) | are forgotten |
/// | `Err(error)` | comes again when the queue's retry policy says | are counted |
///
/// In each case a key that was added meanwhile comes again at once, after the run.
///
/// # Examples
///
/// ```
/// use requeue::pool::Outcome;
///
/// assert_eq!(Outcome::from(()), Outcome::Done);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[doc(alias = "Result")]
pub enum Outcome {
    /// It went well.
    #[default]
    #[doc(alias = "Succeed")]
    Done,
    /// It went well, and the key is to be looked at again after this delay.
    #[doc(alias = "RequeueAfter")]
    #[doc(alias = "RetryAfter")]
    After(Duration),
    /// It did not go well, and trying again would not help.
    #[doc(alias = "TerminalError")]
    GiveUp,
}

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::Done
    }
}

/// Why a run did not go well.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use requeue::pool::Failure;
///
/// let failure = Failure::<String>::TimedOut(Duration::from_secs(30));
/// assert_eq!(failure.to_string(), "the run took longer than 30s");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure<E> {
    /// The handler returned this error.
    Error(E),
    /// The handler panicked, with this message.
    Panicked(String),
    /// The run took longer than this, the timeout, and was cancelled.
    TimedOut(Duration),
    /// The handler returned [`Outcome::GiveUp`].
    GaveUp,
}

impl<E> Failure<E> {
    /// Takes the message of a panic and discards the rest of its payload.
    pub(super) fn from_panic(payload: Box<dyn Any + Send>) -> Self {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let failure = Self::Panicked(text.unwrap_or("no message").to_owned());
        discard(payload);
        failure
    }
}

impl<E: fmt::Display> fmt::Display for Failure<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => error.fmt(f),
            Self::Panicked(message) => write!(f, "the handler panicked: {message}"),
            Self::TimedOut(timeout) => {
                write!(f, "the run took longer than {timeout:?}")
            }
            Self::GaveUp => f.write_str("the handler gave up"),
        }
    }
}

impl<E: Error> Error for Failure<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // The error speaks for itself in `Display`, so its cause comes next.
            Self::Error(error) => error.source(),
            Self::Panicked(_) | Self::TimedOut(_) | Self::GaveUp => None,
        }
    }
}
