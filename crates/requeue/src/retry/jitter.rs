//! A random part of another policy's delay.

use std::fmt;
use std::time::{Duration, Instant};

use super::random::Random;
use super::{AsByCount, ByCount, RetryPolicy, whole_nanos};

/// Waits a random part of what another policy says.
///
/// Keys that fail together come back together unless chance spreads them. There are three
/// ways to do that:
///
/// - *full*, by [`full_jitter`](RetryPolicy::full_jitter): anything from nothing to the
///   whole delay. Spreads best and waits half as long on average.
/// - *equal*, by [`equal_jitter`](RetryPolicy::equal_jitter): half the delay, and anything
///   up to the other half. Never comes back at once.
/// - *decorrelated*: a policy of its own, [`Decorrelated`](super::Decorrelated).
///
/// Bounds that come after the jitter cut its longest delays, `full_jitter().at_most(d)`;
/// bounds that come before do not change its form, `at_most(d).full_jitter()`.
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
    /// Between nothing and the whole delay.
    Full,
    /// Between half the delay and the whole.
    Equal,
}

impl<P> Jitter<P> {
    /// Waits between nothing and what `policy` says.
    pub fn full<K>(policy: P) -> Self
    where
        P: RetryPolicy<K>,
    {
        Self { policy, form: Form::Full, random: Random::new(), by_count: P::by_count }
    }

    /// Waits between half of what `policy` says and all of it.
    pub fn equal<K>(policy: P) -> Self
    where
        P: RetryPolicy<K>,
    {
        Self { policy, form: Form::Equal, random: Random::new(), by_count: P::by_count }
    }

    /// Makes the random numbers the same for the same `seed`: for tests.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.random = Random::seeded(seed);
        self
    }

    fn varied(&self, delay: impl FnOnce(&dyn ByCount) -> Duration) -> Duration {
        self.jitter((self.by_count)(&self.policy).map_or(Duration::ZERO, delay))
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

/// Reached only through [`RetryPolicy::by_count`], which looked that the policy inside has
/// that form. One that does not count any longer waits no time at all.
impl<P: Send + Sync> ByCount for Jitter<P> {
    fn delay(&self, retries: u32) -> Duration {
        self.varied(|policy| policy.delay(retries))
    }

    fn delay_at(&self, retries: u32, now: Instant) -> Duration {
        self.varied(|policy| policy.delay_at(retries, now))
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
