//! Errors of the queue.

use std::error::Error;
use std::fmt;

use crate::Counts;

/// The queue is closed. Carries the key that was not added.
///
/// [`add_ref`](crate::Queue::add_ref) moves no key, so its error carries none.
///
/// # Examples
///
/// ```
/// let queue = requeue::Queue::new();
/// queue.close();
/// let closed = queue.add("late").unwrap_err();
/// assert_eq!(closed.into_key(), "late");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Closed<K = ()>(K);

impl<K> Closed<K> {
    pub(crate) fn new(key: K) -> Self {
        Self(key)
    }

    /// Returns a reference to the key.
    pub fn key(&self) -> &K {
        &self.0
    }

    /// Returns the key.
    pub fn into_key(self) -> K {
        self.0
    }
}

/// Does not show the key, which need not implement `Debug`.
impl<K> fmt::Debug for Closed<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closed").finish_non_exhaustive()
    }
}

impl<K> fmt::Display for Closed<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the queue is closed")
    }
}

impl<K> Error for Closed<K> {}

/// Why [`try_get`](crate::Queue::try_get) returned no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TryGetError {
    /// No key is ready.
    Empty,
    /// The queue is closed and no key is ready.
    Closed,
}

impl fmt::Display for TryGetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "no key is ready",
            Self::Closed => "the queue is closed and no key is ready",
        })
    }
}

impl Error for TryGetError {}

/// Why a getter with a time limit returned no key.
///
/// From [`get_timeout`](crate::Queue::get_timeout),
/// [`get_blocking_timeout`](crate::Queue::get_blocking_timeout) and
/// [`get_blocking_deadline`](crate::Queue::get_blocking_deadline).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GetTimeoutError {
    /// No key became ready in time.
    Timeout,
    /// The queue is closed and no key is ready.
    Closed,
}

impl fmt::Display for GetTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Timeout => "no key became ready in time",
            Self::Closed => "the queue is closed and no key is ready",
        })
    }
}

impl Error for GetTimeoutError {}

/// The queue was not drained in time.
///
/// From [`drain_timeout`](crate::Queue::drain_timeout) and
/// [`drain_blocking_timeout`](crate::Queue::drain_blocking_timeout).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct DrainTimeout {
    /// The keys that the queue still held at the deadline.
    pub left: Counts,
}

impl fmt::Display for DrainTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { ready, processing, .. } = self.left;
        write!(
            f,
            "not drained in time: {ready} ready and {processing} processing keys left"
        )
    }
}

impl Error for DrainTimeout {}
