//! The buckets of a keyed limiter, in a hash table with bounded size.
//!
//! Nothing here locks or reads a clock. Hashes are arguments, so that callers compute them
//! outside of their lock.
//!
//! # Eviction
//!
//! A key whose bucket is full behaves like a key that was never seen. Each call looks at a
//! few buckets, in the order of the table, and removes one that is full. If the table is
//! above its bound, it removes a key that is not full: of the next few, the one that would be
//! full first.
//!
//! # Invariants
//!
//! 1. A key that is not in the table has a full bucket.
//! 2. Time does not go back: a call counts as made at the latest time that any call has
//!    seen. So a key that was full when it was removed is full for every later call.
//! 3. A key with waiters or with its own rate is never removed.
//! 4. Removed keys are returned to the caller, which drops them after the lock is released:
//!    `Drop` is user code.
//! 5. User code (`Hash`, `Eq`, `Clone`) runs before anything changes, so a panic leaves every
//!    bucket as it was. In particular `hashbrown` never hashes a key: [`Buckets::rehash`]
//!    computes all hashes before it moves anything.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::mem;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::{Entry, OccupiedEntry};

use crate::key::ToKey;
use crate::rate::bucket::{
    At, Claim, Grant, Patience, Rate, Refusal, Request, TokenBucket,
};
use crate::rate::line::{Held, TokenSource, WaiterLine};
use crate::rate::moment::Moment;
use crate::wake::Wakes;

pub(super) struct Buckets<K> {
    table: HashTable<KeyBucket<K>>,
    /// The rate of every key that does not have its own.
    rate: Rate,
    /// The latest time that a call has seen (invariant 2).
    latest: Moment,
    max: usize,
    /// Where the search for a key to remove continues.
    hand: usize,
}

/// The bucket of one key.
struct KeyBucket<K> {
    key: K,
    bucket: TokenBucket,
    /// What few keys have. A key that has it is never removed (invariant 3).
    extra: Option<Box<Extra>>,
}

struct Extra {
    /// The key's own rate.
    rate: Option<Rate>,
    line: WaiterLine<Option<Claim>>,
}

/// A key to look up.
pub(super) struct Lookup<'a, Q: ?Sized> {
    pub(super) key: &'a Q,
    pub(super) hash: u64,
    pub(super) hasher: &'a RandomState,
}

impl<Q: ?Sized> Clone for Lookup<'_, Q> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Q: ?Sized> Copy for Lookup<'_, Q> {}

/// The result of a call, with what must happen after the lock is released.
#[must_use = "wake the waiters and drop the key after the lock is released"]
pub(super) struct Effect<K, R> {
    pub(super) result: R,
    pub(super) wakes: Wakes,
    /// Invariant 4.
    pub(super) removed: Option<K>,
}

/// How many buckets a call for a known key looks at for a full one.
const SWEEP_KNOWN: usize = 1;

/// How many buckets a call for a new key looks at for a full one. It finds one for each new
/// key, as long as an eighth of the table is full buckets.
const SWEEP_NEW: usize = 8;

/// How many keys an eviction chooses from.
const SAMPLE: usize = 8;

/// The largest table that is not worth shrinking.
const SMALL: usize = 64;

impl<K> Buckets<K> {
    pub(super) fn new(rate: Rate, max: usize) -> Self {
        let table = HashTable::new();
        Self { table, rate, latest: Moment::START, max, hand: 0 }
    }

