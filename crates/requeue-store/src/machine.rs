//! The rules of a store, without an engine: what each call changes, at a given time.
//!
//! Who may work on a key is decided by a [`requeue::Queue`], the very one that programs
//! use in memory: it holds the ready keys, hands out each to one holder, and knows which
//! are dirty. What a store adds to that stands in a [`Record`] for each key and in two
//! calendars, of delays and of leases.
//!
//! Nothing here reads a clock, locks or waits. The memory store puts a lock around it, the
//! store on disk a journal besides.
//!
//! # Invariants
//!
//! 1. A record has `held` exactly if its key is processing in the queue.
//! 2. `delays` has an entry exactly for each record with `wake_at`, `leases` exactly for
//!    each with `held`, `ready_since` exactly for each with `since`.
//! 3. A key without a record is absent: it is not in the queue, has no delay and no
//!    failures, and is not dead. Records that say no more than that are removed.
//! 4. A key that is dead is neither in the queue nor delayed.

use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroU32;
use std::time::Duration;

use requeue::{Added, Lease, Queue};

use crate::{
    Add, Backoff, Dead, End, Ending, Expired, Failing, Finished, Grant, Hold, Key,
    LeaseRequest, Leased, Look, Moment, Owner, Phase, Rate, Receipt, Stats, Token, When,
    Which, Worker, micros_of,
};

mod lasting;
mod people;

pub use lasting::Lasting;

/// How much is moved at a time: each call stays short, however much has become due.
const DUE_AT_ONCE: usize = 500;

/// A queue as a store keeps it; see the module.
#[derive(Debug)]
pub struct Machine {
    queue: Queue<Key>,
    records: HashMap<Key, Record>,
    delays: BTreeSet<(Moment, u64, Key)>,
    leases: BTreeSet<(Moment, Key)>,
    ready_since: BTreeSet<(Moment, u64, Key)>,
    owners: HashMap<Owner, Moment>,
    last_token: u64,
    /// Theoretical arrival time of the shared rate.
    arrival: Moment,
    paused: bool,
    /// Orders what has the same time by when it was said.
    count: u64,
    /// Keys whose lasting part may have changed since it was last asked for.
    touched: Option<BTreeSet<Key>>,
}

/// All that is known of one key, besides what the queue knows.
#[derive(Debug, Default)]
struct Record {
    held: Option<Held>,
    /// Since when the key is ready.
    since: Option<(Moment, u64)>,
    wake_at: Option<(Moment, u64)>,
    failures: u32,
    deliveries: u32,
    error: String,
    buried: Option<Buried>,
}

#[derive(Debug)]
struct Held {
    lease: Lease<Key>,
    token: Token,
    owner: Owner,
    granted: Moment,
    deadline: Moment,
    dirty: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Buried {
    reason: String,
    at: Moment,
    owner: Owner,
}

impl Record {
    fn says_nothing(&self) -> bool {
        self.held.is_none()
            && self.since.is_none()
            && self.wake_at.is_none()
            && self.failures == 0
            && self.buried.is_none()
    }
}

impl Machine {
    /// An empty queue.
    pub fn new() -> Self {
        Self {
            queue: Queue::new(),
            records: HashMap::new(),
            delays: BTreeSet::new(),
            leases: BTreeSet::new(),
            ready_since: BTreeSet::new(),
            owners: HashMap::new(),
            last_token: 0,
            arrival: Moment::default(),
            paused: false,
            count: 0,
            touched: None,
        }
    }

    /// Whether a key can be handed out.
    pub fn has_ready(&self) -> bool {
        !self.paused && !self.queue.is_empty()
    }

    /// As [`Store::add`](crate::Store::add) for one key.
    pub fn add(&mut self, add: &Add, now: Moment) -> Receipt {
        self.touch(&add.key);
        let was_dead = self.exhume(&add.key);
        let own = match add.when {
            When::Now => Duration::ZERO,
            When::After(delay) => delay,
            When::RateLimited(backoff) => self.fail(&add.key, &backoff, now),
        };
        let delay = if was_dead { own.max(add.revive_after) } else { own };
        let added = if delay.is_zero() {
            self.make_ready(&add.key, now)
        } else {
            self.delay(&add.key, now.after(delay))
        };
        Receipt { added, delay }
    }

    /// As [`Store::lease`](crate::Store::lease).
    pub fn lease(&mut self, request: &LeaseRequest, now: Moment) -> Leased {
        self.hear_of(&request.owner, now);
        self.expire(request.max_deliveries, now);
        let max = if self.paused { 0 } else { request.max };
        let deadline = now.after(request.lease);
        let grants = (0..max).map_while(|_| self.grant(&request.owner, deadline, now));
        Leased {
            grants: grants.collect(),
            more_in: self.more_in(now),
            paused: self.paused,
        }
    }

