//! Delays that grow by chance.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use super::failures::Failures;
use super::random::Random;
use super::{RetryPolicy, whole_nanos};

/// Waits a random time between `base` and three times the last delay of the key.
///
/// Grows about as [`Exponential`](super::Exponential) does, but keys that failed together
/// drift apart more with each failure. The delay never exceeds `max`, nor falls below
/// `base` unless `max` does.
///
/// It remembers the last delay of each key and so is not
/// [by count](RetryPolicy::by_count): each retry looks the key up here.
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
    failures: Failures<K, Last>,
}

/// What is remembered of a key.
#[derive(Clone, Copy, Default)]
struct Last {
    /// The last delay in nanoseconds, 0 before the first.
    delay: u64,
    retries: u32,
}

impl<K> Decorrelated<K> {
    /// Waits between `base` and `max`, starting near `base`.
    pub fn new(base: Duration, max: Duration) -> Self {
        Self {
            base: whole_nanos(base),
            max: whole_nanos(max),
            random: Random::new(),
            failures: Failures::new(),
        }
    }

    /// Makes the random numbers the same for the same `seed`: for tests.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.random = Random::seeded(seed);
        self
    }

    /// Tracks at most `keys` keys, as [`Exponential::max_tracked`] does.
    ///
    /// [`Exponential::max_tracked`]: super::Exponential::max_tracked
    #[must_use]
    pub fn max_tracked(mut self, keys: usize) -> Self {
        self.failures = self.failures.max_tracked(keys);
        self
    }

    /// How many keys have failed and were not forgotten.
    pub fn tracked(&self) -> usize {
        self.failures.len()
    }

    fn after(&self, last: u64) -> u64 {
        let longest = last.max(self.base).saturating_mul(3);
        self.random.within(self.base..=longest).min(self.max)
    }
}

impl<K: Clone + Eq + Hash + Send> RetryPolicy<K> for Decorrelated<K> {
    fn when(&self, key: &K) -> Duration {
        let delay = self.failures.fail(key, |last| {
            last.retries = last.retries.saturating_add(1);
            last.delay = self.after(last.delay);
            last.delay
        });
        Duration::from_nanos(delay)
    }

    fn forget(&self, key: &K) {
        self.failures.forget(key);
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.failures.get(key).retries
    }
}

impl<K> fmt::Debug for Decorrelated<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decorrelated")
            .field("base", &Duration::from_nanos(self.base))
            .field("max", &Duration::from_nanos(self.max))
            .field("tracked", &self.tracked())
            .finish_non_exhaustive()
    }
}
