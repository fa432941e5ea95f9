//! A few fast retries, then slow ones.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use super::failures::Failures;
use super::{ByCount, RetryPolicy};

/// Waits `fast` after each of the first `n` failures of a key, and `slow` after the rest.
///
/// Use it for failures that either pass at once, such as a conflict, or last long. With an
/// `n` of 0 it always waits `slow`.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use requeue::retry::{FastSlow, RetryPolicy};
///
/// let [fast, slow] = [Duration::from_millis(5), Duration::from_secs(10)];
/// let policy = FastSlow::new(fast, slow, 3);
/// let delays: Vec<_> = (0..5).map(|_| policy.when(&"key")).collect();
/// assert_eq!(delays, [fast, fast, fast, slow, slow]);
/// ```
#[doc(alias = "ItemFastSlowRateLimiter")]
#[doc(alias = "TypedItemFastSlowRateLimiter")]
#[doc(alias = "NewTypedItemFastSlowRateLimiter")]
pub struct FastSlow<K> {
    fast: Duration,
    slow: Duration,
    n: u32,
    failures: Failures<K>,
}

impl<K> FastSlow<K> {
    /// Creates a policy that waits `fast` after `n` failures, then `slow`.
    pub fn new(fast: Duration, slow: Duration, n: u32) -> Self {
        Self { fast, slow, n, failures: Failures::new() }
    }
}

impl<K: Clone + Eq + Hash + Send> RetryPolicy<K> for FastSlow<K> {
    fn when(&self, key: &K) -> Duration {
        self.delay(self.failures.count(key))
    }

    fn forget(&self, key: &K) {
        self.failures.forget(key);
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.failures.get(key)
    }

    fn by_count(&self) -> Option<&dyn ByCount> {
        Some(self)
    }
}

impl<K: Send> ByCount for FastSlow<K> {
    fn delay(&self, failures: u32) -> Duration {
        if failures < self.n { self.fast } else { self.slow }
    }
}

impl<K> fmt::Debug for FastSlow<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FastSlow")
            .field("fast", &self.fast)
            .field("slow", &self.slow)
            .field("n", &self.n)
            .field("tracked", &self.failures.len())
            .finish_non_exhaustive()
    }
}