    pub(super) fn set_max(&mut self, max: usize) {
        self.max = max;
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns the rate of every key that does not have its own.
    pub(super) fn rate(&self) -> Rate {
        self.rate
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.table.allocation_size()
    }

    /// Records that it is `now`, and returns the effective time (invariant 2).
    fn pass(&mut self, now: Moment) -> Moment {
        self.latest = self.latest.max(now);
        self.latest
    }

    /// Changes the rate of every key that does not have its own.
    pub(super) fn change_rate(
        &mut self,
        now: Moment,
        change: impl FnOnce(Rate) -> Rate,
    ) -> Wakes {
        let now = self.pass(now);
        let (old, new) = (self.rate, change(self.rate));
        self.rate = new;
        let mut wakes = Wakes::default();
        for entry in self.table.iter_mut().filter(|entry| !entry.has_own_rate()) {
            wakes.append(entry.change_rate(old, new, now));
        }
        wakes
    }

    /// Removes one key: a full one, or any if there are too many. Keeps the key at `in_use`.
    fn sweep(&mut self, steps: usize, in_use: Option<usize>) -> Option<K> {
        let index = if self.table.len() > self.max {
            self.next_to_evict(in_use)
        } else {
            self.next_full(steps)
        };
        let entry = self.table.get_bucket_entry(index?).ok()?;
        Some(entry.remove().0.key)
    }

    /// Returns a full key within the next few steps.
    #[inline]
    fn next_full(&mut self, steps: usize) -> Option<usize> {
        let (rate, now) = (self.rate, self.latest);
        for _ in 0..steps {
            let index = self.step();
            if self.table.get_bucket(index).is_some_and(|entry| entry.may_go(rate, now)) {
                return Some(index);
            }
        }
        None
    }

    /// Returns the key of the next few that would be full first.
    ///
    /// The table is in the order of the hashes, so they are a random sample.
    #[cold]
    fn next_to_evict(&mut self, in_use: Option<usize>) -> Option<usize> {
        let (mut sampled, mut first) = (0, None);
        for _ in 0..self.table.num_buckets() {
            let index = self.step();
            let Some(entry) = self.table.get_bucket(index) else { continue };
            if entry.extra.is_some() || Some(index) == in_use {
                continue;
            }
            let candidate = (entry.bucket.full_at(self.rate), index);
            first = Some(first.map_or(candidate, |first| candidate.min(first)));
            sampled += 1;
            if sampled == SAMPLE {
                break;
            }
        }
        first.map(|(_, index)| index)
    }

    /// Moves the hand on by one bucket of the table, and returns it.
    #[inline]
    fn step(&mut self) -> usize {
        self.hand =
            if self.hand + 1 < self.table.num_buckets() { self.hand + 1 } else { 0 };
        self.hand
    }
}

impl<K: Eq + Hash> Buckets<K> {
    /// Returns the bucket of a key, its rate, and the effective time.
    pub(super) fn get<Q>(
        &self,
        lookup: Lookup<'_, Q>,
        now: Moment,
    ) -> (TokenBucket, Rate, Moment)
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let now = now.max(self.latest);
        let found =
            self.table.find(lookup.hash, |entry| entry.key.borrow() == lookup.key);
        match found {
            Some(entry) => (entry.bucket, entry.rate(self.rate), now),
            None => (full(self.rate, now), self.rate, now),
        }
    }

