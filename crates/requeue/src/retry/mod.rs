//! How long a key that failed waits before it is tried again.

use std::time::Duration;

/// Decides how long a key waits after a failure; client-go's `RateLimiter`.
///
/// A policy stands on its own: call [`when`](Self::when) for each failure of a key and
/// [`forget`](Self::forget) once it succeeds. A queue that was built with a policy does
/// both, through the outcomes of its leases.
///
/// A queue calls a policy without holding its lock, unless the policy is
/// [`by_count`](Self::by_count).
#[doc(alias = "TypedRateLimiter")]
#[doc(alias = "RateLimiter")]
pub trait RetryPolicy<K>: Send + Sync {
    /// Counts a failure of `key` and says how long to wait before the next try.
    #[doc(alias = "When")]
    fn when(&self, key: &K) -> Duration;

    /// Forgets the failures of `key`: it succeeded, or is given up.
    #[doc(alias = "Forget")]
    fn forget(&self, key: &K);

    /// How often `key` failed since it was last forgotten.
    #[doc(alias = "NumRequeues")]
    fn num_requeues(&self, key: &K) -> u32;

    /// This policy as a function of the number of failures, if it is one.
    ///
    /// A queue then keeps the count in the key's own slot and asks this instead of
    /// [`when`](Self::when), which saves a lookup for each retry. `None`, the default, is
    /// right for any policy that remembers more of a key than a count.
    fn by_count(&self) -> Option<&dyn ByCount> {
        None
    }
}

/// A policy that needs to know of a key only how often it has failed.
///
/// A queue calls this with its lock held: it must be quick, must not block and must not
/// call the queue.
pub trait ByCount: Send + Sync {
    /// How long to wait after a failure that `retries` others came before.
    fn delay(&self, retries: u32) -> Duration;

    /// Whether failures are counted at all; `false` makes every count read as 0.
    fn counts(&self) -> bool {
        true
    }
}

/// The policy of a queue that was given none: 5 ms after the first failure of a key,
/// doubling up to 1000 s.
pub(crate) fn queue_default<K>() -> Box<dyn RetryPolicy<K>> {
    Box::new(QueueDefault)
}

struct QueueDefault;

impl<K> RetryPolicy<K> for QueueDefault {
    fn when(&self, _: &K) -> Duration {
        self.delay(0)
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
        let ms = 5u64.checked_shl(retries.min(40)).unwrap_or(1_000_000).min(1_000_000);
        Duration::from_millis(ms)
    }
}
