//! Exponential backoff.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use super::failures::Failures;
use super::{ByCount, RetryPolicy, whole_nanos};

/// Waits `base` after the first failure of a key, and twice as long after each further one.
///
/// The delay never exceeds `max`. The delays equal client-go's to the nanosecond. A `base` of
/// zero never waits, a `base` above `max` always waits `max`, and durations above 584 years
/// count as 584 years.
///
/// Outside of a queue, call [`when`](RetryPolicy::when) for each failure and
/// [`forget`](RetryPolicy::forget) when the key succeeds. A queue counts the failures itself;
/// see [`Builder::max_tracked`](crate::Builder::max_tracked) for how many keys it remembers.
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
    /// Creates a policy that waits `base` at first, then twice as long each time, up to `max`.
    pub fn new(base: Duration, max: Duration) -> Self {
        Self { curve: Curve::new(base, max), failures: Failures::new() }
    }
}

/// Waits from 5 ms to 1000 s, as client-go's controllers do for each key.
impl<K> Default for Exponential<K> {
    fn default() -> Self {
        Self::new(Duration::from_millis(5), Duration::from_secs(1000))
    }
}

/// Returns client-go's per-key policy: exponential backoff from 1 ms to 1000 s.
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
        self.curve.delay(self.failures.count(key))
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
    fn delay(&self, failures: u32) -> Duration {
        self.curve.delay(failures)
    }
}

impl<K> fmt::Debug for Exponential<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exponential")
            .field("first", &self.curve.delay(0))
            .field("longest", &self.curve.delay(u32::MAX))
            .field("tracked", &self.failures.len())
            .finish_non_exhaustive()
    }
}

/// `base * 2^failures`, at most `max`, for every count that makes a difference.
///
/// A table and not a formula: a branch on a count that was just loaded from memory makes
/// `when` on a million keys 1.4 times slower.
struct Curve([Duration; COUNTS]);

/// After 64 failures every base except 0 has overflowed, and waits `max`.
const COUNTS: usize = 65;

impl Curve {
    fn new(base: Duration, max: Duration) -> Self {
        let (base, max) = (rounded(whole_nanos(base)), whole_nanos(max));
        Self(std::array::from_fn(|failures| {
            let nanos = u128::from(base) << failures;
            Duration::from_nanos(u64::try_from(nanos).map_or(max, |nanos| nanos.min(max)))
        }))
    }

    #[inline]
    fn delay(&self, failures: u32) -> Duration {
        self.0[(failures as usize).min(COUNTS - 1)]
    }
}

/// Rounds as client-go does: it computes in floating point, so a base of more than 2^53 ns
/// (104 days) loses its lowest bits.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the rounding is intended"
)]
fn rounded(nanos: u64) -> u64 {
    nanos as f64 as u64
}

/// The default policy of a queue: [`Exponential::default`] without its map.
///
/// The queue counts the failures, so this works for any key type.
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
    fn delay(&self, failures: u32) -> Duration {
        self.0.delay(failures)
    }
}
