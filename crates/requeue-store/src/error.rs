//! What can go wrong between a queue and its store.

use std::error::Error as StdError;
use std::fmt;

type Source = Box<dyn StdError + Send + Sync>;

/// An error of a store, or of a queue on it.
///
/// [`kind`](Error::kind) says what to do about it; the text says what was tried, and the
/// cause is the [`source`](StdError::source). No text carries a password.
///
/// # Examples
///
/// ```
/// use requeue_store::{ErrorKind, Key};
///
/// let error = Key::new(vec![b'x'; 5000]).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Invalid);
/// assert!(!error.is_transient());
/// assert_eq!(error.to_string(), "the key has 5000 bytes; the most are 1024");
/// ```
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    text: String,
    source: Option<Source>,
}

/// What sort of error it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The store cannot be reached. Nothing was changed; try again later.
    Unavailable,
    /// Somebody has one of the keys to themselves for a while, as a transaction of a
    /// database may. Nothing was changed; the other keys of the call can be asked for
    /// without that one.
    Busy,
    /// The call was sent and no answer came: it may have been carried out, or not.
    ///
    /// An add can be repeated: at worst the key runs once more. The end of a lease can be
    /// repeated too, but [`LeaseLost`](Self::LeaseLost) then means that it was either
    /// carried out the first time or lost before.
    Unknown,
    /// The store refuses whoever asks: a wrong password, or missing rights.
    Denied,
    /// Somebody else is in the way: the queue was made with other settings, or another
    /// process has the files.
    Conflict,
    /// The lease had passed, and the key went on without its holder. Nothing was changed.
    LeaseLost,
    /// What is stored cannot be read.
    Corrupt,
    /// What is stored, or the server, is of a version that this program does not know.
    Version,
    /// The disk failed to keep what it was given. Nothing more is accepted; open the store
    /// anew to see what it kept.
    Poisoned,
    /// What was asked for makes no sense: a key that is too long, an address that cannot
    /// be read.
    Invalid,
    /// This handle of the queue is closed.
    Closed,
    /// The server answered with an error of its own.
    Server,
}

impl Error {
    /// An error without a cause.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into(), source: None }
    }

    /// The same with what caused it.
    #[must_use]
    pub fn because(mut self, source: impl Into<Source>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What sort of error it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the same call may well succeed a little later.
    pub fn is_transient(&self) -> bool {
        matches!(self.kind, ErrorKind::Unavailable | ErrorKind::Busy | ErrorKind::Unknown)
    }

    /// The same of a call that was carried out in part: it cannot say any more that nothing
    /// was changed. For stores whose calls are several to their engine.
    #[must_use]
    pub fn in_part(self) -> Self {
        if self.kind != ErrorKind::Unavailable {
            return self;
        }
        let text = format!("{self}; a part may have been carried out");
        Self::new(ErrorKind::Unknown, text).because(self)
    }

    /// The same once more, for each of several who waited for one call. Causes become text.
    #[must_use]
    pub(crate) fn duplicate(&self) -> Self {
        let source = self.source.as_ref().map(|source| chain(&**source).into());
        Self { kind: self.kind, text: self.text.clone(), source }
    }
}

/// An error and all its causes, on one line.
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
    fn a_part_that_was_carried_out_leaves_the_rest_in_doubt() {
        let unavailable = Error::new(ErrorKind::Unavailable, "the server cannot now");
        let in_part = unavailable.in_part();
        assert_eq!(in_part.kind(), ErrorKind::Unknown);
        assert_eq!(
            in_part.to_string(),
            "the server cannot now; a part may have been carried out"
        );
        let denied = Error::new(ErrorKind::Denied, "no").in_part();
        assert_eq!(
            (denied.kind(), denied.to_string().as_str()),
            (ErrorKind::Denied, "no")
        );
    }
}
