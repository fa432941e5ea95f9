//! A limiter for each key.
//!
//! The buckets are in `keyed/keys.rs`; this file has the lock, the clock and the waits.
//! Keys that leave are dropped after the lock is released.

mod keys;

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;

use super::bucket::{Ask, At, Claim, Grant, Patience, Refusal, Terms};
use super::error::{ReserveError, WaitError};
use super::limit::Limit;
use super::limiter::refused;
use super::line::{Line, Look, Ticket};
use super::moment::{FOREVER, Moment, Timeline, duration};
use super::waiting::{Host, Waiting};
use crate::clock::{AnyClock, Clock};
use crate::wake::{Wake, Wakes};
use keys::{BucketMeter, Keys, Lookup};

/// A [`Limiter`](super::Limiter) for each key, such as a user, an address or a tenant.
///
/// Each key has its own token bucket, with the same limit and burst for all. The bucket of
/// an unknown key is full. Clones share the buckets.
///
/// Calls take a key by reference, in any form that it can be borrowed as: those of a
/// `Keyed<String>` take a `&str`. It is cloned only if its bucket is to be kept.
///
/// # Memory
///
/// A key whose bucket has filled up again behaves like a key that was never seen, so it
/// need not be kept. Every call looks at a few more buckets and drops one that is full. No
/// clean-up call and no thread is needed, and the table shrinks after a spike. A tracked
/// `u64` takes about 55 bytes.
///
/// If keys come faster than they fill up, as in an attack with ever new keys, at most
/// [`max_keys`](Self::max_keys) are kept. One more then pushes out another: of eight keys
/// the one that would have been full first. That key gets a full bucket early. Keys with
/// waiters are never pushed out; each of them takes the memory of its line.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use requeue::rate::{Keyed, Limit};
/// use requeue::testing::FakeClock;
///
/// let clock = FakeClock::new();
/// let logins = Keyed::with_clock(Limit::per_second(1.0), 2, clock.clone());
/// assert!(logins.allow(&"ann"));
/// assert!(logins.allow(&"ann"));
/// assert!(!logins.allow(&"ann"));
/// assert!(logins.allow(&"bob"));
/// clock.advance(Duration::from_secs(1));
/// assert!(logins.allow(&"ann"));
///
/// let hosts = Keyed::<String>::new(Limit::per_second(1.0), 2);
/// assert!(hosts.allow("example.org"));
/// ```
pub struct Keyed<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    clock: AnyClock,
    timeline: Timeline,
    terms: Terms,
    hasher: RandomState,
    keys: Mutex<Keys<K>>,
}

/// How many keys are kept by default.
const DEFAULT_MAX_KEYS: usize = 1 << 20;

impl<K> Keyed<K> {
    /// Makes a limiter that lets `limit` events a second happen for each key, and `burst`
    /// at once.
    ///
    /// Any number will do, as for [`Limiter::new`](super::Limiter::new).
    pub fn new(limit: Limit, burst: u32) -> Self {
        Self::on(AnyClock::System, Terms { limit, burst })
    }

    /// Makes a limiter that asks `clock` for the time.
    pub fn with_clock(limit: Limit, burst: u32, clock: impl Clock) -> Self {
        Self::on(AnyClock::new(clock), Terms { limit, burst })
    }

    fn on(clock: AnyClock, terms: Terms) -> Self {
        let timeline = Timeline::from(clock.now());
        let hasher = RandomState::default();
        let keys = Mutex::new(Keys::new(DEFAULT_MAX_KEYS));
        Self { shared: Arc::new(Shared { clock, timeline, terms, hasher, keys }) }
    }

    /// Keeps at most `keys` keys whose buckets are not full; 1,048,576 unless told
    /// otherwise.
    ///
    /// At least one is kept. Keys above a new bound leave one by one, with the calls that
    /// follow.
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
    #[must_use = "the limiter comes back"]
    pub fn max_keys(self, keys: usize) -> Self {
        self.lock().set_max(keys.max(1));
        self
    }

    /// The limit of each key.
    pub fn limit(&self) -> Limit {
        self.shared.terms.limit
    }

    /// The burst of each key.
    pub fn burst(&self) -> u32 {
        self.shared.terms.burst
    }

    /// How many keys are kept at present; those whose buckets are full need not be.
    pub fn tracked(&self) -> usize {
        self.lock().len()
    }

    /// Under this lock runs no user code but `Hash`, `Eq` and `Clone` of the key.
    fn lock(&self) -> MutexGuard<'_, Keys<K>> {
        self.shared.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moment(&self) -> Moment {
        self.shared.timeline.moment(self.shared.clock.now())
    }
}

impl<K: Eq + Hash> Keyed<K> {
    /// Takes a token of `key` if there is one, and says whether.
    pub fn allow<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: ToOwned<Owned = K> + Eq + Hash + ?Sized,
    {
        self.allow_n(key, 1)
    }

