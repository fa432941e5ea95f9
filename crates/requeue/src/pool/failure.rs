//! Why a run failed.

use std::any::Any;
use std::error::Error;
use std::fmt::{self, Write};
use std::time::Duration;

use crate::contain::{contain, discard};

/// Why a run failed.
///
/// Formatting a failure never panics, even if the handler's error does.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use requeue::pool::Failure;
///
/// let failure = Failure::TimedOut(Duration::from_secs(30));
/// assert_eq!(failure.to_string(), "the run took longer than 30s");
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Failure {
    /// The handler returned this error.
    Error(Box<dyn Error + Send + Sync>),
    /// The handler panicked with this message.
    Panicked(String),
    /// The run was cancelled because it took longer than this timeout.
    TimedOut(Duration),
    /// The handler returned [`Finish::GiveUp`](crate::Finish::GiveUp) without an error.
    GaveUp,
    /// The handler returned [`Finish::Retry`](crate::Finish::Retry) or
    /// [`Finish::RetryAfter`](crate::Finish::RetryAfter) without an error.
    Retried,
}

impl Failure {
    /// Takes the message of a panic and discards the rest of its payload.
    pub(super) fn from_panic(payload: Box<dyn Any + Send>) -> Self {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let failure = Self::Panicked(text.unwrap_or("no message").to_owned());
        discard(payload);
        failure
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => f.write_str(&text_of(&**error, f.alternate())),
            Self::Panicked(message) => write!(f, "the handler panicked: {message}"),
            Self::TimedOut(timeout) => {
                write!(f, "the run took longer than {timeout:?}")
            }
            Self::GaveUp => f.write_str("the handler gave up"),
            Self::Retried => f.write_str("the handler asked for a retry"),
        }
    }
}

/// Formats a user's error and contains its panic.
///
/// The text is complete before any of it reaches the caller's formatter.
fn text_of(error: &dyn Error, alternate: bool) -> String {
    let text = contain(|| {
        let mut text = String::new();
        let written =
            if alternate { write!(text, "{error:#}") } else { write!(text, "{error}") };
        written.ok().map(|()| text)
    });
    text.flatten().unwrap_or_else(|| "the error cannot be displayed".to_owned())
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // `Display` already shows the error itself.
            Self::Error(error) => error.source(),
            Self::Panicked(_) | Self::TimedOut(_) | Self::GaveUp | Self::Retried => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Text(fn(&mut fmt::Formatter<'_>) -> fmt::Result);

    impl fmt::Display for Text {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            (self.0)(f)
        }
    }

    impl fmt::Debug for Text {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Text")
        }
    }

    impl Error for Text {}

    #[test]
    fn failure_is_displayed_like_its_error() {
        let form = |f: &mut fmt::Formatter<'_>| {
            f.write_str(if f.alternate() { "long" } else { "short" })
        };
        let failure = Failure::Error(Box::new(Text(form)));
        assert_eq!(format!("{failure} {failure:#}"), "short long");
    }

    #[test]
    fn error_whose_display_fails_or_panics_is_replaced() {
        let fails = |f: &mut fmt::Formatter<'_>| f.write_str("half").and(Err(fmt::Error));
        let panics = |_: &mut fmt::Formatter<'_>| panic!("on purpose");
        for text in [Text(fails), Text(panics)] {
            let text = Failure::Error(Box::new(text)).to_string();
            assert_eq!(text, "the error cannot be displayed");
        }
    }

    #[test]
    fn source_of_a_failure_is_the_source_of_its_error() {
        #[derive(Debug)]
        struct Wrapped(fmt::Error);

        impl fmt::Display for Wrapped {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("wrapped")
            }
        }

        impl Error for Wrapped {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(&self.0)
            }
        }

        let failure = Failure::Error(Box::new(Wrapped(fmt::Error)));
        let source = failure.source().map(ToString::to_string);
        assert_eq!(source, Some(fmt::Error.to_string()));
        assert!(Failure::GaveUp.source().is_none());
    }
}
