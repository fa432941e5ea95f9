//! Policies that wait for a limiter.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use super::{ByCount, Exponential, MaxOf, MaxWait, RetryPolicy};
use crate::rate::{Keyed, Limit, Limiter};

/// Waits for a token of a limiter that all keys share.
///
/// It ignores keys and counts no failures. It bounds the rate of all retries together; combine
/// it with a policy per key by [`and`](RetryPolicy::and).
///
/// Every failure takes a token for good. The wait has no bound: it grows with the number of
/// earlier failures. [`at_most`](Self::at_most) bounds it. If a token never comes (a burst of
/// 0, or an empty bucket with [`Limit::ZERO`]), the wait is [`Bucket::NEVER`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use requeue::rate::{Limit, Limiter};
/// use requeue::retry::{Bucket, RetryPolicy};
/// use requeue::testing::FakeClock;
///
/// let limiter = Limiter::with_clock(Limit::per_second(10.0), 2, FakeClock::new());
/// let policy = Bucket::new(limiter);
/// let delays: Vec<_> = (1..=4).map(|key| policy.when(&key).as_millis()).collect();
/// assert_eq!(delays, [0, 0, 100, 200]);
/// assert_eq!(policy.num_requeues(&1), 0);
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "BucketRateLimiter")]
#[doc(alias = "TypedBucketRateLimiter")]
pub struct Bucket {
    limiter: Limiter,
}

impl Bucket {
    /// The wait for a token that never comes: 292 years, as in Go.
    #[doc(alias = "InfDuration")]
    pub const NEVER: Duration = Duration::from_nanos(i64::MAX as u64);

    /// Creates a policy that waits for `limiter`, which may have other users.
    pub fn new(limiter: Limiter) -> Self {
        Self { limiter }
    }

    /// Waits for the limiter, but never longer than `max`.
    ///
    /// Unlike [`RetryPolicy::at_most`], it needs no key type.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use requeue::rate::{Limit, Limiter};
    /// use requeue::retry::{Bucket, Exponential, RetryPolicy};
    ///
    /// let limiter = Limiter::new(Limit::per_second(10.0), 100);
    /// let minute = Duration::from_secs(60);
    /// let policy = Exponential::default().and(Bucket::new(limiter).at_most(minute));
    /// assert_eq!(policy.when(&"key"), Duration::from_millis(5));
    /// ```
    pub fn at_most(self, max: Duration) -> MaxWait<Self> {
        MaxWait::new::<()>(self, max)
    }

    /// Returns the limiter.
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    fn next(&self) -> Duration {
        self.limiter.take_one().unwrap_or(Self::NEVER)
    }
}

impl<K> RetryPolicy<K> for Bucket {
    fn when(&self, _: &K) -> Duration {
        self.next()
    }

    fn forget(&self, _: &K) {}

    fn num_requeues(&self, _: &K) -> u32 {
        0
    }

    fn by_count(&self) -> Option<&dyn ByCount> {
        Some(self)
    }
}

impl ByCount for Bucket {
    fn delay(&self, _: u32) -> Duration {
        self.next()
    }

    fn counts(&self) -> bool {
        false
    }
}

/// Returns the policy of client-go's controllers.
///
/// Exponential backoff per key from 5 ms to 1000 s, and 10 retries per second for all keys
/// together after a burst of 100. The wait for the shared bucket has no bound; see [`Bucket`].
/// [`Exponential::default`] is the same without it.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use requeue::retry::{self, RetryPolicy};
///
/// let policy = retry::controller_default();
/// assert_eq!(policy.when(&"key"), Duration::from_millis(5));
/// assert_eq!(policy.when(&"key"), Duration::from_millis(10));
/// ```
#[doc(alias = "DefaultTypedControllerRateLimiter")]
#[doc(alias = "DefaultControllerRateLimiter")]
pub fn controller_default<K: Clone + Eq + Hash + Send>() -> MaxOf<Exponential<K>, Bucket>
{
    let limiter = Limiter::new(Limit::per_second(10.0), 100);
    Exponential::default().and(Bucket::new(limiter))
}

/// Waits for a token of the key's own limiter.
///
/// A key that rarely fails is retried at once. A key that keeps failing is retried at the rate
/// of the limiter. Buckets fill with time, not by success, so
/// [`forget`](RetryPolicy::forget) does nothing and
/// [`num_requeues`](RetryPolicy::num_requeues) is always 0.
///
/// [`Keyed`] bounds the memory: it drops keys whose buckets are full.
///
/// # Examples
///
/// ```
/// use requeue::rate::{Keyed, Limit};
/// use requeue::retry::{PerKeyBucket, RetryPolicy};
/// use requeue::testing::FakeClock;
///
/// let keyed = Keyed::with_clock(Limit::per_second(1.0), 2, FakeClock::new());
/// let policy = PerKeyBucket::new(keyed);
/// let delays: Vec<_> = (0..4).map(|_| policy.when(&"a").as_secs()).collect();
/// assert_eq!(delays, [0, 0, 1, 2]);
/// assert_eq!(policy.when(&"b").as_secs(), 0);
/// ```
#[derive(Clone)]
pub struct PerKeyBucket<K> {
    keyed: Keyed<K>,
}

impl<K> PerKeyBucket<K> {
    /// Creates a policy that waits for `keyed`, which may have other users.
    pub fn new(keyed: Keyed<K>) -> Self {
        Self { keyed }
    }
}

impl<K: Clone + Eq + Hash + Send> RetryPolicy<K> for PerKeyBucket<K> {
    fn when(&self, key: &K) -> Duration {
        self.keyed.take_one(key).unwrap_or(Bucket::NEVER)
    }

    fn forget(&self, _: &K) {}

    fn num_requeues(&self, _: &K) -> u32 {
        0
    }
}

impl<K> fmt::Debug for PerKeyBucket<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PerKeyBucket").field(&self.keyed).finish()
    }
}
