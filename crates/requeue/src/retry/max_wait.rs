//! An upper bound for the delays of another policy.

use std::fmt;
use std::time::Duration;

use super::{AsByCount, ByCount, RetryPolicy};

/// Bounds the delays of another policy; created by [`RetryPolicy::at_most`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use requeue::retry::{FastSlow, MaxWait, RetryPolicy};
///
/// let [sec, hour] = [Duration::from_secs(1), Duration::from_secs(3600)];
/// let policy = MaxWait::new(FastSlow::new(sec, hour, 1), sec * 60);
/// assert_eq!(policy.when(&"key"), sec);
/// assert_eq!(policy.when(&"key"), sec * 60);
/// assert_eq!(policy.num_requeues(&"key"), 2);
/// ```
#[doc(alias = "WithMaxWaitRateLimiter")]
#[doc(alias = "TypedWithMaxWaitRateLimiter")]
#[doc(alias = "NewTypedWithMaxWaitRateLimiter")]
pub struct MaxWait<P> {
    policy: P,
    max: Duration,
    by_count: AsByCount<P>,
}

impl<P> MaxWait<P> {
    /// Creates a policy whose delays are those of `policy`, but at most `max`.
    pub fn new<K>(policy: P, max: Duration) -> Self
    where
        P: RetryPolicy<K>,
    {
        Self { policy, max, by_count: P::by_count }
    }
}

impl<K, P: RetryPolicy<K>> RetryPolicy<K> for MaxWait<P> {
    fn when(&self, key: &K) -> Duration {
        self.policy.when(key).min(self.max)
    }

    fn forget(&self, key: &K) {
        self.policy.forget(key);
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.policy.num_requeues(key)
    }

    fn by_count(&self) -> Option<&dyn ByCount> {
        self.policy.by_count().is_some().then_some(self)
    }
}

/// Called only if the inner policy is by count.
impl<P: Send + Sync> ByCount for MaxWait<P> {
    fn delay(&self, failures: u32) -> Duration {
        let inner = (self.by_count)(&self.policy);
        inner.map_or(Duration::ZERO, |policy| policy.delay(failures)).min(self.max)
    }

    fn counts(&self) -> bool {
        (self.by_count)(&self.policy).is_some_and(ByCount::counts)
    }
}

impl<P: fmt::Debug> fmt::Debug for MaxWait<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MaxWait")
            .field("policy", &self.policy)
            .field("max", &self.max)
            .finish_non_exhaustive()
    }
}