    /// Takes `n` tokens of `key` if there are that many, and says whether.
    pub fn allow_n<Q>(&self, key: &Q, n: u32) -> bool
    where
        K: Borrow<Q>,
        Q: ToOwned<Owned = K> + Eq + Hash + ?Sized,
    {
        let at = At::Now(self.moment());
        self.take(self.lookup(key), Ask { at, n, patience: Patience::None }).is_ok()
    }

    /// How long until a token of `key` can be had, without taking it.
    ///
    /// # Errors
    ///
    /// As [`reserve_n`](Self::reserve_n).
    pub fn peek<Q>(&self, key: &Q) -> Result<Duration, ReserveError>
    where
        K: Borrow<Q>,
        Q: ToOwned<Owned = K> + Eq + Hash + ?Sized,
    {
        self.peek_n(key, 1)
    }

    /// How long until `n` tokens of `key` can be had, without taking them.
    ///
    /// # Errors
    ///
    /// As [`reserve_n`](Self::reserve_n).
    pub fn peek_n<Q>(&self, key: &Q, n: u32) -> Result<Duration, ReserveError>
    where
        K: Borrow<Q>,
        Q: ToOwned<Owned = K> + Eq + Hash + ?Sized,
    {
        let (lookup, now) = (self.lookup(key), self.moment());
        let (bucket, at) = self.lock().bucket(lookup, now);
        let ask = Ask { at: At::Now(at), n, patience: Patience::UpTo(FOREVER) };
        match bucket.reserve(self.shared.terms, ask) {
            Ok((_, grant)) => Ok(duration(grant.ready.since(now))),
            Err(refusal) => Err(refused(refusal, n)),
        }
    }

    /// Takes a token of `key`, now or from the future, and says how long to wait for it.
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
    /// assert_eq!(keyed.reserve(&"key"), Ok(Duration::ZERO));
    /// assert_eq!(keyed.reserve(&"key"), Ok(Duration::from_millis(100)));
    /// assert_eq!(keyed.reserve(&"key"), Ok(Duration::from_millis(200)));
    /// ```
    pub fn reserve<Q>(&self, key: &Q) -> Result<Duration, ReserveError>
    where
        K: Borrow<Q>,
        Q: ToOwned<Owned = K> + Eq + Hash + ?Sized,
    {
        self.reserve_n(key, 1)
    }

    /// Takes `n` tokens of `key`, now or from the future, and returns how long to wait for
    /// them.
    ///
    /// The tokens stay taken. Callers of [`wait_n`](Self::wait_n) that are in line but not
    /// the first are served after them.
    ///
    /// # Errors
    ///
    /// [`ReserveError::ExceedsBurst`] if `n` is more than the burst, and
    /// [`ReserveError::Never`] if the tokens never come. Nothing is taken then.
    pub fn reserve_n<Q>(&self, key: &Q, n: u32) -> Result<Duration, ReserveError>
    where
        K: Borrow<Q>,
        Q: ToOwned<Owned = K> + Eq + Hash + ?Sized,
    {
        let now = self.moment();
        let ask = Ask { at: At::Now(now), n, patience: Patience::UpTo(FOREVER) };
        match self.take(self.lookup(key), ask) {
            Ok(grant) => Ok(duration(grant.ready.since(now))),
            Err(refusal) => Err(refused(refusal, n)),
        }
    }

    /// Waits for a token of `key` and takes it.
    ///
    /// Callers for one key line up in the order in which their futures are first polled.
    /// A caller that gives up costs the ones behind it nothing; see
    /// [`Limiter::wait`](super::Limiter::wait).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line. The token of the first caller goes back, and
    /// the next caller takes its place.
    ///
    /// # Errors
    ///
    /// As [`wait_n`](Self::wait_n).
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue::rate::{Keyed, Limit, WaitError};
    ///
    /// # futures_executor::block_on(async {
    /// let keyed = Keyed::new(Limit::per_second(100.0), 1);
    /// for _ in 0..3 {
    ///     keyed.wait(&"key").await?; // at most one of these in 10 ms
    /// }
    /// # Ok::<(), WaitError>(())
    /// # }).unwrap();
    /// ```
    pub async fn wait<Q>(&self, key: &Q) -> Result<(), WaitError>
    where
        K: Borrow<Q>,
        Q: ToOwned<Owned = K> + Eq + Hash + ?Sized,
    {
        self.wait_n(key, 1).await
    }

