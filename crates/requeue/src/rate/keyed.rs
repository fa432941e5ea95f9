//! A limiter for each key.

mod buckets;
mod reservation;
mod wait;

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;

use self::buckets::{Buckets, Effect, Lookup};
pub use self::reservation::KeyedReservation;
use super::bucket::{At, Claim, Grant, Rate, Refusal, Request};
use super::error::ReserveError;
use super::limit::Limit;
use super::moment::{Moment, Timeline, duration};
use crate::clock::{AnyClock, Clock};
use crate::key::ToKey;

/// A [`Limiter`](super::Limiter) for each key, such as a user, an address or a tenant.
///
/// Each key has its own token bucket. All keys have the same limit and burst, except those
/// with their own limit, set by [`set_key_limit`](Self::set_key_limit). A new key starts with a
/// full bucket. Clones share the buckets.
///
/// Calls take a key in any borrowed form: those of a `Keyed<String>` or a `Keyed<Arc<str>>`
/// take a `&str`. A key is cloned only if its bucket has to be kept.
///
/// # Memory
///
/// A key whose bucket is full behaves like a key that was never seen. So every call looks at
/// a few other keys and drops one whose bucket is full. No clean-up call and no background
/// thread is needed, and the table shrinks after a spike. A tracked `u64` takes 47 to 94
/// bytes.
///
/// If new keys come faster than buckets fill, as in an attack with random keys, at most
/// [`max_keys`](Self::max_keys) are kept. Each further key replaces another one: of eight
/// keys, the one that would be full first. The replaced key gets a full bucket early. Keys
/// with waiters and keys with their own limit are never replaced.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use requeue::rate::{Keyed, Limit};
/// use requeue::testing::FakeClock;
///
/// let clock = FakeClock::new();
/// let logins = Keyed::<String>::with_clock(Limit::per_second(1.0), 2, clock.clone());
/// assert!(logins.allow("ann"));
/// assert!(logins.allow("ann"));
/// assert!(!logins.allow("ann"));
/// assert!(logins.allow("bob"));
/// clock.advance(Duration::from_secs(1));
/// assert!(logins.allow("ann"));
/// ```
pub struct Keyed<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    clock: AnyClock,
    timeline: Timeline,
    hasher: RandomState,
    buckets: Mutex<Buckets<K>>,
}

/// How many keys are kept by default.
const DEFAULT_MAX_KEYS: usize = 1 << 20;

impl<K> Keyed<K> {
    /// Creates a limiter that allows each key `limit` events per second, and `burst` at once.
    pub fn new(limit: Limit, burst: u32) -> Self {
        Self::on(AnyClock::System, Rate { limit, burst })
    }

    /// Creates a limiter that uses `clock`.
    pub fn with_clock(limit: Limit, burst: u32, clock: impl Clock) -> Self {
        Self::on(AnyClock::new(clock), Rate { limit, burst })
    }

    fn on(clock: AnyClock, rate: Rate) -> Self {
        let timeline = Timeline::from(clock.now());
        let hasher = RandomState::default();
        let buckets = Mutex::new(Buckets::new(rate, DEFAULT_MAX_KEYS));
        Self { shared: Arc::new(Shared { clock, timeline, hasher, buckets }) }
    }

    /// Sets how many keys are kept at most; 1,048,576 by default, and at least 1.
    ///
    /// If there are more keys already, each following call removes one.
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue::rate::{Keyed, Limit};
    ///
    /// let keyed = Keyed::new(Limit::ZERO, 1).max_keys(100);
    /// for address in 0..1000 {
    ///     assert!(keyed.allow(&address));
    /// }
    /// assert_eq!(keyed.tracked(), 100);
    /// ```
    #[must_use = "this returns the limiter"]
    pub fn max_keys(self, keys: usize) -> Self {
        self.lock().set_max(keys.max(1));
        self
    }

    /// Returns the limit of keys that do not have their own.
    pub fn limit(&self) -> Limit {
        self.lock().rate().limit
    }

    /// Returns the burst of keys that do not have their own.
    pub fn burst(&self) -> u32 {
        self.lock().rate().burst
    }

