//! Arguments and results of the queue.

use std::time::Duration;

/// The effect of adding a key. In each case the key will be delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Added {
    /// The key is ready.
    Ready,
    /// The key is being processed, and becomes ready again when its lease ends.
    Dirty,
    /// The key becomes ready when its delay ends.
    Delayed,
    /// The key was already pending, for the same time or earlier.
    Duplicate,
}

/// The effect of [`add_all`](crate::Queue::add_all), in numbers of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct AddedAll {
    /// Keys that became ready.
    pub ready: usize,
    /// Keys that are being processed and become ready again.
    pub dirty: usize,
    /// Keys that were already pending.
    pub duplicate: usize,
}

impl AddedAll {
    pub(super) fn count(&mut self, added: Added) {
        match added {
            Added::Ready | Added::Delayed => self.ready += 1,
            Added::Dirty => self.dirty += 1,
            Added::Duplicate => self.duplicate += 1,
        }
    }
}

/// How to add a key with [`add_with`](crate::Queue::add_with).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use requeue::{AddOptions, Queue};
///
/// let queue = Queue::builder().order(requeue::order::Priority::new()).build();
/// queue.add_with("nightly", AddOptions::new().priority(-100));
/// queue.add_with("urgent", AddOptions::new().priority(10));
/// queue.add_with("soon", AddOptions::new().after(Duration::from_secs(5)));
/// assert_eq!(queue.try_get().unwrap().key(), &"urgent");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
#[doc(alias = "AddOpts")]
pub struct AddOptions {
    /// The delay.
    pub after: Option<Duration>,
    /// Whether to use the delay of the retry policy, which counts a failure. If `after` is
    /// also set, the shorter delay counts, as in controller-runtime.
    pub rate_limited: bool,
    /// How urgent the key is: higher is sooner. It matters only with an order that heeds
    /// it, such as [`Priority`](crate::order::Priority). Unset is 0.
    pub priority: Option<i32>,
}

impl AddOptions {
    /// Options that add a key as [`add`](crate::Queue::add) does.
    pub const fn new() -> Self {
        Self { after: None, rate_limited: false, priority: None }
    }

    /// Adds the key once `delay` has passed.
    #[must_use]
    pub const fn after(mut self, delay: Duration) -> Self {
        self.after = Some(delay);
        self
    }

    /// Adds the key when the retry policy says, and counts a failure of it.
    #[must_use]
    pub const fn rate_limited(mut self, yes: bool) -> Self {
        self.rate_limited = yes;
        self
    }

    /// Adds the key with a priority; see the [field](Self::priority).
    #[must_use]
    pub const fn priority(mut self, priority: i32) -> Self {
        self.priority = Some(priority);
        self
    }
}

/// The number of keys of a queue, by state.
///
/// A key that is ready or processing and also has a delay counts twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Counts {
    /// Keys that can be delivered now.
    pub ready: usize,
    /// Keys with a delay.
    pub delayed: usize,
    /// Keys that are leased to a worker.
    pub processing: usize,
    /// Leased keys that were added again; part of `processing`.
    pub dirty: usize,
}
