//! The buckets of a [`Keyed`](super::Keyed) limiter.
//!
//! A key is in `lines` while it has waiters, in `table` while its bucket is not full, and
//! nowhere otherwise. Nothing here locks or reads a clock.
//!
//! # Invariants
//!
//! 1. A key that is in neither table has a full bucket. So a key whose bucket is full can
//!    leave without a trace.
//! 2. Time does not go back: a call counts as made at the latest time that any call has
//!    seen. So a key that was full when it left is full for every later call.
//! 3. A key with waiters stays in `lines`, and its bucket there is the one that counts. A
//!    bucket in `table` needs no latest event, since no claim on it can be cancelled.
//! 4. Keys that leave are returned, to be dropped without the lock.
//! 5. User code (`Hash`, `Eq`, `Clone`) that panics loses no waiter: it runs before a line
//!    is changed or removed.

use std::borrow::Borrow;
use std::hash::Hash;

use foldhash::fast::RandomState;
use hashbrown::hash_table::Entry;

use crate::rate::bucket::{Ask, At, Bucket, Claim, Grant, Patience, Refusal, Terms};
use crate::rate::line::{Held, Line, Meter};
use crate::rate::moment::Moment;
use crate::rate::table::{self, Table};
use crate::wake::Wakes;

pub(super) struct Keys<K> {
    table: Table<Slot<K>>,
    lines: Table<KeyLine<K>>,
    /// The latest time that a call has seen (invariant 2).
    latest: Moment,
    max: usize,
}

/// A bucket that is not full.
struct Slot<K> {
    key: K,
    tokens: f64,
    last: Moment,
}

/// The bucket of a key with waiters.
struct KeyLine<K> {
    key: K,
    bucket: Bucket,
    line: Line<Option<Claim>>,
}

impl<K: Eq + Hash> table::Slot for Slot<K> {
    type Key = K;

    #[inline]
    fn key(&self) -> &K {
        &self.key
    }
}

impl<K: Eq + Hash> table::Slot for KeyLine<K> {
    type Key = K;

    fn key(&self) -> &K {
        &self.key
    }
}

/// A key to look up, with what all keys share.
pub(super) struct Lookup<'a, Q: ?Sized> {
    pub(super) key: &'a Q,
    pub(super) hash: u64,
    pub(super) hasher: &'a RandomState,
    pub(super) terms: Terms,
}

impl<Q: ?Sized> Clone for Lookup<'_, Q> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Q: ?Sized> Copy for Lookup<'_, Q> {}

/// Keys that have left (invariant 4).
#[derive(Default)]
#[must_use = "to be dropped without the lock"]
pub(super) struct Gone<K>(Option<K>);

/// How many buckets of the table a call for a known key looks at for a key that can leave.
const GLANCE: usize = 1;

/// How many a call looks at that brought a new key: enough to find one for each new key, as
/// long as one bucket in eight holds a key that can leave.
const SWEEP: usize = 8;

/// How many keys are looked at for one to push out of a full table.
const SAMPLE: usize = 8;

impl<K> Keys<K> {
    pub(super) fn new(max: usize) -> Self {
        let (table, lines) = (Table::new(), Table::new());
        Self { table, lines, latest: Moment::START, max }
    }

    pub(super) fn set_max(&mut self, max: usize) {
        self.max = max;
    }

    pub(super) fn len(&self) -> usize {
        self.table.len() + self.lines.len()
    }

    /// Notes that it is `now`, and returns the time that counts (invariant 2).
    fn pass(&mut self, now: Moment) -> Moment {
        self.latest = self.latest.max(now);
        self.latest
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.table.bytes() + self.lines.bytes()
    }
}

impl<K: Eq + Hash> Keys<K> {
    /// The bucket of a key, and the time that counts.
    pub(super) fn bucket<Q>(&self, to: Lookup<'_, Q>, now: Moment) -> (Bucket, Moment)
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let at = now.max(self.latest);
        let line = self.lines.find(to.hash, to.key).map(|line| line.bucket);
        let slot = || self.table.find(to.hash, to.key).map(Slot::bucket);
        (line.or_else(slot).unwrap_or_else(|| full(to.terms, at)), at)
    }