    /// Changes the limit of all keys that do not have their own.
    ///
    /// Reservations keep their times. Callers in line are served as by
    /// [`Limiter::set_limit`](super::Limiter::set_limit). The call visits every tracked key.
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue::rate::{Keyed, Limit};
    ///
    /// let keyed = Keyed::new(Limit::ZERO, 1);
    /// assert!(keyed.allow(&"ann"));
    /// assert!(!keyed.allow(&"ann"));
    /// keyed.set_limit(Limit::INF);
    /// assert!(keyed.allow(&"ann"));
    /// ```
    pub fn set_limit(&self, limit: Limit) {
        self.change_rate(|rate| Rate { limit, ..rate });
    }

    /// Changes the burst of all keys that do not have their own.
    ///
    /// A full bucket stays full, also if the new burst is larger. Other buckets gain no tokens.
    /// The call visits every tracked key.
    pub fn set_burst(&self, burst: u32) {
        self.change_rate(|rate| Rate { burst, ..rate });
    }

    fn change_rate(&self, change: impl FnOnce(Rate) -> Rate) {
        let now = self.now();
        let wakes = self.lock().change_rate(now, change);
        wakes.wake();
    }

    /// Returns how many keys are kept: those whose buckets are not full, and a few others.
    pub fn tracked(&self) -> usize {
        self.lock().len()
    }

    /// Under this lock runs no user code except `Hash`, `Eq` and `Clone` of the key.
    fn lock(&self) -> MutexGuard<'_, Buckets<K>> {
        self.shared.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Moment {
        self.shared.timeline.moment(self.shared.clock.now())
    }
}

