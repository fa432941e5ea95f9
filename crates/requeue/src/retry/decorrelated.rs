//! Random delays that depend on the last one.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use super::failures::Failures;
use super::random::Random;
use super::{RetryPolicy, whole_nanos};

/// Waits a random time between `base` and three times the last delay of the key.
///
/// The delay grows about as that of [`Exponential`](super::Exponential), but keys that failed
/// together drift apart more with each failure. The delay never exceeds `max`, and is at least
/// `base` unless `max` is less.
///
/// It remembers the last delay of each key, so it is not [by count](RetryPolicy::by_count):
/// each retry looks up the key in the policy's own map.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use requeue::retry::{Decorrelated, RetryPolicy};
///
/// let ms = Duration::from_millis(1);
/// let policy = Decorrelated::new(ms * 5, ms * 1000).seed(42);
/// let first = policy.when(&"key");
/// assert!((ms * 5..=ms * 15).contains(&first));
/// assert!((ms * 5..=first * 3).contains(&policy.when(&"key")));
/// ```
pub struct Decorrelated<K> {
    base: u64,
    max: u64,
    random: Random,
    failures: Failures<K, LastDelay>,
}

/// The state of a key.
#[derive(Clone, Copy, Default)]
struct LastDelay {
    /// In nanoseconds; 0 before the first failure.
    delay: u64,
    failures: u32,
}

impl<K> Decorrelated<K> {
    /// Creates a policy that waits between `base` and `max`, starting near `base`.
    pub fn new(base: Duration, max: Duration) -> Self {
        Self {
            base: whole_nanos(base),
            max: whole_nanos(max),
            random: Random::new(),
            failures: Failures::new(),
        }
    }

    /// Seeds the random numbers, so that a test can repeat them.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.random = Random::seeded(seed);
        self
    }

    /// Sets how many keys are remembered at most; 2,097,152 by default, and at least 2.
    ///
    /// The last half as many keys that failed are always remembered. A key that is dropped
    /// starts again without failures.
    #[must_use]
    pub fn max_tracked(mut self, keys: usize) -> Self {
        self.failures = self.failures.max_tracked(keys);
        self
    }

    fn after(&self, last: u64) -> u64 {
        let longest = last.max(self.base).saturating_mul(3);
        self.random.within(self.base..=longest).min(self.max)
    }
}

impl<K: Clone + Eq + Hash + Send> RetryPolicy<K> for Decorrelated<K> {
    fn when(&self, key: &K) -> Duration {
        let delay = self.failures.fail(key, |last| {
            last.failures = last.failures.saturating_add(1);
            last.delay = self.after(last.delay);
            last.delay
        });
        Duration::from_nanos(delay)
    }

    fn forget(&self, key: &K) {
        self.failures.forget(key);
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.failures.get(key).failures
    }
}

impl<K> fmt::Debug for Decorrelated<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decorrelated")
            .field("base", &Duration::from_nanos(self.base))
            .field("max", &Duration::from_nanos(self.max))
            .field("tracked", &self.failures.len())
            .finish_non_exhaustive()
    }
}
