//! A limiter for each key.
//!
//! # Invariants
//!
//! 1. A key that is not in the table has a full bucket. So a key whose bucket is full can
//!    leave the table, and nobody can tell.
//! 2. Time does not go back: a call counts as made at the latest time that any call has
//!    seen. So a key that was full when it left is full for every later call.
//! 3. Keys are dropped outside the lock.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use hashbrown::hash_table::Entry;

use super::bucket::{Ask, At, Bucket, Claim, Grant, Patience, Refusal, Terms};
use super::error::{ReserveError, WaitError};
use super::limit::Limit;
use super::limiter::refused;
use super::moment::{FOREVER, Moment, Timeline, duration};
use super::table::{self, Table};
use crate::clock::{AnyClock, Clock};

/// A [`Limiter`](super::Limiter) for each key: so much for every user, address or tenant.
///
/// Every key has a token bucket of its own, all with the same limit and burst, and a key
/// that was never seen has a full one. Clones share the buckets.
///
/// Calls take a key by reference, in any form that it can be borrowed as: those of a
/// `Keyed<String>` take a `&str`. It is cloned only if its bucket is to be kept.
///
/// # Memory
///
/// A key whose bucket has filled up again is as good as one that was never seen. So such
/// keys leave by themselves: every call looks at a few buckets further on and drops one
/// that is full. Nobody has to clean up, no thread does, and the table shrinks after a
/// spike. A tracked `u64` takes about 55 bytes.
///
/// If keys come faster than they fill up, as in an attack with ever new keys, at most
/// [`max_keys`](Self::max_keys) are kept. One more then pushes out another: of eight keys
/// the one that would have been full first. That key gets a full bucket early.
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

struct Keys<K> {
    table: Table<Slot<K>>,
    /// The latest time that a call has seen (invariant 2).
    latest: Moment,
    max: usize,
}

/// A bucket that is not full. When its latest event is due follows from the debt, so that
/// is not stored.
struct Slot<K> {
    key: K,
    tokens: f64,
    last: Moment,
}

impl<K: Eq + Hash> table::Slot for Slot<K> {
    type Key = K;

    #[inline]
    fn key(&self) -> &K {
        &self.key
    }
}

/// How many buckets of the table a call for a known key looks at for a key that can leave.
const GLANCE: usize = 1;

/// How many a call looks at that brought a new key: enough to find one for each that comes,
/// as long as one bucket in eight holds a key that can leave.
const SWEEP: usize = 8;

/// How many keys are looked at for one to push out of a full table.
const SAMPLE: usize = 8;

/// How many keys are kept unless told otherwise.
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
        let keys =
            Keys { table: Table::new(), latest: Moment::START, max: DEFAULT_MAX_KEYS };
        let hasher = RandomState::default();
        let keys = Mutex::new(keys);
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
        self.lock().max = keys.max(1);
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
        self.lock().table.len()
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
        self.take(key, n, Patience::None).is_ok()
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
        let Shared { hasher, terms, .. } = &*self.shared;
        let (hash, now) = (hasher.hash_one(key), self.moment());
        let keys = self.lock();
        let at = now.max(keys.latest);
        let slot = keys.table.find(hash, key);
        let bucket = slot.map_or_else(|| full(*terms, at), |slot| slot.bucket(*terms));
        drop(keys);
        match bucket.reserve(*terms, patient(at, n)) {
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

    /// Takes `n` tokens of `key`, now or from the future, and says how long to wait for
    /// them.
    ///
    /// They stay taken; [`wait_n`](Self::wait_n) gives them back if it is dropped.
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
        match self.take(key, n, Patience::UpTo(FOREVER)) {
            Ok((now, grant)) => Ok(duration(grant.ready.since(now))),
            Err(refusal) => Err(refused(refusal, n)),
        }
    }

    /// Waits until a token of `key` may be used, and takes it.
    ///
    /// Callers for one key are served in the order in which they came.
    ///
    /// # Cancel safety
    ///
    /// A future that is dropped before it is ready gives its token back, as far as nobody
    /// lined up behind it.
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

    /// Waits until `n` tokens of `key` may be used, and takes them.
    ///
    /// # Cancel safety
    ///
    /// As [`wait`](Self::wait).
    ///
    /// # Errors
    ///
    /// At once, and with nothing taken: [`WaitError::ExceedsBurst`] if `n` is more than
    /// the burst, [`WaitError::Never`] if the tokens never come.
    pub async fn wait_n<Q>(&self, key: &Q, n: u32) -> Result<(), WaitError>
    where
        K: Borrow<Q>,
        Q: ToOwned<Owned = K> + Eq + Hash + ?Sized,
    {
        let Some(place) = self.line_up(key, n)? else { return Ok(()) };
        while self.shared.clock.now() < place.until {
            self.shared.clock.timer(place.until).await;
        }
        place.use_up();
        Ok(())
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
        let Some(place) = self.line_up(key, n)? else { return Ok(()) };
        self.shared.clock.sleep_until(place.until);
        place.use_up();
        Ok(())
    }

    /// Takes the tokens; `None` if they may be used at once.
    fn line_up<'a, Q>(
        &'a self,
        key: &'a Q,
        n: u32,
    ) -> Result<Option<Place<'a, K, Q>>, WaitError>
    where
        K: Borrow<Q>,
        Q: ToOwned<Owned = K> + Eq + Hash + ?Sized,
    {
        let (now, grant) =
            self.take(key, n, Patience::UpTo(FOREVER)).map_err(|r| refused(r, n))?;
        if grant.ready <= now {
            return Ok(None);
        }
        let until = self.shared.timeline.instant(grant.ready);
        Ok(Some(Place { keyed: self, key, until, claim: grant.claim }))
    }

    /// Takes tokens as of now, and says what time that is.
    fn take<Q>(
        &self,
        key: &Q,
        n: u32,
        patience: Patience,
    ) -> Result<(Moment, Grant), Refusal>
    where
        K: Borrow<Q>,
        Q: ToOwned<Owned = K> + Eq + Hash + ?Sized,
    {
        let Shared { hasher, terms, .. } = &*self.shared;
        let (hash, now) = (hasher.hash_one(key), self.moment());
        let (result, gone) = {
            let mut keys = self.lock();
            let at = keys.pass(now);
            let bucket = |bucket: &Bucket| {
                bucket.reserve(*terms, Ask { at: At::Exactly(at), n, patience })
            };
            let known = keys.table.len();
            let result = keys.update(hash, key, (*terms, hasher), bucket);
            let sweep = if keys.table.len() > known { SWEEP } else { GLANCE };
            let gone = keys.let_go(key, *terms, sweep);
            keys.table.shrink(hasher);
            (result, gone)
        };
        drop(gone); // invariant 3
        result.map(|grant| (now, grant))
    }

    fn give_back<Q>(&self, key: &Q, claim: Claim)
    where
        K: Borrow<Q>,
        Q: ToOwned<Owned = K> + Eq + Hash + ?Sized,
    {
        let Shared { hasher, terms, .. } = &*self.shared;
        let (hash, now) = (hasher.hash_one(key), self.moment());
        let mut keys = self.lock();
        let at = At::Exactly(keys.pass(now));
        // A key that has left is full: there is nothing to give back to.
        if let Entry::Occupied(mut slot) = keys.table.entry(hash, key, hasher) {
            let slot = slot.get_mut();
            if let Some(next) = slot.bucket(*terms).cancel(*terms, claim, at) {
                slot.set(next);
            }
        }
    }
}

