//! How long a key that failed waits before it is tried again.
//!
//! A [`RetryPolicy`] is what client-go calls a rate limiter of items: it counts the
//! failures of each key and turns them into a delay. Policies stand on their own, and a
//! queue that was built with one asks it for every retry.
//!
//! | policy | waits | remembers of a key |
//! |---|---|---|
//! | [`Exponential`] | `base`, twice that, four times that, … up to `max` | how often it failed |
//! | [`FastSlow`] | `fast` for the first `n` failures, then `slow` | how often it failed |
//! | [`Bucket`] | until a shared [limiter](crate::rate::Limiter) has a token | nothing |
//! | [`PerKeyBucket`] | until the key's own bucket has a token | its bucket |
//! | [`Decorrelated`] | at random between `base` and three times the last delay | its last delay |
//! | [`MaxOf`], by [`and`](RetryPolicy::and) | the longer of two policies' delays | what they do |
//! | [`MaxWait`], by [`at_most`](RetryPolicy::at_most) | no longer than a maximum | what its policy does |
//! | [`Jitter`], by [`full_jitter`](RetryPolicy::full_jitter) and [`equal_jitter`](RetryPolicy::equal_jitter) | a random part of a policy's delay | what its policy does |
//!
//! [`controller_default`] and [`item_default`] are the two that client-go ships.
//!
//! # Which to choose
//!
//! - Most controllers: [`Exponential::default`], from 5 ms to 1000 s for each key. A key
//!   that keeps failing gets slow, the others do not notice.
//! - Many keys that fail for the same reason at the same time, such as a server that went
//!   away: put [`full_jitter`](RetryPolicy::full_jitter) on it, so that they do not come
//!   back at the same time.
//! - A service that must not get more than so many tries a second, of all keys together:
//!   add a [`Bucket`], and mind that the wait for a shared bucket has no bound. 10,000 keys
//!   that fail at once wait up to 16 minutes for a bucket of 10 a second;
//!   `Bucket::new(limiter).at_most(max)` bounds it.
//!
//! # Memory
//!
//! client-go remembers every key that failed and was never forgotten. Here each policy
//! tracks at most [`DEFAULT_MAX_TRACKED`] keys unless told otherwise; one more pushes out
//! a key that has not failed for long, which then starts again as if it had never failed.
//! A tracked `u64` costs at most 40 bytes, and the table shrinks after a spike.
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
use std::time::{Duration, Instant};

pub use bucket::{Bucket, PerKeyBucket, controller_default};
pub use decorrelated::Decorrelated;
pub(crate) use exponential::QueueDefault;
pub use exponential::{Exponential, item_default};
pub use failures::DEFAULT_MAX_TRACKED;
pub use fast_slow::FastSlow;
pub use jitter::Jitter;
pub use max_of::MaxOf;
pub use max_wait::MaxWait;

/// Decides how long a key waits after a failure; client-go's `RateLimiter`.
///
/// A policy stands on its own: call [`when`](Self::when) for each failure of a key and
/// [`forget`](Self::forget) once it succeeds. A queue that was built with a policy does
/// both, through the outcomes of its leases.
///
/// A queue calls a policy without holding its lock, unless the policy is
/// [`by_count`](Self::by_count).
///
/// # Panics
///
/// A policy that panics costs neither a key nor a worker. When a lease ends or a key is
/// added after a failure, the queue catches the panic, tells its metrics and goes on: the
/// key waits as [`Exponential::default`] would have it if the policy was to say how long,
/// and its lease ends as it was to end anyway.
///
/// # Examples
///
/// A policy of one's own, which waits a second for each letter of the key:
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
    ///
    /// A policy that answers `Some` and is shared by two queues counts in each of them
    /// apart, and its own [`num_requeues`](Self::num_requeues) knows only of failures that
    /// were told to its own [`when`](Self::when).
    fn by_count(&self) -> Option<&dyn ByCount> {
        None
    }

    /// Waits as long as the longer of this policy and `other` says.
    ///
    /// Both are asked each time, so both count every failure.
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

    /// Waits as this policy says, but never longer than `max`.
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

    /// Waits a random time between nothing and what this policy says.
    ///
    /// Spreads keys that failed together as far as possible; some come back at once. See
    /// [`Jitter`] for the choice between this and [`equal_jitter`](Self::equal_jitter).
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

    /// Waits a random time between half of what this policy says and all of it.
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

/// A policy that needs to know of a key only how often it has failed.
///
/// A queue calls this with its lock held: it must be quick, must not block and must not
/// call the queue.
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
    /// How long to wait after a failure that `retries` others came before.
    fn delay(&self, retries: u32) -> Duration;

    /// The same for a caller that has just read the [system's clock](crate::SystemClock):
    /// a policy that goes by the time, or asks one that may, need not read it again.
    fn delay_at(&self, retries: u32, now: Instant) -> Duration {
        let _ = now;
        self.delay(retries)
    }

    /// Whether failures are counted at all; `false` makes every count read as 0. It is
    /// asked when a queue is made.
    fn counts(&self) -> bool {
        true
    }
}

/// Asks a `P` for its by-count form.
///
/// A combinator keeps this of the policies inside it. [`RetryPolicy::by_count`] cannot be
/// called from [`ByCount::delay`], where no key type is known; this pointer was taken where
/// it was.
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

/// The longest delay of any policy here, about 584 years: nanoseconds are counted in a
/// `u64`.
fn whole_nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}
