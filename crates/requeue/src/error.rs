//! Errors of the queue.

use std::error::Error;
use std::fmt;

use crate::Counts;

/// Why no key was handed out by [`try_get`](crate::Queue::try_get),
/// [`get_timeout`](crate::Queue::get_timeout) or
/// [`get_deadline`](crate::Queue::get_deadline).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TryGetError {
    /// No key is ready, or none became ready in time.
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

/// A queue that was not drained in time; from
/// [`drain_timeout`](crate::Queue::drain_timeout).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct DrainTimeout {
    /// What the queue still held when the time was over.
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
