//! Retry policies: how long a failed key waits before it runs again.
//!
//! A [`RetryPolicy`] counts the failures of each key and turns them into a delay. client-go
//! calls it a rate limiter. Pass one to [`Builder::retry`](crate::Builder::retry), or use it
//! without a queue.
//!
//! | policy | delay | remembers per key |
//! |---|---|---|
//! | [`Exponential`] | `base`, twice that, four times that, … up to `max` | number of failures |
//! | [`FastSlow`] | `fast` for the first `n` failures, then `slow` | number of failures |
//! | [`Bucket`] | until a shared [limiter](crate::rate::Limiter) has a token | nothing |
//! | [`PerKeyBucket`] | until the key's own bucket has a token | its bucket |
//! | [`Decorrelated`] | random, between `base` and three times the last delay | its last delay |
//! | [`MaxOf`], by [`and`](RetryPolicy::and) | the longer of two delays | as both policies |
//! | [`MaxWait`], by [`at_most`](RetryPolicy::at_most) | at most a maximum | as its policy |
//! | [`Jitter`], by [`full_jitter`](RetryPolicy::full_jitter) and [`equal_jitter`](RetryPolicy::equal_jitter) | a random part of a delay | as its policy |
//!
//! [`controller_default`] and [`item_default`] are the two defaults of client-go.
//!
//! # Which to choose
//!
//! - Most controllers: [`Exponential::default`], from 5 ms to 1000 s per key. A key that keeps
//!   failing gets slow without affecting the others.
//! - Many keys that fail together, for example when a server goes away: add
//!   [`full_jitter`](RetryPolicy::full_jitter), so that they are not retried together.
//! - A service that accepts only a certain rate of retries: add a [`Bucket`]. The wait for a
//!   shared bucket has no bound: 10,000 keys that fail at once wait up to 16 minutes for a
//!   bucket of 10 per second. `Bucket::new(limiter).at_most(max)` bounds it.
//!
//! # Memory
//!
//! client-go remembers every key that failed and was never forgotten. Here memory is bounded.
//! A queue remembers the failures of the keys that it holds, and of
//! [`Builder::max_tracked`](crate::Builder::max_tracked) others. A policy without a queue
//! remembers at least the last 1,048,576 keys that failed, and at most twice as many. A key
//! that is dropped starts again without failures. A `u64` key takes at most 40 bytes, and
//! memory is freed after a spike.
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use requeue::retry::{Exponential, RetryPolicy};
//!
//! let policy = Exponential::new(Duration::from_millis(5), Duration::from_secs(1000));
//! assert_eq!(policy.when(&"a"), Duration::from_millis(5));
//! assert_eq!(policy.when(&"a"), Duration::from_millis(10));
//! assert_eq!(policy.when(&"b"), Duration::from_millis(5));
//! policy.forget(&"a");
//! assert_eq!(policy.when(&"a"), Duration::from_millis(5));
//! ```

mod bucket;
mod decorrelated;
mod exponential;
mod failures;
mod fast_slow;
mod jitter;
mod max_of;
mod max_wait;
mod random;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

pub use bucket::{Bucket, PerKeyBucket, controller_default};
pub use decorrelated::Decorrelated;
pub(crate) use exponential::QueueDefault;
pub use exponential::{Exponential, item_default};
pub use fast_slow::FastSlow;
pub use jitter::Jitter;
pub use max_of::MaxOf;
pub use max_wait::MaxWait;

/// Chooses how long a key waits after a failure; client-go's `RateLimiter`.
///
/// A queue calls [`when`](Self::when) for each failure of a key, and [`forget`](Self::forget)
/// when it succeeds or is given up. It calls a policy without holding its lock, unless the
/// policy is [`by_count`](Self::by_count).
///
/// # Panics
///
/// If a policy panics, the queue catches the panic and reports it to its metrics. The key waits
/// for the delay of [`Exponential::default`] instead. No key and no worker is lost.
///
/// # Examples
///
/// A policy that waits one second per letter of the key:
///
/// ```
/// use std::time::Duration;
/// use requeue::retry::RetryPolicy;
///
/// struct ByLength;
///
/// impl RetryPolicy<String> for ByLength {
///     fn when(&self, key: &String) -> Duration {
///         Duration::from_secs(key.len() as u64)
///     }
///     fn forget(&self, _: &String) {}
///     fn num_requeues(&self, _: &String) -> u32 {
///         0
///     }
/// }
///
/// let policy = ByLength.at_most(Duration::from_secs(4));
/// assert_eq!(policy.when(&"abc".to_owned()), Duration::from_secs(3));
/// assert_eq!(policy.when(&"abcdef".to_owned()), Duration::from_secs(4));
/// ```
#[doc(alias = "TypedRateLimiter")]
#[doc(alias = "RateLimiter")]
pub trait RetryPolicy<K>: Send + Sync {
    /// Counts a failure of `key`. Returns how long to wait before it runs again.
    #[doc(alias = "When")]
    fn when(&self, key: &K) -> Duration;

    /// Forgets the failures of `key`.
    #[doc(alias = "Forget")]
    fn forget(&self, key: &K);

