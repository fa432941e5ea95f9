//! The error of an add, which returns the key.

use std::error::Error as StdError;
use std::fmt;

use crate::{Class, Error, ErrorKind};

/// The error of an add, with the key that was not added.
///
/// [`SharedQueue::add_all`](crate::SharedQueue::add_all) returns a vector of keys. If only
/// the error matters, `?` converts it to an [`Error`].
///
/// # Examples
///
/// ```
/// use requeue_store::{ErrorKind, MemoryStore, SharedQueue};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let queue = SharedQueue::<String, _>::new(MemoryStore::new());
/// queue.close();
/// let error = queue.add("late".to_owned()).await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Closed);
/// assert_eq!(error.into_key(), "late");
/// # });
/// ```
#[derive(Clone)]
pub struct AddError<K> {
    key: K,
    error: Error,
}

impl<K> AddError<K> {
    pub(crate) fn new(key: K, error: Error) -> Self {
        Self { key, error }
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.error.kind()
    }

    /// Returns the class of the error.
    pub fn class(&self) -> Class {
        self.error.class()
    }

    /// Returns a reference to the key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Returns the key.
    pub fn into_key(self) -> K {
        self.key
    }

    /// Returns the error without the key.
    pub fn into_error(self) -> Error {
        self.error
    }
}

impl<K> From<AddError<K>> for Error {
    fn from(error: AddError<K>) -> Self {
        error.error
    }
}

/// Does not show the key, which need not implement `Debug`.
impl<K> fmt::Debug for AddError<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddError").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<K> fmt::Display for AddError<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<K> StdError for AddError<K> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.error.source()
    }
}