    /// As [`Store::extend`](crate::Store::extend).
    pub fn extend(
        &mut self,
        owner: &Owner,
        held: &[Hold],
        lease: Duration,
        now: Moment,
    ) -> Vec<bool> {
        self.hear_of(owner, now);
        held.iter().map(|hold| self.extend_one(hold, now.after(lease))).collect()
    }

    /// As [`Store::finish`](crate::Store::finish) for one lease.
    pub fn finish(&mut self, end: &End, now: Moment) -> Finished {
        self.touch(&end.hold.key);
        let Some(held) = self.take(&end.hold) else { return Finished::LeaseLost };
        let record = self.records.entry(end.hold.key.clone()).or_default();
        let deliveries = record.deliveries;
        record.deliveries = 0;
        match &end.ending {
            Ending::Done => self.end(held, Duration::ZERO, now),
            Ending::Succeed => {
                self.absolve(&end.hold.key);
                self.end(held, Duration::ZERO, now)
            }
            Ending::Retry { backoff, error } => {
                let delay = self.fail(&end.hold.key, backoff, now);
                self.note(&end.hold.key, error);
                self.end_later(held, delay, now)
            }
            Ending::RetryAfter(delay) => {
                self.absolve(&end.hold.key);
                self.end_later(held, *delay, now)
            }
            Ending::Bury { reason } => self.end_for_good(held, deliveries, reason, now),
            Ending::Release => {
                self.record(&end.hold.key).deliveries = deliveries.saturating_sub(1);
                self.hand_back(held, now);
                Finished::Requeued
            }
        }
    }

    /// As [`Store::reclaim`](crate::Store::reclaim).
    pub fn reclaim(&mut self, owner: &Owner, held: &[Hold], now: Moment) -> u64 {
        let lost = |(key, record): (&Key, &Record)| {
            let lease = record.held.as_ref().filter(|lease| lease.owner == *owner)?;
            let lost = Hold { key: key.clone(), token: lease.token };
            (!held.contains(&lost)).then_some(lost)
        };
        let mut lost: Vec<_> = self.records.iter().filter_map(lost).collect();
        lost.sort_by_key(|hold| hold.token);
        let ends = lost.into_iter().map(|hold| End { hold, ending: Ending::Release });
        let answers = ends.map(|end| self.finish(&end, now));
        answers.filter(|answer| *answer == Finished::Requeued).count() as u64
    }

    /// As [`Store::expire`](crate::Store::expire).
    pub fn expire(&mut self, max: Option<NonZeroU32>, now: Moment) -> Expired {
        let due = self.move_due(now);
        let mut expired = Expired { due, ..Expired::default() };
        for _ in 0..DUE_AT_ONCE {
            let over = self.leases.first().filter(|(deadline, _)| *deadline <= now);
            let Some(key) = over.map(|(_, key)| key.clone()) else { break };
            if self.run_out(&key, max, now) {
                expired.dead += 1;
            } else {
                expired.returned += 1;
            }
        }
        expired
    }

    /// Makes keys ready whose delay is over: how many.
    pub fn move_due(&mut self, now: Moment) -> u64 {
        for moved in 0..DUE_AT_ONCE {
            let due = self.delays.first().filter(|(at, ..)| *at <= now);
            let Some(key) = due.map(|(.., key)| key.clone()) else { return moved as u64 };
            self.set_wake(&key, None);
            self.make_ready(&key, now);
        }
        DUE_AT_ONCE as u64
    }

    /// As [`Store::forget`](crate::Store::forget) for one key.
    pub fn forget(&mut self, key: &Key) {
        self.touch(key);
        if self.records.get(key).is_some_and(|record| record.buried.is_none()) {
            self.absolve(key);
            self.tidy(key);
        }
    }

    /// As [`Store::remove`](crate::Store::remove) for one key.
    pub fn remove(&mut self, key: &Key) -> bool {
        self.touch(key);
        let Some(record) = self.records.get_mut(key) else { return false };
        let dirty =
            record.held.as_mut().is_some_and(|held| std::mem::take(&mut held.dirty));
        let planned = dirty || record.since.is_some() || record.wake_at.is_some();
        self.queue.remove(key);
        self.set_wake(key, None);
        self.set_since(key, None);
        self.tidy(key);
        planned
    }