impl<K> Keys<K> {
    /// Notes that it is `now`, and gives the time that counts (invariant 2).
    fn pass(&mut self, now: Moment) -> Moment {
        self.latest = self.latest.max(now);
        self.latest
    }
}

impl<K: Eq + Hash> Keys<K> {
    /// Takes out one key that is full or above the bound, if the walk meets one.
    ///
    /// Not `key`, which has just been asked for: a key in use must not be forgotten at
    /// each use.
    fn let_go<Q>(&mut self, key: &Q, terms: Terms, sweep: usize) -> Option<Slot<K>>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let now = self.latest;
        if self.table.len() > self.max {
            let rank = |slot: &Slot<K>| (slot.key.borrow() == key, slot.full_at(terms));
            return self.table.take_first_of(SAMPLE, rank);
        }
        // Invariant 1.
        self.table.take_stale(sweep, |slot| slot.bucket(terms).is_surely_full(terms, now))
    }

    /// Does with the bucket of `key` what `step` says.
    fn update<Q>(
        &mut self,
        hash: u64,
        key: &Q,
        (terms, hasher): (Terms, &RandomState),
        step: impl FnOnce(&Bucket) -> Result<(Option<Bucket>, Grant), Refusal>,
    ) -> Result<Grant, Refusal>
    where
        K: Borrow<Q>,
        Q: ToOwned<Owned = K> + Eq + Hash + ?Sized,
    {
        let entry = self.table.entry(hash, key, hasher);
        let bucket = match &entry {
            Entry::Occupied(slot) => slot.get().bucket(terms),
            Entry::Vacant(_) => full(terms, self.latest),
        };
        let (next, grant) = step(&bucket)?;
        match (next, entry) {
            (Some(next), Entry::Occupied(mut slot)) => slot.get_mut().set(next),
            (Some(next), Entry::Vacant(room)) => {
                room.insert(Slot::new(key.to_owned(), next));
            }
            (None, _) => {}
        }
        Ok(grant)
    }
}

impl<K> Slot<K> {
    fn new(key: K, bucket: Bucket) -> Self {
        let (tokens, last) = bucket.level();
        Self { key, tokens, last }
    }

    #[inline]
    fn bucket(&self, terms: Terms) -> Bucket {
        Bucket::in_debt(self.tokens, self.last, terms)
    }

    #[inline]
    fn set(&mut self, bucket: Bucket) {
        (self.tokens, self.last) = bucket.level();
    }

    fn full_at(&self, terms: Terms) -> Moment {
        let missing = f64::from(terms.burst) - self.tokens;
        self.last.plus(terms.limit.time_for(missing))
    }
}

/// The bucket of a key that is not in the table (invariant 1).
fn full(terms: Terms, now: Moment) -> Bucket {
    Bucket::new(terms.burst, now)
}

fn patient(at: Moment, n: u32) -> Ask {
    Ask { at: At::Exactly(at), n, patience: Patience::UpTo(FOREVER) }
}

/// A place in the line of those who wait for a key. Who leaves it gives the tokens back.
struct Place<'a, K, Q>
where
    K: Borrow<Q> + Eq + Hash,
    Q: ToOwned<Owned = K> + Eq + Hash + ?Sized,
{
    keyed: &'a Keyed<K>,
    key: &'a Q,
    until: Instant,
    claim: Option<Claim>,
}

impl<K, Q> Place<'_, K, Q>
where
    K: Borrow<Q> + Eq + Hash,
    Q: ToOwned<Owned = K> + Eq + Hash + ?Sized,
{
    fn use_up(mut self) {
        self.claim = None;
    }
}

impl<K, Q> Drop for Place<'_, K, Q>
where
    K: Borrow<Q> + Eq + Hash,
    Q: ToOwned<Owned = K> + Eq + Hash + ?Sized,
{
    fn drop(&mut self) {
        if let Some(claim) = self.claim {
            self.keyed.give_back(self.key, claim);
        }
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
