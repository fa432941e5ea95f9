//! Errors of stores and of queues on them.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// An error of a store or of a [`SharedQueue`](crate::SharedQueue).
///
/// The [`kind`](Error::kind) says what happened, the [`class`](Error::class) how to handle
/// it, the text what was tried, and the [`source`](StdError::source) why it failed. No text
/// contains a password.
///
/// # Examples
///
/// ```
/// use requeue_store::{Class, ErrorKind, Key};
///
/// let error = Key::new(vec![b'x'; 5000]).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Invalid);
/// assert_eq!(error.class(), Class::GiveUpKey);
/// assert!(!error.is_transient());
/// assert_eq!(error.to_string(), "the key has 5000 bytes; the maximum is 1024");
/// ```
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    text: String,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// The kind of an [`Error`].
///
/// Each kind has a [`Class`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The store cannot be reached. Nothing was changed; try again later.
    Unavailable,
    /// The key is locked, for example by a transaction, or the server resolved a deadlock
    /// or a conflict of transactions. Nothing was changed.
    Busy,
    /// The call was sent, but no answer came. It may or may not have been executed.
    ///
    /// An add can be repeated: at worst the key runs once more. A finish can be repeated
    /// too, but then [`LeaseLost`](Self::LeaseLost) means that the lease was either ended by
    /// the first attempt or lost before.
    Unknown,
    /// The server is out of memory or disk space. Nothing was changed.
    Full,
    /// The server does not accept writes: it is a replica, or in a read-only mode. Nothing
    /// was changed.
    ReadOnly,
    /// The store denies access: a wrong password, or missing permissions.
    ///
    /// Opening a store fails at once. On an open store a password may just be changing, so
    /// calls are repeated.
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
    /// The server answered with an error that this program does not know.
    Server,
}

/// How to handle an [`Error`].
///
/// | class | kinds |
/// |---|---|
/// | [`RetryHere`](Self::RetryHere) | [`Busy`](ErrorKind::Busy), [`Timeout`](ErrorKind::Timeout), [`Full`](ErrorKind::Full) |
/// | [`RetryElsewhere`](Self::RetryElsewhere) | [`Unavailable`](ErrorKind::Unavailable), [`Unknown`](ErrorKind::Unknown), [`ReadOnly`](ErrorKind::ReadOnly), [`Denied`](ErrorKind::Denied) |
/// | [`GiveUpKey`](Self::GiveUpKey) | [`LeaseLost`](ErrorKind::LeaseLost), [`Invalid`](ErrorKind::Invalid) |
/// | [`GiveUp`](Self::GiveUp) | [`Conflict`](ErrorKind::Conflict), [`Corrupt`](ErrorKind::Corrupt), [`Version`](ErrorKind::Version), [`Poisoned`](ErrorKind::Poisoned), [`Closed`](ErrorKind::Closed), [`Server`](ErrorKind::Server) |
///
/// A [`SharedQueue`](crate::SharedQueue) repeats calls of the first two classes for its
/// [patience](crate::SharedQueueBuilder::patience). They never close a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// The same call may succeed a little later on the same connection.
    RetryHere,
    /// The same call may succeed on a new connection, perhaps to another server.
    RetryElsewhere,
    /// Repeating the call does not help for this key. Other keys are not affected.
    GiveUpKey,
    /// The store cannot be used.
    GiveUp,
}

impl Error {
    /// Creates an error without a source.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into(), source: None }
    }

    /// Sets the source of the error.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into().into());
        self
    }

    /// Returns the kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the class of the [kind](Self::kind).
    pub fn class(&self) -> Class {
        match self.kind {
            ErrorKind::Busy | ErrorKind::Timeout | ErrorKind::Full => Class::RetryHere,
            ErrorKind::Unavailable
            | ErrorKind::Unknown
            | ErrorKind::ReadOnly
            | ErrorKind::Denied => Class::RetryElsewhere,
            ErrorKind::LeaseLost | ErrorKind::Invalid => Class::GiveUpKey,
            ErrorKind::Conflict
            | ErrorKind::Corrupt
            | ErrorKind::Version
            | ErrorKind::Poisoned
            | ErrorKind::Closed
            | ErrorKind::Server => Class::GiveUp,
        }
    }

    /// Returns whether the same call may succeed later: [`Class::RetryHere`] or
    /// [`Class::RetryElsewhere`].
    pub fn is_transient(&self) -> bool {
        matches!(self.class(), Class::RetryHere | Class::RetryElsewhere)
    }
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
    fn clone_keeps_the_source() {
        let cause = Error::new(ErrorKind::Server, "cause");
        let error = Error::new(ErrorKind::Unavailable, "no server").because(cause);
        let copy = error.clone();
        assert_eq!(copy.source().unwrap().to_string(), "cause");
    }
}