    /// As [`Store::pause`](crate::Store::pause) and
    /// [`Store::resume`](crate::Store::resume).
    pub fn set_paused(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// As [`Store::revive`](crate::Store::revive).
    pub fn revive(&mut self, which: &Which, now: Moment) -> u64 {
        let keys = self.buried(which);
        for key in &keys {
            self.touch(key);
            self.exhume(key);
            self.make_ready(key, now);
        }
        keys.len() as u64
    }

    /// As [`Store::drop_dead`](crate::Store::drop_dead).
    pub fn drop_dead(&mut self, which: &Which) -> u64 {
        let keys = self.buried(which);
        for key in &keys {
            self.touch(key);
            self.exhume(key);
            self.tidy(key);
        }
        keys.len() as u64
    }

    /// Those dead keys that are meant, the longest dead first.
    fn buried(&self, which: &Which) -> Vec<Key> {
        let meant = |key: &Key| match which {
            Which::All => true,
            Which::Keys(keys) => keys.contains(key),
        };
        let dead = |(key, record): (&Key, &Record)| {
            record
                .buried
                .as_ref()
                .filter(|_| meant(key))
                .map(|grave| (grave.at, key.clone()))
        };
        let mut keys: Vec<_> = self.records.iter().filter_map(dead).collect();
        keys.sort();
        keys.into_iter().map(|(_, key)| key).collect()
    }
}

impl Default for Machine {
    fn default() -> Self {
        Self::new()
    }
}

/// The steps that the calls are made of.
impl Machine {
    fn record(&mut self, key: &Key) -> &mut Record {
        self.records.entry(key.clone()).or_default()
    }

    /// Keeps invariant 3.
    fn tidy(&mut self, key: &Key) {
        if self.records.get(key).is_some_and(Record::says_nothing) {
            self.records.remove(key);
        }
    }

    fn hear_of(&mut self, owner: &Owner, now: Moment) {
        self.owners.insert(owner.clone(), now);
    }