    /// Takes tokens of a key, if they come in time.
    pub(super) fn take<Q>(
        &mut self,
        lookup: Lookup<'_, Q>,
        request: Request,
    ) -> Effect<K, Result<Grant, Refusal>>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        let now = self.pass(request.at.given());
        let (rate, request) = (self.rate, Request { at: At::Now(now), ..request });
        let (result, wakes, in_use, steps) = match self.entry(lookup) {
            Entry::Occupied(mut entry) => {
                let (result, wakes) = entry.get_mut().take(rate, request);
                (result, wakes, Some(entry.bucket_index()), SWEEP_KNOWN)
            }
            Entry::Vacant(room) => match full(rate, now).reserve(rate, request) {
                Ok((Some(bucket), grant)) => {
                    let entry = room.insert(KeyBucket::new(lookup.key.to_key(), bucket));
                    (Ok(grant), Wakes::default(), Some(entry.bucket_index()), SWEEP_NEW)
                }
                Ok((None, grant)) => (Ok(grant), Wakes::default(), None, SWEEP_KNOWN),
                Err(refusal) => (Err(refusal), Wakes::default(), None, SWEEP_KNOWN),
            },
        };
        Effect { result, wakes, removed: self.sweep(steps, in_use) }
    }

    /// Gives back the tokens of a reservation.
    pub(super) fn cancel(
        &mut self,
        lookup: Lookup<'_, K>,
        claim: Claim,
        now: Moment,
    ) -> Effect<K, ()> {
        let (now, rate) = (self.pass(now), self.rate);
        let Entry::Occupied(mut entry) = self.entry(lookup) else {
            // The bucket is full, so nothing comes back.
            return Effect { result: (), wakes: Wakes::default(), removed: None };
        };
        let wakes = entry.get_mut().cancel(rate, claim, now);
        Effect { result: (), wakes, removed: tidy(entry, rate, now) }
    }

    /// Gives a key its own rate, or the rate of all others. Returns whether it had its own.
    pub(super) fn set_own_rate<Q>(
        &mut self,
        lookup: Lookup<'_, Q>,
        own: Option<Rate>,
        now: Moment,
    ) -> Effect<K, bool>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        let (now, default) = (self.pass(now), self.rate);
        let mut entry = self.entry_or_full(lookup, now);
        let (had_own, wakes) = entry.get_mut().set_own_rate(own, default, now);
        Effect { result: had_own, wakes, removed: tidy(entry, default, now) }
    }

    /// Runs `step` on the line of a key.
    pub(super) fn with_line<Q, R>(
        &mut self,
        lookup: Lookup<'_, Q>,
        now: Moment,
        step: impl FnOnce(&mut WaiterLine<Option<Claim>>, &mut BucketSource<'_>) -> R,
    ) -> (R, Option<K>)
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        let (now, rate) = (self.pass(now), self.rate);
        let mut entry = self.entry_or_full(lookup, now);
        let result = entry.get_mut().with_line(rate, step);
        (result, tidy(entry, rate, now))
    }

    /// Returns the entry of a key, which is inserted with a full bucket if it is new.
    fn entry_or_full<Q>(
        &mut self,
        lookup: Lookup<'_, Q>,
        now: Moment,
    ) -> OccupiedEntry<'_, KeyBucket<K>>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        let bucket = full(self.rate, now);
        match self.entry(lookup) {
            Entry::Occupied(entry) => entry,
            Entry::Vacant(room) => {
                room.insert(KeyBucket::new(lookup.key.to_key(), bucket))
            }
        }
    }

    /// Returns the entry of a key, after growing or shrinking the table.
    #[inline]
    fn entry<Q>(&mut self, lookup: Lookup<'_, Q>) -> Entry<'_, KeyBucket<K>>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let (len, buckets) = (self.table.len(), self.table.num_buckets());
        let is_sparse = buckets > SMALL && len < buckets / 8;
        if len == self.table.capacity() || is_sparse {
            self.rehash(lookup.hasher);
        }
        self.table.entry(
            lookup.hash,
            |entry| entry.key.borrow() == lookup.key,
            |_| unreachable!("the table has room for one more key"),
        )
    }

    /// Moves the keys to a table that has room for a quarter more (invariant 5).
    #[cold]
    fn rehash(&mut self, hasher: &RandomState) {
        let taken: Vec<u64> =
            self.table.iter().map(|entry| hasher.hash_one(&entry.key)).collect();
        let room = taken.len() + taken.len() / 4 + 1;
        let old = mem::replace(&mut self.table, HashTable::with_capacity(room));
        for (entry, hash) in old.into_iter().zip(taken) {
            self.table.insert_unique(hash, entry, |_| unreachable!("all keys fit"));
        }
    }
}

impl<K> KeyBucket<K> {
    fn new(key: K, bucket: TokenBucket) -> Self {
        Self { key, bucket, extra: None }
    }

    fn rate(&self, default: Rate) -> Rate {
        self.extra.as_ref().and_then(|extra| extra.rate).unwrap_or(default)
    }