impl<K: Eq + Hash> Keyed<K> {
    /// Takes a token of `key` if one is available. Returns whether it did.
    pub fn allow<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        self.allow_n(key, 1)
    }

    /// Takes `n` tokens of `key` if that many are available. Returns whether it did.
    ///
    /// All or none: a refusal changes nothing. Refused while callers wait for the same key.
    pub fn allow_n<Q>(&self, key: &Q, n: u32) -> bool
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        self.take(self.lookup(key), Request::at_once(At::Now(self.now()), n)).is_ok()
    }

    /// Returns how long a [`reserve`](Self::reserve) would have to wait, without taking a
    /// token.
    ///
    /// # Errors
    ///
    /// As [`reserve_n`](Self::reserve_n).
    pub fn peek<Q>(&self, key: &Q) -> Result<Duration, ReserveError>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.peek_n(key, 1)
    }

    /// Returns how long a reservation of `n` tokens would have to wait, without taking them.
    ///
    /// # Errors
    ///
    /// As [`reserve_n`](Self::reserve_n).
    pub fn peek_n<Q>(&self, key: &Q, n: u32) -> Result<Duration, ReserveError>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let (lookup, now) = (self.lookup(key), self.now());
        let (bucket, rate, at) = self.lock().get(lookup, now);
        match bucket.reserve(rate, Request::patient(At::Now(at), n)) {
            Ok((_, grant)) => Ok(duration(grant.ready.since(now))),
            Err(refusal) => Err(ReserveError::new(refusal, n)),
        }
    }

    /// Returns the number of tokens of `key`; negative while tokens are reserved.
    ///
    /// A snapshot; do not base decisions on it.
    pub fn tokens<Q>(&self, key: &Q) -> f64
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let (lookup, now) = (self.lookup(key), self.now());
        let (bucket, rate, at) = self.lock().get(lookup, now);
        bucket.tokens(rate, At::Now(at))
    }

    /// Takes a token of `key`, now or from the future, and returns when it may be used.
    ///
    /// See [`reserve_n`](Self::reserve_n).
    ///
    /// # Errors
    ///
    /// As [`reserve_n`](Self::reserve_n).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use requeue::rate::{Keyed, Limit};
    /// use requeue::testing::FakeClock;
    ///
    /// let keyed = Keyed::with_clock(Limit::per_second(10.0), 1, FakeClock::new());
    /// assert_eq!(keyed.reserve(&"key")?.delay(), Duration::ZERO);
    /// let second = keyed.reserve(&"key")?;
    /// assert_eq!(second.delay(), Duration::from_millis(100));
    /// second.cancel(); // too long
    /// assert_eq!(keyed.peek(&"key"), Ok(Duration::from_millis(100)));
    /// # Ok::<(), requeue::rate::ReserveError>(())
    /// ```
    pub fn reserve<Q>(&self, key: &Q) -> Result<KeyedReservation<K>, ReserveError>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        self.reserve_n(key, 1)
    }

    /// Takes `n` tokens of `key`, now or from the future, and returns when they may be used.
    ///
    /// Wait for [`KeyedReservation::delay`] and act, or give the tokens back with
    /// [`KeyedReservation::cancel`]. Dropping a reservation keeps the tokens taken.
    ///
    /// A reservation does not line up. Callers of [`wait_n`](Self::wait_n) that are in line,
    /// but not the first, are served after it.
    ///
    /// # Errors
    ///
    /// [`ReserveError::ExceedsBurst`] if `n` is more than the burst of `key`, and
    /// [`ReserveError::Never`] if the tokens never come. Then nothing is taken.
    pub fn reserve_n<Q>(
        &self,
        key: &Q,
        n: u32,
    ) -> Result<KeyedReservation<K>, ReserveError>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        // Before tokens are taken: `to_key` may panic.
        let owned = key.to_key();
        match self.take(self.lookup(key), Request::patient(At::Now(self.now()), n)) {
            Ok(grant) => Ok(KeyedReservation::new(self.clone(), owned, grant)),
            Err(refusal) => Err(ReserveError::new(refusal, n)),
        }
    }

    /// Takes one token for good and returns how long to wait for it, if it ever comes.
    pub(crate) fn take_one(&self, key: &K) -> Option<Duration>
    where
        K: Clone,
    {
        let now = self.now();
        let grant =
            self.take(self.lookup(key), Request::patient(At::Now(now), 1)).ok()?;
        Some(duration(grant.ready.since(now)))
    }

    /// Returns the limit of `key`.
    pub fn key_limit<Q>(&self, key: &Q) -> Limit
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.rate_of(key).limit
    }

    /// Returns the burst of `key`.
    pub fn key_burst<Q>(&self, key: &Q) -> u32
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.rate_of(key).burst
    }

    /// Gives `key` its own limit and burst, until they are [reset](Self::reset_key_limit).
    ///
    /// A full bucket stays full. Any other gains no tokens. The key is kept in memory, and
    /// does not make room for others.
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue::rate::{Keyed, Limit};
    ///
    /// let uploads = Keyed::<String>::new(Limit::per_second(1.0), 2);
    /// uploads.set_key_limit("premium", Limit::per_second(100.0), 20);
    /// assert_eq!((0..50).filter(|_| uploads.allow("premium")).count(), 20);
    /// assert_eq!((0..50).filter(|_| uploads.allow("ann")).count(), 2);
    /// ```
    pub fn set_key_limit<Q>(&self, key: &Q, limit: Limit, burst: u32)
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        self.set_own_rate(key, Some(Rate { limit, burst }));
    }

    /// Gives `key` the limit and burst of all other keys. Returns whether it had its own.
    pub fn reset_key_limit<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        self.set_own_rate(key, None)
    }

    fn set_own_rate<Q>(&self, key: &Q, rate: Option<Rate>) -> bool
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        let (lookup, now) = (self.lookup(key), self.now());
        let effect = self.lock().set_own_rate(lookup, rate, now);
        finish(effect)
    }

    fn rate_of<Q>(&self, key: &Q) -> Rate
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let lookup = self.lookup(key);
        let (_, rate, _) = self.lock().get(lookup, Moment::START);
        rate
    }

    fn cancel(&self, key: &K, claim: Claim) {
        let (lookup, now) = (self.lookup(key), self.now());
        let effect = self.lock().cancel(lookup, claim, now);
        finish(effect);
    }

    /// Hashes `key`, outside of the lock.
    fn lookup<'a, Q>(&'a self, key: &'a Q) -> Lookup<'a, Q>
    where
        Q: Hash + ?Sized,
    {
        let hasher = &self.shared.hasher;
        Lookup { key, hash: hasher.hash_one(key), hasher }
    }

    fn take<Q>(&self, lookup: Lookup<'_, Q>, request: Request) -> Result<Grant, Refusal>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        let effect = self.lock().take(lookup, request);
        finish(effect)
    }
}

/// Wakes waiters and drops a removed key, after the lock is released.
fn finish<K, R>(Effect { result, wakes, removed }: Effect<K, R>) -> R {
    wakes.wake();
    drop(removed);
    result
}

impl<K> Clone for Keyed<K> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<K> fmt::Debug for Keyed<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyed")
            .field("limit", &self.limit())
            .field("burst", &self.burst())
            .field("tracked", &self.tracked())
            .finish()
    }
}

#[cfg(test)]
mod tests;