    fn next_count(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn set_wake(&mut self, key: &Key, wake_at: Option<(Moment, u64)>) {
        self.touch(key);
        let before = std::mem::replace(&mut self.record(key).wake_at, wake_at);
        if let Some((at, count)) = before {
            self.delays.remove(&(at, count, key.clone()));
        }
        if let Some((at, count)) = wake_at {
            self.delays.insert((at, count, key.clone()));
        }
    }

    fn set_since(&mut self, key: &Key, since: Option<(Moment, u64)>) {
        self.touch(key);
        let before = std::mem::replace(&mut self.record(key).since, since);
        if let Some((at, count)) = before {
            self.ready_since.remove(&(at, count, key.clone()));
        }
        if let Some((at, count)) = since {
            self.ready_since.insert((at, count, key.clone()));
        }
    }

    fn make_ready(&mut self, key: &Key, now: Moment) -> Added {
        let added = self.queue.add_ref(key);
        match added {
            Added::Ready => {
                let count = self.next_count();
                self.set_since(key, Some((now, count)));
            }
            Added::Dirty => {
                self.touch(key);
                let held = self.record(key).held.as_mut();
                held.expect("invariant 1: what is dirty is held").dirty = true;
            }
            Added::Duplicate | Added::Delayed | Added::Closed | _ => {}
        }
        added
    }

    fn delay(&mut self, key: &Key, at: Moment) -> Added {
        let wake_at = self.records.get(key).and_then(|record| record.wake_at);
        if wake_at.is_some_and(|(before, _)| before <= at) {
            return Added::Duplicate;
        }
        let count = self.next_count();
        self.set_wake(key, Some((at, count)));
        Added::Delayed
    }

    /// Counts a failure: how long the key has to wait for it.
    fn fail(&mut self, key: &Key, backoff: &Backoff, now: Moment) -> Duration {
        let shared = backoff.rate.map_or(Duration::ZERO, |rate| self.reserve(&rate, now));
        let record = self.record(key);
        let before = record.failures;
        record.failures = before.saturating_add(1);
        backoff.delay(before).max(shared)
    }

    /// Takes a share of the common rate: how long to wait for it.
    fn reserve(&mut self, rate: &Rate, now: Moment) -> Duration {
        let interval = micros_of(rate.interval).max(1);
        let burst = interval.saturating_mul(u64::from(rate.burst.get()));
        let arrival = self.arrival.max(now).after(Duration::from_micros(interval));
        self.arrival = arrival;
        arrival.since(now).saturating_sub(Duration::from_micros(burst))
    }

    fn note(&mut self, key: &Key, error: &str) {
        kept(error).clone_into(&mut self.record(key).error);
    }

    fn absolve(&mut self, key: &Key) {
        let record = self.record(key);
        record.failures = 0;
        record.error = String::new();
    }

    /// Takes a key from the dead: whether it was among them.
    fn exhume(&mut self, key: &Key) -> bool {
        let Some(record) = self.records.get_mut(key) else { return false };
        let was_dead = record.buried.take().is_some();
        if was_dead {
            record.deliveries = 0;
            self.absolve(key);
        }
        was_dead
    }

    fn grant(&mut self, owner: &Owner, deadline: Moment, now: Moment) -> Option<Grant> {
        let lease = self.queue.try_get().ok()?;
        let key = lease.key().clone();
        self.set_since(&key, None);
        self.last_token = (self.last_token + 1).max(now.micros());
        let token = Token(self.last_token);
        let owner = owner.clone();
        let record = self.record(&key);
        record.deliveries = record.deliveries.saturating_add(1);
        let (deliveries, failures) = (record.deliveries, record.failures);
        let dirty = false;
        record.held = Some(Held { lease, token, owner, granted: now, deadline, dirty });
        self.leases.insert((deadline, key.clone()));
        Some(Grant { key, token, deliveries, failures })
    }

    fn extend_one(&mut self, hold: &Hold, deadline: Moment) -> bool {
        let record = self.records.get_mut(&hold.key);
        let current = record.and_then(|record| record.held.as_mut());
        let Some(current) = current.filter(|current| current.token == hold.token) else {
            return false;
        };
        let before = std::mem::replace(&mut current.deadline, deadline);
        self.leases.remove(&(before, hold.key.clone()));
        self.leases.insert((deadline, hold.key.clone()));
        true
    }

    /// Takes a lease out of its record, if it is still held by this grant.
    fn take(&mut self, hold: &Hold) -> Option<Held> {
        let record = self.records.get_mut(&hold.key)?;
        let current = record.held.take_if(|current| current.token == hold.token)?;
        self.leases.remove(&(current.deadline, hold.key.clone()));
        Some(current)
    }

    /// Ends a lease in the queue, which makes a dirty key ready.
    fn end(&mut self, held: Held, delay: Duration, now: Moment) -> Finished {
        let Held { lease, dirty, .. } = held;
        let key = lease.key().clone();
        lease.done();
        if dirty {
            let count = self.next_count();
            self.set_since(&key, Some((now, count)));
        }
        self.tidy(&key);
        match dirty {
            true => Finished::Requeued,
            false if delay.is_zero() => Finished::Done,
            false => Finished::Delayed(delay),
        }
    }

    fn end_later(&mut self, held: Held, delay: Duration, now: Moment) -> Finished {
        if delay.is_zero() {
            self.hand_back(held, now);
            return Finished::Requeued;
        }
        let key = held.lease.key().clone();
        self.delay(&key, now.after(delay));
        self.end(held, delay, now)
    }

    /// Ends a lease so that its key is ready, dirty or not.
    fn hand_back(&mut self, mut held: Held, now: Moment) {
        if !held.dirty {
            self.queue.add_ref(held.lease.key());
            held.dirty = true;
        }
        let requeued = self.end(held, Duration::ZERO, now);
        debug_assert_eq!(requeued, Finished::Requeued);
    }

    fn end_for_good(
        &mut self,
        held: Held,
        deliveries: u32,
        reason: &str,
        now: Moment,
    ) -> Finished {
        if held.dirty {
            self.absolve(held.lease.key());
            return self.end(held, Duration::ZERO, now);
        }
        self.record(held.lease.key()).deliveries = deliveries;
        self.bury(held, kept(reason).to_owned(), now);
        Finished::Buried
    }

    /// Ends a lease with its key dead: invariant 4.
    fn bury(&mut self, held: Held, reason: String, now: Moment) {
        let Held { lease, owner, .. } = held;
        let key = lease.key().clone();
        // What made it dirty, and its delay, go with it.
        self.queue.remove(&key);
        lease.done();
        self.set_wake(&key, None);
        self.record(&key).buried = Some(Buried { reason, at: now, owner });
    }

    /// Ends a lease that has run out: whether the key is dead now.
    fn run_out(&mut self, key: &Key, max: Option<NonZeroU32>, now: Moment) -> bool {
        self.touch(key);
        let record = self.record(key);
        let held = record.held.take().expect("invariant 2: what is leased is held");
        let deliveries = record.deliveries;
        self.leases.remove(&(held.deadline, key.clone()));
        if max.is_none_or(|max| deliveries < max.get()) {
            self.hand_back(held, now);
            return false;
        }
        let times = if deliveries == 1 { "time" } else { "times" };
        let reason = format!("its lease ran out {deliveries} {times} in a row");
        self.bury(held, reason, now);
        true
    }

    /// How long until something becomes ready by itself.
    fn more_in(&self, now: Moment) -> Option<Duration> {
        if !self.queue.is_empty() {
            return Some(Duration::ZERO);
        }
        let delay = self.delays.first().map(|(at, ..)| *at);
        let lease = self.leases.first().map(|(at, _)| *at);
        delay.into_iter().chain(lease).min().map(|at| at.since(now))
    }
}

/// As much of a text for people as is kept.
pub(crate) fn kept(text: &str) -> &str {
    let fits = |end: &usize| text.is_char_boundary(*end);
    let end = (0..=text.len().min(Ending::MAX_TEXT)).rev().find(fits);
    &text[..end.unwrap_or(0)]
}
