//! One limiter for all keys, or one for each.

use std::fmt;
use std::hash::Hash;
use std::time::{Duration, Instant};

use super::{ByCount, Exponential, MaxOf, MaxWait, RetryPolicy};
use crate::rate::{Keyed, Limit, Limiter};

/// Waits until a limiter that all keys share has a token.
///
/// It looks at no key and counts no failures, so it bounds how many retries happen in all:
/// use it together with a policy that looks at keys, by [`and`](RetryPolicy::and).
///
/// Every failure takes a token for good, and the wait has no bound: it grows with the
/// number of failures that came before. [`at_most`](Self::at_most) bounds it. If the
/// limiter never has a token (a burst of 0, or [`Limit::ZERO`] and empty), the wait is
/// [`Bucket::NEVER`].
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
    /// How long a key waits for a token that never comes: 292 years, as in Go.
    #[doc(alias = "InfDuration")]
    pub const NEVER: Duration = Duration::from_nanos(i64::MAX as u64);

    /// Waits for tokens of `limiter`, which others may use as well.
    pub fn new(limiter: Limiter) -> Self {
        Self { limiter }
    }

    /// Waits for the limiter, but never longer than `max`.
    ///
    /// As [`RetryPolicy::at_most`], which cannot tell which of all key types is meant.
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

    /// The limiter.
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

    fn delay_at(&self, _: u32, now: Instant) -> Duration {
        self.limiter.take_one_at(now).unwrap_or(Self::NEVER)
    }

    fn counts(&self) -> bool {
        false
    }
}

/// From 5 ms to 1000 s for each key, and 10 a second for all together after a burst of
/// 100: what client-go's controllers use.
///
/// The wait for the shared bucket has no bound: see [`Bucket`]. [`Exponential::default`]
/// is the same without it.
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

/// Waits until the key's own limiter has a token.
///
/// A key that fails seldom is retried at once; one that fails again and again is retried at
/// the limit of the limiter. Other keys do not matter, and neither does success: buckets
/// fill with time, so [`forget`](RetryPolicy::forget) does nothing, and
/// [`num_requeues`](RetryPolicy::num_requeues) is always 0.
///
/// The memory is that of [`Keyed`], which drops keys whose buckets have filled up.
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
    /// Waits for tokens of `keyed`, which others may use as well.
    pub fn new(keyed: Keyed<K>) -> Self {
        Self { keyed }
    }
}

impl<K: Clone + Eq + Hash + Send> RetryPolicy<K> for PerKeyBucket<K> {
    fn when(&self, key: &K) -> Duration {
        self.keyed.reserve(key).unwrap_or(Bucket::NEVER)
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
