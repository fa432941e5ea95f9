//! Time inside a queue.

/// Nanoseconds since the queue was built.
pub(super) type Nanos = u64;