    fn has_own_rate(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.rate.is_some())
    }

    /// Returns whether the key can be removed (invariants 1 and 3).
    #[inline]
    fn may_go(&self, rate: Rate, now: Moment) -> bool {
        self.extra.is_none() && self.bucket.is_surely_full(rate, now)
    }

    /// Takes tokens, if they come in time and no waiter comes first.
    #[inline]
    fn take(
        &mut self,
        default: Rate,
        request: Request,
    ) -> (Result<Grant, Refusal>, Wakes) {
        match &mut self.extra {
            None => {
                let mut source = BucketSource { bucket: &mut self.bucket, rate: default };
                (source.take(request), Wakes::default())
            }
            Some(_) => self.with_line(default, |line, source| {
                let wakes = line.settle(source, request.at.given());
                let waits = !matches!(request.patience, Patience::None);
                let may_take = waits || line.is_empty();
                (
                    if may_take { source.take(request) } else { Err(Refusal::NotNow) },
                    wakes,
                )
            }),
        }
    }

    fn cancel(&mut self, default: Rate, claim: Claim, now: Moment) -> Wakes {
        let rate = self.rate(default);
        let next = self.bucket.cancel(rate, claim, At::Now(now));
        self.bucket = next.unwrap_or(self.bucket);
        match &self.extra {
            None => Wakes::default(),
            Some(_) => {
                self.with_line(default, |line, source| line.tokens_came(source, now))
            }
        }
    }

    fn set_own_rate(
        &mut self,
        own: Option<Rate>,
        default: Rate,
        now: Moment,
    ) -> (bool, Wakes) {
        let extra = self.extra.get_or_insert_with(Extra::new);
        let before = mem::replace(&mut extra.rate, own);
        let (old, new) = (before.unwrap_or(default), own.unwrap_or(default));
        (before.is_some(), self.change_rate(old, new, now))
    }

    /// Continues at a `new` rate. A full bucket stays full, as a key without a bucket does.
    fn change_rate(&mut self, old: Rate, new: Rate, now: Moment) -> Wakes {
        self.bucket = if self.bucket.is_full(old, now) {
            self.bucket.refill(new, new.burst, At::Now(now))
        } else {
            self.bucket.settle(old, At::Now(now))
        };
        match &self.extra {
            None => Wakes::default(),
            Some(_) => self.with_line(new, |line, source| line.rate_changed(source, now)),
        }
    }

    fn with_line<R>(
        &mut self,
        default: Rate,
        step: impl FnOnce(&mut WaiterLine<Option<Claim>>, &mut BucketSource<'_>) -> R,
    ) -> R {
        let rate = self.rate(default);
        let extra = self.extra.get_or_insert_with(Extra::new);
        step(&mut extra.line, &mut BucketSource { bucket: &mut self.bucket, rate })
    }
}

/// Drops what a key no longer needs, and removes the key if its bucket is full.
fn tidy<K>(
    mut entry: OccupiedEntry<'_, KeyBucket<K>>,
    default: Rate,
    now: Moment,
) -> Option<K> {
    let KeyBucket { extra, .. } = entry.get_mut();
    if extra.as_ref().is_some_and(|extra| extra.is_unused()) {
        *extra = None;
    }
    entry.get().may_go(default, now).then(|| entry.remove().0.key)
}

impl Extra {
    fn new() -> Box<Self> {
        Box::new(Self { rate: None, line: WaiterLine::new() })
    }

    fn is_unused(&self) -> bool {
        self.rate.is_none() && self.line.is_unused()
    }
}

/// The bucket of a key that is not in the table (invariant 1).
fn full(rate: Rate, now: Moment) -> TokenBucket {
    TokenBucket::new(rate.burst, now)
}

/// The tokens of one key.
pub(super) struct BucketSource<'a> {
    bucket: &'a mut TokenBucket,
    rate: Rate,
}

impl BucketSource<'_> {
    #[inline]
    fn take(&mut self, request: Request) -> Result<Grant, Refusal> {
        let (next, grant) = self.bucket.reserve(self.rate, request)?;
        *self.bucket = next.unwrap_or(*self.bucket);
        Ok(grant)
    }
}

impl TokenSource for BucketSource<'_> {
    type Claim = Option<Claim>;

    fn reserve(&mut self, request: Request) -> Result<Held<Option<Claim>>, Refusal> {
        self.take(request).map(Held::from)
    }

    fn give_back(&mut self, claim: Option<Claim>, now: Moment) {
        let next =
            claim.and_then(|claim| self.bucket.return_unused(self.rate, claim, now));
        *self.bucket = next.unwrap_or(*self.bucket);
    }

    fn expect(&self, request: Request, ahead: u64) -> Result<Moment, Refusal> {
        self.bucket.expect(self.rate, request, ahead)
    }

    fn renew(&mut self, held: &mut Held<Option<Claim>>, request: Request, now: Moment) {
        let Some(claim) = held.claim else { return };
        let request = Request::patient(At::Now(now), request.n);
        if let Some((next, grant)) = self.bucket.renew(self.rate, claim, request) {
            *self.bucket = next.unwrap_or(*self.bucket);
            *held = Held::from(grant);
        }
    }
}
