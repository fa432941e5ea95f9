//! Twice as long after each failure.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use super::failures::Failures;
use super::{ByCount, RetryPolicy, whole_nanos};

/// Waits `base` after the first failure of a key and twice as long after each further one.
///
/// The delay never exceeds `max`, whatever the count; the numbers are client-go's to the
/// nanosecond. A `base` of zero never waits, a `base` above `max` always waits `max`, and
/// durations above 584 years count as 584 years.
///
/// Only one failure is counted for each call of [`when`](RetryPolicy::when); call
/// [`forget`](RetryPolicy::forget) when the key succeeds. A queue does both.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use requeue::retry::{Exponential, RetryPolicy};
///
/// let ms = Duration::from_millis(1);
/// let policy = Exponential::new(ms, ms * 6);
/// let delays: Vec<_> = (0..5).map(|_| policy.when(&"key")).collect();
/// assert_eq!(delays, [ms, ms * 2, ms * 4, ms * 6, ms * 6]);
/// assert_eq!(policy.num_requeues(&"key"), 5);
/// ```
#[doc(alias = "ItemExponentialFailureRateLimiter")]
#[doc(alias = "TypedItemExponentialFailureRateLimiter")]
#[doc(alias = "NewTypedItemExponentialFailureRateLimiter")]
pub struct Exponential<K> {
    curve: Curve,
    failures: Failures<K>,
}

impl<K> Exponential<K> {
    /// Waits `base` at first, then twice as long each time, up to `max`.
    pub fn new(base: Duration, max: Duration) -> Self {
        Self { curve: Curve::new(base, max), failures: Failures::new() }
    }

    /// Tracks at most `keys` keys; see the [module](super) on what happens to others.
    ///
    /// With 0 no key is tracked and every failure is the first. A queue counts failures
    /// itself, for the keys it holds, and does not use this.
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue::retry::{Exponential, RetryPolicy};
    ///
    /// let policy = Exponential::default().max_tracked(1000);
    /// for key in 0..5000 {
    ///     policy.when(&key);
    /// }
    /// assert_eq!(policy.tracked(), 1000);
    /// ```
    #[must_use]
    pub fn max_tracked(mut self, keys: usize) -> Self {
        self.failures = self.failures.max_tracked(keys);
        self
    }

    /// How many keys have failed and were not forgotten.
    pub fn tracked(&self) -> usize {
        self.failures.len()
    }
}

/// From 5 ms to 1000 s, what client-go's controllers use for each key.
impl<K> Default for Exponential<K> {
    fn default() -> Self {
        Self::new(Duration::from_millis(5), Duration::from_secs(1000))
    }
}

/// From 1 ms to 1000 s: client-go's policy for a key on its own.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use requeue::retry::{self, RetryPolicy};
///
/// let policy = retry::item_default();
/// assert_eq!(policy.when(&"key"), Duration::from_millis(1));
/// ```
#[doc(alias = "DefaultTypedItemBasedRateLimiter")]
#[doc(alias = "DefaultItemBasedRateLimiter")]
pub fn item_default<K>() -> Exponential<K> {
    Exponential::new(Duration::from_millis(1), Duration::from_secs(1000))
}

impl<K: Clone + Eq + Hash + Send> RetryPolicy<K> for Exponential<K> {
    fn when(&self, key: &K) -> Duration {
        let retries = self.failures.count(key);
        self.curve.delay(retries)
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

impl<K: Send> ByCount for Exponential<K> {
    fn delay(&self, retries: u32) -> Duration {
        self.curve.delay(retries)
    }
}

impl<K> fmt::Debug for Exponential<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exponential")
            .field("first", &self.curve.delay(0))
            .field("longest", &self.curve.delay(u32::MAX))
            .field("tracked", &self.tracked())
            .finish_non_exhaustive()
    }
}

/// `base * 2^retries`, at most `max`, for every count that makes a difference.
///
/// A table and not a formula: a branch on a count that has just come from memory makes
/// `when` on a million keys 1.4 times slower.
struct Curve([Duration; COUNTS]);

/// After 64 failures or more every base but 0 has overflowed, and waits `max`.
const COUNTS: usize = 65;

impl Curve {
    fn new(base: Duration, max: Duration) -> Self {
        let (base, max) = (rounded(whole_nanos(base)), whole_nanos(max));
        Self(std::array::from_fn(|retries| {
            let nanos = u128::from(base) << retries;
            Duration::from_nanos(u64::try_from(nanos).map_or(max, |nanos| nanos.min(max)))
        }))
    }

    #[inline]
    fn delay(&self, retries: u32) -> Duration {
        self.0[(retries as usize).min(COUNTS - 1)]
    }
}

/// client-go computes in floating point, so that a base of more than 2^53 ns (104 days) is
/// rounded to a multiple of a power of two.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "to be rounded is the purpose"
)]
fn rounded(nanos: u64) -> u64 {
    nanos as f64 as u64
}

/// What [`Exponential::default`] does, for a queue that was given no policy: the queue
/// counts, so this needs no table, and asks nothing of the key.
pub(crate) struct QueueDefault(Curve);

impl Default for QueueDefault {
    fn default() -> Self {
        Self(Exponential::<()>::default().curve)
    }
}

impl<K> RetryPolicy<K> for QueueDefault {
    fn when(&self, _: &K) -> Duration {
        self.0.delay(0)
    }

    fn forget(&self, _: &K) {}

    fn num_requeues(&self, _: &K) -> u32 {
        0
    }

    fn by_count(&self) -> Option<&dyn ByCount> {
        Some(self)
    }
}

impl ByCount for QueueDefault {
    fn delay(&self, retries: u32) -> Duration {
        self.0.delay(retries)
    }
}