    /// Returns how often `key` failed since it was last forgotten.
    #[doc(alias = "NumRequeues")]
    fn num_requeues(&self, key: &K) -> u32;

    /// Returns the policy as a function of the number of failures, if it is one.
    ///
    /// A queue then counts the failures itself and calls [`ByCount::delay`] instead of
    /// [`when`](Self::when), which saves a lookup per retry. The methods of the policy do not
    /// see these failures. Return `None`, the default, if the policy needs to know more of a
    /// key than the number of its failures.
    fn by_count(&self) -> Option<&dyn ByCount> {
        None
    }

    /// Waits for the longer of the delays of this policy and `other`.
    ///
    /// Both policies count every failure.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use requeue::retry::{Exponential, FastSlow, RetryPolicy};
    ///
    /// let [ms, sec] = [Duration::from_millis(1), Duration::from_secs(1)];
    /// let policy = Exponential::new(ms, sec).and(FastSlow::new(ms * 3, ms * 10, 3));
    /// let delays: Vec<_> = (0..6).map(|_| policy.when(&"key")).collect();
    /// assert_eq!(delays, [ms * 3, ms * 3, ms * 4, ms * 10, ms * 16, ms * 32]);
    /// ```
    #[doc(alias = "MaxOfRateLimiter")]
    fn and<P>(self, other: P) -> MaxOf<Self, P>
    where
        Self: Sized,
        P: RetryPolicy<K>,
    {
        MaxOf::new(self, other)
    }

    /// Waits for the delay of this policy, but at most `max`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use requeue::retry::{Exponential, RetryPolicy};
    ///
    /// let ms = Duration::from_millis(1);
    /// let policy = Exponential::new(ms * 5, ms * 1000).at_most(ms * 8);
    /// assert_eq!(policy.when(&"key"), ms * 5);
    /// assert_eq!(policy.when(&"key"), ms * 8);
    /// ```
    #[doc(alias = "WithMaxWaitRateLimiter")]
    fn at_most(self, max: Duration) -> MaxWait<Self>
    where
        Self: Sized,
    {
        MaxWait::new(self, max)
    }

    /// Waits a random time between zero and the delay of this policy.
    ///
    /// See [`Jitter`] for the choice between this and [`equal_jitter`](Self::equal_jitter).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use requeue::retry::{Exponential, RetryPolicy};
    ///
    /// let ms = Duration::from_millis(1);
    /// let policy = Exponential::new(ms * 100, ms * 1000).full_jitter();
    /// assert!(policy.when(&"key") <= ms * 100);
    /// assert!(policy.when(&"key") <= ms * 200);
    /// ```
    fn full_jitter(self) -> Jitter<Self>
    where
        Self: Sized,
    {
        Jitter::full(self)
    }

    /// Waits a random time between half the delay of this policy and the whole delay.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use requeue::retry::{Exponential, RetryPolicy};
    ///
    /// let ms = Duration::from_millis(1);
    /// let policy = Exponential::new(ms * 100, ms * 1000).equal_jitter();
    /// assert!((ms * 50..=ms * 100).contains(&policy.when(&"key")));
    /// assert!((ms * 100..=ms * 200).contains(&policy.when(&"key")));
    /// ```
    fn equal_jitter(self) -> Jitter<Self>
    where
        Self: Sized,
    {
        Jitter::equal(self)
    }
}

/// A policy that depends only on the number of failures of a key.
///
/// A queue calls it with its lock held. It must be quick, must not block and must not call
/// the queue.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use requeue::retry::{Exponential, RetryPolicy};
///
/// let policy = Exponential::<u64>::default();
/// let by_count = policy.by_count().expect("exponential needs only a count");
/// assert_eq!(by_count.delay(3), Duration::from_millis(40));
/// assert!(by_count.counts());
/// ```
pub trait ByCount: Send + Sync {
    /// Returns how long to wait after a failure. The key has failed `failures` times before.
    fn delay(&self, failures: u32) -> Duration;

    /// Returns whether a queue counts failures; with `false` every count is 0.
    ///
    /// A queue asks once, when it is built.
    fn counts(&self) -> bool {
        true
    }
}

/// Returns the by-count form of a `P`.
///
/// A combinator keeps this pointer for each inner policy, because [`ByCount::delay`] cannot
/// call [`RetryPolicy::by_count`]: it does not know the key type.
type AsByCount<P> = for<'a> fn(&'a P) -> Option<&'a (dyn ByCount + 'a)>;

macro_rules! forward_to_inner {
    ($($pointer:ident),*) => {$(
        impl<K, P: RetryPolicy<K> + ?Sized> RetryPolicy<K> for $pointer<P> {
            fn when(&self, key: &K) -> Duration {
                (**self).when(key)
            }

            fn forget(&self, key: &K) {
                (**self).forget(key);
            }

            fn num_requeues(&self, key: &K) -> u32 {
                (**self).num_requeues(key)
            }

            fn by_count(&self) -> Option<&dyn ByCount> {
                (**self).by_count()
            }
        }
    )*};
}

forward_to_inner!(Arc, Box);

/// Returns the nanoseconds of `d`, at most `u64::MAX`, which is about 584 years.
fn whole_nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}
