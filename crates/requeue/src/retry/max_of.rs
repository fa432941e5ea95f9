//! The longer of two delays.

use std::fmt;
use std::time::Duration;

use super::{AsByCount, ByCount, RetryPolicy};

/// Waits for the longer of the delays of two policies; created by [`RetryPolicy::and`].
///
/// Both policies see every failure and every forget. The number of failures is the larger of
/// the two. It is [by count](RetryPolicy::by_count) if both policies are.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use requeue::retry::{Exponential, FastSlow, MaxOf, RetryPolicy};
///
/// let ms = Duration::from_millis(1);
/// let policy = MaxOf::new(Exponential::new(ms, ms * 100), FastSlow::new(ms * 3, ms * 3, 1));
/// assert_eq!(policy.when(&"key"), ms * 3);
/// assert_eq!(policy.when(&"key"), ms * 3);
/// assert_eq!(policy.when(&"key"), ms * 4);
/// ```
#[doc(alias = "MaxOfRateLimiter")]
#[doc(alias = "TypedMaxOfRateLimiter")]
#[doc(alias = "NewTypedMaxOfRateLimiter")]
pub struct MaxOf<A, B> {
    a: A,
    b: B,
    a_by_count: AsByCount<A>,
    b_by_count: AsByCount<B>,
}

impl<A, B> MaxOf<A, B> {
    /// Combines `a` and `b`, for keys of one type.
    pub fn new<K>(a: A, b: B) -> Self
    where
        A: RetryPolicy<K>,
        B: RetryPolicy<K>,
    {
        Self { a, b, a_by_count: A::by_count, b_by_count: B::by_count }
    }

    fn both(&self) -> Option<(&dyn ByCount, &dyn ByCount)> {
        (self.a_by_count)(&self.a).zip((self.b_by_count)(&self.b))
    }
}

impl<K, A: RetryPolicy<K>, B: RetryPolicy<K>> RetryPolicy<K> for MaxOf<A, B> {
    fn when(&self, key: &K) -> Duration {
        self.a.when(key).max(self.b.when(key))
    }

    fn forget(&self, key: &K) {
        self.a.forget(key);
        self.b.forget(key);
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.a.num_requeues(key).max(self.b.num_requeues(key))
    }

    fn by_count(&self) -> Option<&dyn ByCount> {
        self.both().is_some().then_some(self)
    }
}

/// Called only if both policies are by count.
impl<A: Send + Sync, B: Send + Sync> ByCount for MaxOf<A, B> {
    fn delay(&self, failures: u32) -> Duration {
        let both = self.both();
        both.map_or(Duration::ZERO, |(a, b)| a.delay(failures).max(b.delay(failures)))
    }

    fn counts(&self) -> bool {
        self.both().is_some_and(|(a, b)| a.counts() || b.counts())
    }
}

impl<A: fmt::Debug, B: fmt::Debug> fmt::Debug for MaxOf<A, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MaxOf").field(&self.a).field(&self.b).finish()
    }
}
