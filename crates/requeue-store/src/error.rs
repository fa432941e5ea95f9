//! Errors of stores and of queues on them.

use std::error::Error as StdError;
use std::fmt;

type Cause = Box<dyn StdError + Send + Sync>;

/// An error of a store or of a [`SharedQueue`](crate::SharedQueue).
///
/// The [`kind`](Error::kind) says how to handle it, the text what was tried, and the
/// [`source`](StdError::source) why it failed. No text contains a password.
///
/// # Examples
///
/// ```
/// use requeue_store::{ErrorKind, Key};
///
/// let error = Key::new(vec![b'x'; 5000]).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Invalid);
/// assert!(!error.is_transient());
/// assert_eq!(error.to_string(), "the key has 5000 bytes; the maximum is 1024");
/// ```
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    text: String,
    source: Option<Cause>,
}

/// The kind of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The store cannot be reached. Nothing was changed; try again later.
    Unavailable,
    /// One of the keys is locked, for example by a transaction. Nothing was changed; the
    /// call may succeed for the other keys.
    Busy,
    /// The call was sent, but no answer came. It may or may not have been executed.
    ///
    /// An add can be repeated: at worst the key runs once more. A finish can be repeated
    /// too, but then [`LeaseLost`](Self::LeaseLost) means that the lease was either ended by
    /// the first attempt or lost before.
    Unknown,
    /// The store denies access: a wrong password, or missing permissions.
    Denied,
    /// The queue has other settings, or another process has its files open.
    Conflict,
    /// The lease has expired, and the key may be processed by another worker. Nothing was
    /// changed.
    LeaseLost,
    /// Stored data cannot be read.
    Corrupt,
    /// The stored data or the server has a version that this program does not support.
    Version,
    /// A write to disk failed. The store accepts no more calls; open it again to see what
    /// was written.
    Poisoned,
    /// The request is invalid: for example, the key is too long or the address malformed.
    Invalid,
    /// This handle of the queue is closed.
    Closed,
    /// No key became ready in time.
    Timeout,
    /// The server answered with an error.
    Server,
}

impl Error {
    /// Creates an error without a source.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into(), source: None }
    }

    /// Sets the source of the error.
    #[must_use]
    pub fn because(mut self, source: impl Into<Cause>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Returns the kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns whether the same call may succeed a little later.
    pub fn is_transient(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::Unavailable
                | ErrorKind::Busy
                | ErrorKind::Unknown
                | ErrorKind::Timeout
        )
    }

    /// Turns the error of one part of a call into the error of the whole call.
    ///
    /// For stores that split a call: `Unavailable` becomes `Unknown`, because other parts may
    /// have been executed.
    #[must_use]
    pub fn in_part(self) -> Self {
        if self.kind != ErrorKind::Unavailable {
            return self;
        }
        let text = format!("{self}; a part of the call may have been executed");
        Self::new(ErrorKind::Unknown, text).because(self)
    }

    /// Copies the error for each caller of one call. Sources become text.
    #[must_use]
    pub(crate) fn duplicate(&self) -> Self {
        let source = self.source.as_ref().map(|source| chain(&**source).into());
        Self { kind: self.kind, text: self.text.clone(), source }
    }
}

/// Formats an error and its sources on one line.
fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unavailable_part_makes_the_whole_call_unknown() {
        let unavailable = Error::new(ErrorKind::Unavailable, "the server is down");
        let in_part = unavailable.in_part();
        assert_eq!(in_part.kind(), ErrorKind::Unknown);
        assert_eq!(
            in_part.to_string(),
            "the server is down; a part of the call may have been executed"
        );
        let denied = Error::new(ErrorKind::Denied, "no").in_part();
        assert_eq!(
            (denied.kind(), denied.to_string().as_str()),
            (ErrorKind::Denied, "no")
        );
    }
}
