//! Random delays within those of another policy.

use std::fmt;
use std::time::Duration;

use super::random::Random;
use super::{AsByCount, ByCount, RetryPolicy, whole_nanos};

/// Waits a random part of another policy's delay.
///
/// Without jitter, keys that fail together are retried together. There are three kinds:
///
/// - *full*, by [`full_jitter`](RetryPolicy::full_jitter): between zero and the whole delay.
///   It spreads keys best, and halves the average delay.
/// - *equal*, by [`equal_jitter`](RetryPolicy::equal_jitter): between half the delay and the
///   whole delay. No key is retried at once.
/// - *decorrelated*: the policy [`Decorrelated`](super::Decorrelated).
///
/// A bound after the jitter cuts off its longest delays: `full_jitter().at_most(d)`. A bound
/// before it does not change the distribution: `at_most(d).full_jitter()`.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use requeue::retry::{Exponential, Jitter, RetryPolicy};
///
/// let policy = || Jitter::full(Exponential::default()).seed(42);
/// let [a, b] = [policy(), policy()];
/// assert_eq!(a.when(&"key"), b.when(&"key"), "the same seed gives the same delays");
/// assert!(a.when(&"key") <= Duration::from_millis(10));
/// ```
pub struct Jitter<P> {
    policy: P,
    form: Form,
    random: Random,
    by_count: AsByCount<P>,
}

#[derive(Clone, Copy, Debug)]
enum Form {
    /// Between zero and the whole delay.
    Full,
    /// Between half the delay and the whole delay.
    Equal,
}

impl<P> Jitter<P> {
    /// Creates a policy that waits between zero and the delay of `policy`.
    pub fn full<K>(policy: P) -> Self
    where
        P: RetryPolicy<K>,
    {
        Self { policy, form: Form::Full, random: Random::new(), by_count: P::by_count }
    }

    /// Creates a policy that waits between half the delay of `policy` and the whole delay.
    pub fn equal<K>(policy: P) -> Self
    where
        P: RetryPolicy<K>,
    {
        Self { policy, form: Form::Equal, random: Random::new(), by_count: P::by_count }
    }

    /// Seeds the random numbers, so that a test can repeat them.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.random = Random::seeded(seed);
        self
    }

    fn jitter(&self, delay: Duration) -> Duration {
        let longest = whole_nanos(delay);
        let shortest = match self.form {
            Form::Full => 0,
            Form::Equal => longest / 2,
        };
        Duration::from_nanos(self.random.within(shortest..=longest))
    }
}

impl<K, P: RetryPolicy<K>> RetryPolicy<K> for Jitter<P> {
    fn when(&self, key: &K) -> Duration {
        self.jitter(self.policy.when(key))
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
impl<P: Send + Sync> ByCount for Jitter<P> {
    fn delay(&self, failures: u32) -> Duration {
        let inner = (self.by_count)(&self.policy);
        self.jitter(inner.map_or(Duration::ZERO, |policy| policy.delay(failures)))
    }

    fn counts(&self) -> bool {
        (self.by_count)(&self.policy).is_some_and(ByCount::counts)
    }
}

impl<P: fmt::Debug> fmt::Debug for Jitter<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jitter")
            .field("policy", &self.policy)
            .field("form", &self.form)
            .finish_non_exhaustive()
    }
}