    /// Waits for `n` tokens of `key` and takes them.
    ///
    /// # Cancel safety
    ///
    /// As [`wait`](Self::wait).
    ///
    /// # Errors
    ///
    /// [`WaitError::ExceedsBurst`] if `n` is more than the burst, and [`WaitError::Never`]
    /// if the tokens never come. Both are returned at once, and nothing is taken.
    pub async fn wait_n<Q>(&self, key: &Q, n: u32) -> Result<(), WaitError>
    where
        K: Borrow<Q>,
        Q: ToOwned<Owned = K> + Eq + Hash + ?Sized,
    {
        let Some(waiting) = self.line_up(key, n) else { return Ok(()) };
        waiting.await.map(drop).map_err(|refusal| refused(refusal, n).into())
    }

    /// Blocks this thread until a token of `key` may be used, and takes it.
    ///
    /// # Errors
    ///
    /// As [`wait_n`](Self::wait_n).
    pub fn wait_blocking<Q>(&self, key: &Q) -> Result<(), WaitError>
    where
        K: Borrow<Q>,
        Q: ToOwned<Owned = K> + Eq + Hash + ?Sized,
    {
        self.wait_n_blocking(key, 1)
    }

    /// Blocks this thread until `n` tokens of `key` may be used, and takes them.
    ///
    /// # Errors
    ///
    /// As [`wait_n`](Self::wait_n).
    pub fn wait_n_blocking<Q>(&self, key: &Q, n: u32) -> Result<(), WaitError>
    where
        K: Borrow<Q>,
        Q: ToOwned<Owned = K> + Eq + Hash + ?Sized,
    {
        let Some(waiting) = self.line_up(key, n) else { return Ok(()) };
        waiting.block().map(drop).map_err(|refusal| refused(refusal, n).into())
    }

    /// Takes the tokens if they are available, or prepares a wait for them.
    pub(super) fn line_up<'a, Q>(
        &'a self,
        key: &'a Q,
        n: u32,
    ) -> Option<Waiting<KeyHost<'a, K, Q>>>
    where
        K: Borrow<Q>,
        Q: ToOwned<Owned = K> + Eq + Hash + ?Sized,
    {
        let lookup = self.lookup(key);
        let at = At::Now(self.moment());
        if self.take(lookup, Ask { at, n, patience: Patience::None }).is_ok() {
            return None;
        }
        let ask = Ask { at, n, patience: Patience::UpTo(FOREVER) };
        Some(Waiting::new(KeyHost { keyed: self, lookup }, ask))
    }

    /// Hashes `key`, outside the lock.
    fn lookup<'a, Q>(&'a self, key: &'a Q) -> Lookup<'a, Q>
    where
        Q: Hash + ?Sized,
    {
        let Shared { hasher, terms, .. } = &*self.shared;
        Lookup { key, hash: hasher.hash_one(key), hasher, terms: *terms }
    }

    /// Takes tokens, if `ask` can wait for them.
    fn take<Q>(&self, lookup: Lookup<'_, Q>, ask: Ask) -> Result<Grant, Refusal>
    where
        K: Borrow<Q>,
        Q: ToOwned<Owned = K> + Eq + Hash + ?Sized,
    {
        let (result, wakes, gone) = self.lock().take(lookup, ask);
        drop(gone);
        wakes.wake();
        result
    }
}

/// The line of one key.
pub(super) struct KeyHost<'a, K, Q: ?Sized> {
    keyed: &'a Keyed<K>,
    lookup: Lookup<'a, Q>,
}

impl<K, Q> KeyHost<'_, K, Q>
where
    K: Borrow<Q> + Eq + Hash,
    Q: ToOwned<Owned = K> + Eq + Hash + ?Sized,
{
    fn with_line<R>(
        &self,
        now: Moment,
        step: impl FnOnce(&mut Line<Option<Claim>>, &mut BucketMeter<'_>) -> R,
    ) -> R {
        let (result, gone) = self.keyed.lock().with_line(self.lookup, now, step);
        drop(gone);
        result
    }
}

impl<K, Q> Host for KeyHost<'_, K, Q>
where
    K: Borrow<Q> + Eq + Hash,
    Q: ToOwned<Owned = K> + Eq + Hash + ?Sized,
{
    type Claim = Option<Claim>;

    fn clock(&self) -> &AnyClock {
        &self.keyed.shared.clock
    }

    fn timeline(&self) -> Timeline {
        self.keyed.shared.timeline
    }

    fn join(&self, ask: Ask, wake: Wake) -> (Look<Option<Claim>>, Wakes) {
        self.with_line(ask.at.given(), |line, meter| line.join(meter, ask, wake))
    }

    fn look(
        &self,
        ticket: Ticket,
        now: Moment,
        wake: Wake,
    ) -> (Look<Option<Claim>>, Wakes) {
        self.with_line(now, |line, meter| line.look(meter, ticket, now, wake))
    }

    fn leave(&self, ticket: Ticket, now: Moment) -> Wakes {
        self.with_line(now, |line, meter| line.leave(meter, ticket, now))
    }
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