    /// Takes tokens, if `ask` can wait for them.
    pub(super) fn take<Q>(
        &mut self,
        to: Lookup<'_, Q>,
        ask: Ask,
    ) -> (Result<Grant, Refusal>, Wakes, Gone<K>)
    where
        K: Borrow<Q>,
        Q: ToOwned<Owned = K> + Eq + Hash + ?Sized,
    {
        let at = At::Now(self.pass(ask.at.given()));
        if self.lines.len() > 0 && self.lines.find(to.hash, to.key).is_some() {
            let take = |line: &mut Line<_>, meter: &mut BucketMeter<'_>| {
                meter.take_behind(line, Ask { at, ..ask })
            };
            let ((result, wakes), gone) = self.with_line(to, at.given(), take);
            return (result, wakes, gone);
        }
        let known = self.table.len();
        let result = self.take_alone(to, Ask { at, ..ask });
        let sweep = if self.table.len() > known { SWEEP } else { GLANCE };
        let gone = self.let_go(to, sweep);
        self.table.shrink(to.hasher);
        (result, Wakes::default(), gone)
    }

    /// Takes tokens of a key without waiters.
    fn take_alone<Q>(&mut self, to: Lookup<'_, Q>, ask: Ask) -> Result<Grant, Refusal>
    where
        K: Borrow<Q>,
        Q: ToOwned<Owned = K> + Eq + Hash + ?Sized,
    {
        let entry = self.table.entry(to.hash, to.key, to.hasher);
        let bucket = match &entry {
            Entry::Occupied(slot) => slot.get().bucket(),
            Entry::Vacant(_) => full(to.terms, self.latest),
        };
        let (next, grant) = bucket.reserve(to.terms, ask)?;
        match (next, entry) {
            (Some(next), Entry::Occupied(mut slot)) => slot.get_mut().set(next),
            (Some(next), Entry::Vacant(room)) => {
                room.insert(Slot::new(to.key.to_owned(), next));
            }
            (None, _) => {}
        }
        Ok(grant)
    }

    /// Takes out one key that is full or above the bound, if the walk meets one.
    ///
    /// Not the key that was just used: a key in use must not be forgotten at each use.
    fn let_go<Q>(&mut self, to: Lookup<'_, Q>, sweep: usize) -> Gone<K>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let (now, terms) = (self.latest, to.terms);
        let slot = if self.len() > self.max {
            let rank =
                |slot: &Slot<K>| (slot.key.borrow() == to.key, slot.full_at(terms));
            self.table.take_first_of(SAMPLE, rank)
        } else {
            // Invariant 1.
            self.table.take_stale(sweep, |slot| slot.bucket().is_surely_full(terms, now))
        };
        Gone(slot.map(|slot| slot.key))
    }

    /// Runs `step` on the line of a key. The line exists while it has waiters.
    pub(super) fn with_line<Q, R>(
        &mut self,
        to: Lookup<'_, Q>,
        now: Moment,
        step: impl FnOnce(&mut Line<Option<Claim>>, &mut BucketMeter<'_>) -> R,
    ) -> (R, Gone<K>)
    where
        K: Borrow<Q>,
        Q: ToOwned<Owned = K> + Eq + Hash + ?Sized,
    {
        self.pass(now);
        let moved = self.open_line(to);
        let found = self.lines.find_mut(to.hash, to.key);
        let KeyLine { bucket, line, .. } = found.expect("the line was opened");
        let result = step(line, &mut BucketMeter { bucket, terms: to.terms });
        let gone = if line.is_unused() { self.close_line(to) } else { Gone(None) };
        (result, Gone(moved.0.or(gone.0)))
    }

    /// Moves a key to `lines`, unless it is there already.
    fn open_line<Q>(&mut self, to: Lookup<'_, Q>) -> Gone<K>
    where
        K: Borrow<Q>,
        Q: ToOwned<Owned = K> + Eq + Hash + ?Sized,
    {
        let (bucket, _) = self.bucket(to, self.latest);
        let Entry::Vacant(room) = self.lines.entry(to.hash, to.key, to.hasher) else {
            return Gone(None);
        };
        room.insert(KeyLine { key: to.key.to_owned(), bucket, line: Line::new() });
        Gone(self.table.remove(to.hash, to.key).map(|slot| slot.key))
    }

    /// Moves a key without waiters back to `table`, or forgets it if its bucket is full.
    fn close_line<Q>(&mut self, to: Lookup<'_, Q>) -> Gone<K>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let room = self.table.entry(to.hash, to.key, to.hasher);
        let Some(closed) = self.lines.remove(to.hash, to.key) else { return Gone(None) };
        let KeyLine { key, bucket, .. } = closed;
        let gone = match room {
            Entry::Occupied(mut slot) => {
                slot.get_mut().set(bucket);
                Some(key)
            }
            Entry::Vacant(_) if bucket.is_surely_full(to.terms, self.latest) => Some(key),
            Entry::Vacant(room) => {
                room.insert(Slot::new(key, bucket));
                None
            }
        };
        self.lines.shrink(to.hasher);
        Gone(gone)
    }
}

impl<K> Slot<K> {
    fn new(key: K, bucket: Bucket) -> Self {
        let (tokens, last) = bucket.level();
        Self { key, tokens, last }
    }

    #[inline]
    fn bucket(&self) -> Bucket {
        Bucket::at_level(self.tokens, self.last) // invariant 3
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

/// The bucket of a key that is in neither table (invariant 1).
fn full(terms: Terms, now: Moment) -> Bucket {
    Bucket::new(terms.burst, now)
}

/// The bucket of a key with a line.
pub(super) struct BucketMeter<'a> {
    bucket: &'a mut Bucket,
    terms: Terms,
}

impl BucketMeter<'_> {
    fn take(&mut self, ask: Ask) -> Result<Grant, Refusal> {
        let (next, grant) = self.bucket.reserve(self.terms, ask)?;
        *self.bucket = next.unwrap_or(*self.bucket);
        Ok(grant)
    }

    /// Takes tokens for a call that does not line up.
    fn take_behind(
        &mut self,
        line: &mut Line<Option<Claim>>,
        ask: Ask,
    ) -> (Result<Grant, Refusal>, Wakes) {
        let wakes = line.settle(self, ask.at.given());
        let overtakes = matches!(ask.patience, Patience::None) && !line.is_empty();
        (if overtakes { Err(Refusal::NotNow) } else { self.take(ask) }, wakes)
    }
}

impl Meter for BucketMeter<'_> {
    type Claim = Option<Claim>;

    fn reserve(&mut self, ask: Ask) -> Result<Held<Option<Claim>>, Refusal> {
        self.take(ask).map(|Grant { ready, claim }| Held { ready, claim })
    }

    fn give_back(&mut self, claim: Option<Claim>, now: Moment) {
        let next =
            claim.and_then(|claim| self.bucket.return_unused(self.terms, claim, now));
        *self.bucket = next.unwrap_or(*self.bucket);
    }

    fn expect(&self, ask: Ask, ahead: u64) -> Result<Moment, Refusal> {
        self.bucket.expect(self.terms, ask, ahead)
    }
}
