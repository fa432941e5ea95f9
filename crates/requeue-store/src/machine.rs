//! The rules of a store as a state machine: what each call changes, at a given time.
//!
//! Used by [`MemoryStore`](crate::MemoryStore), which puts a lock around it, and by the
//! store on disk, which adds a journal. Not part of the stable API.
//!
//! A [`requeue::Queue`] decides which worker may process a key: it holds the ready keys,
//! leases each to one holder, and knows which are dirty. A record per key holds the rest.
//! Two ordered sets hold the delays and the leases by their deadlines.
//!
//! Nothing here reads a clock, locks or waits.
//!
//! # Invariants
//!
//! 1. A record has a `held` lease exactly if its key is processing in the queue.
//! 2. `delays` has an entry exactly for each record with `wake_at`, `leases` exactly for
//!    each with `held`, and `ready_since` exactly for each with `since`.
//! 3. A key without a record is absent: it is not in the queue, not delayed, not dead, and
//!    has no failures. Records that say no more than that are removed.
//! 4. A dead key is neither in the queue nor delayed.
//! 5. A record has `pending_priority` exactly if its key is ready, dirty or delayed. If the
//!    key is ready or dirty, that is its priority in the queue.
//! 6. `failing` and `dead` are the numbers of records that are failing and dead.

use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroU32;
use std::time::Duration;

use requeue::order::Priority;
use requeue::{Finish, Lease, Queue};

use self::arrival::Arrival;
use crate::{
    Add, EngineTime, Expired, FinishRequest, Finished, Hold, Key, LeaseRequest, Leased,
    Owner, Receipt, TakeRequest, Taken, Token, When, Which,
};

mod arrival;
mod inspect;
mod persisted;
mod transitions;

pub use crate::engine_time::TimeSource;
pub use persisted::PersistedKey;

/// The number of keys that one call moves, so that each call stays short.
const MAX_MOVED: usize = 500;

/// The state of a queue in a store; see the module.
#[derive(Debug)]
pub struct Machine {
    queue: Queue<Key>,
    records: foldhash::HashMap<Key, Box<Record>>,
    delays: BTreeSet<(EngineTime, u64, Key)>,
    leases: BTreeSet<(EngineTime, Key)>,
    ready_since: BTreeSet<(EngineTime, u64)>,
    owners: HashMap<Owner, EngineTime>,
    last_token: u64,
    /// The shared rate of retries.
    retries: Arrival,
    /// The shared limiters by name.
    limiters: HashMap<String, Arrival>,
    /// The number of keys with failures that are not dead.
    failing: u64,
    /// The number of dead keys.
    dead: u64,
    paused: bool,
    /// Orders entries with the same time.
    sequence: u64,
    /// Keys whose persisted part has changed since the last call of `drain_changes`. A key
    /// may be repeated. `None` if changes are not tracked.
    changed: Option<Vec<Key>>,
}

/// The state of one key, in addition to the queue's.
///
/// Records are boxed, because their table moves them when it grows. Fields that most records
/// lack are boxed as well.
#[derive(Debug, Default)]
struct Record {
    held: Option<Box<Held>>,
    /// When the key became ready.
    since: Option<(EngineTime, u64)>,
    wake_at: Option<(EngineTime, u64)>,
    pending_priority: Option<i8>,
    failures: u32,
    deliveries: u32,
    error: Box<str>,
    death: Option<Box<Death>>,
}

#[derive(Debug)]
struct Held {
    lease: Lease<Key>,
    token: Token,
    owner: Owner,
    granted: EngineTime,
    deadline: EngineTime,
    dirty: bool,
    priority: i8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Death {
    reason: String,
    at: EngineTime,
    owner: Owner,
}

impl Record {
    fn is_empty(&self) -> bool {
        self.held.is_none()
            && self.since.is_none()
            && self.wake_at.is_none()
            && self.failures == 0
            && self.death.is_none()
    }
}

impl Machine {
    /// Creates an empty queue.
    pub fn new() -> Self {
        Self {
            queue: Queue::builder().order(Priority::new()).build(),
            records: foldhash::HashMap::default(),
            delays: BTreeSet::new(),
            leases: BTreeSet::new(),
            ready_since: BTreeSet::new(),
            owners: HashMap::new(),
            last_token: 0,
            retries: Arrival::default(),
            limiters: HashMap::new(),
            failing: 0,
            dead: 0,
            paused: false,
            sequence: 0,
            changed: None,
        }
    }

    /// Returns whether a key can be leased.
    pub fn has_ready(&self) -> bool {
        !self.paused && !self.queue.is_empty()
    }

    /// As [`Store::add`](crate::Store::add) for one key.
    pub fn add(&mut self, add: &Add, now: EngineTime) -> Receipt {
        let was_dead = self.take_from_dead(&add.key);
        let own = match add.when {
            When::Now => Duration::ZERO,
            When::After(delay) => delay,
            When::RateLimited(backoff) => self.back_off(&add.key, &backoff, now),
        };
        let delay = if was_dead { own.max(add.revive_after) } else { own };
        let added = if delay.is_zero() {
            self.make_ready(&add.key, add.priority, now)
        } else {
            self.delay(&add.key, add.priority, now.after(delay))
        };
        Receipt { added, delay }
    }

    /// As [`Store::lease`](crate::Store::lease).
    pub fn lease(&mut self, request: &LeaseRequest, now: EngineTime) -> Leased {
        self.see_owner(&request.owner, now);
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
        now: EngineTime,
    ) -> Vec<bool> {
        self.see_owner(owner, now);
        held.iter().map(|hold| self.extend_one(hold, now.after(lease))).collect()
    }

    /// As [`Store::heartbeat`](crate::Store::heartbeat).
    pub fn heartbeat(&mut self, owner: &Owner, now: EngineTime) {
        self.see_owner(owner, now);
    }

    /// As [`Store::take`](crate::Store::take).
    pub fn take(&mut self, request: &TakeRequest, now: EngineTime) -> Taken {
        let TakeRequest { limiter, rate, n, max_wait } = request;
        let before = self.limiters.get(limiter).copied().unwrap_or_default();
        let (after, wait) = before.reserve(rate, *n, now);
        if wait > *max_wait {
            return Taken::Refused { retry_in: wait.saturating_sub(*max_wait) };
        }
        self.limiters.insert(limiter.clone(), after);
        Taken::Granted { after: wait }
    }

    /// As [`Store::finish`](crate::Store::finish) for one lease.
    pub fn finish(&mut self, request: &FinishRequest, now: EngineTime) -> Finished {
        let FinishRequest { hold, finish, backoff, .. } = request;
        let Some(held) = self.take_lease(hold) else { return Finished::LeaseLost };
        let key = &hold.key;
        let deliveries = std::mem::take(&mut self.record(key).deliveries);
        match finish {
            Finish::Succeed => {
                self.clear_failures(key);
                self.end(held, Duration::ZERO, now)
            }
            Finish::RequeueAfter(delay) => {
                self.clear_failures(key);
                self.end_delayed(held, *delay, now)
            }
            Finish::Retry => {
                let delay = self.back_off(key, backoff, now);
                self.set_error(key, request.error_text());
                self.end_delayed(held, delay, now)
            }
            Finish::RetryAfter(delay) => {
                self.count_failure(key);
                self.set_error(key, request.error_text());
                self.end_delayed(held, *delay, now)
            }
            Finish::GiveUp => {
                self.end_given_up(held, deliveries, request.error_text(), now)
            }
            Finish::Release => {
                self.record(key).deliveries = deliveries.saturating_sub(1);
                self.end_ready(held, now)
            }
            Finish::Done | _ => self.end(held, Duration::ZERO, now),
        }
    }

    /// As [`Store::reclaim`](crate::Store::reclaim).
    pub fn reclaim(&mut self, owner: &Owner, held: &[Hold], now: EngineTime) -> u64 {
        let unlisted = |(key, record): (&Key, &Record)| {
            let lease = record.held.as_ref().filter(|lease| lease.owner == *owner)?;
            let lease = Hold { key: key.clone(), token: lease.token };
            (!held.contains(&lease)).then_some(lease)
        };
        let mut unlisted: Vec<_> = self.records().filter_map(unlisted).collect();
        unlisted.sort_by_key(|hold| hold.token);
        let release = |hold| FinishRequest::new(hold, Finish::Release);
        let requests = unlisted.into_iter().map(release);
        let answers = requests.map(|request| self.finish(&request, now));
        answers.filter(|answer| *answer == Finished::Requeued).count() as u64
    }

    /// As [`Store::expire`](crate::Store::expire).
    pub fn expire(
        &mut self,
        max_deliveries: Option<NonZeroU32>,
        now: EngineTime,
    ) -> Expired {
        let due = self.move_due(now);
        let mut expired = Expired { due, ..Expired::default() };
        for _ in 0..MAX_MOVED {
            let first = self.leases.first().filter(|(deadline, _)| *deadline <= now);
            let Some(key) = first.map(|(_, key)| key.clone()) else { break };
            if self.expire_lease(&key, max_deliveries, now) {
                expired.dead += 1;
            } else {
                expired.returned += 1;
            }
        }
        expired
    }

    /// Adds keys whose delay has ended. Returns how many.
    pub fn move_due(&mut self, now: EngineTime) -> u64 {
        for moved in 0..MAX_MOVED {
            let due = self.delays.first().filter(|(at, ..)| *at <= now);
            let Some(key) = due.map(|(.., key)| key.clone()) else { return moved as u64 };
            let priority = self.record(&key).pending_priority.unwrap_or_default();
            self.set_wake(&key, None);
            self.make_ready(&key, priority, now);
        }
        MAX_MOVED as u64
    }

    /// As [`Store::forget`](crate::Store::forget) for one key.
    pub fn forget(&mut self, key: &Key) {
        if self.records.get(key).is_some_and(|record| record.death.is_none()) {
            self.clear_failures(key);
            self.remove_if_empty(key);
        }
    }

    /// As [`Store::remove`](crate::Store::remove) for one key.
    pub fn remove(&mut self, key: &Key) -> bool {
        let Some(record) = self.records.get_mut(key) else { return false };
        let dirty =
            record.held.as_mut().is_some_and(|held| std::mem::take(&mut held.dirty));
        let pending = dirty || record.since.is_some() || record.wake_at.is_some();
        if dirty {
            self.mark_changed(key);
        }
        self.set_pending_priority(key, None);
        self.queue.remove(key);
        self.set_wake(key, None);
        self.set_since(key, None);
        self.remove_if_empty(key);
        pending
    }

    /// As [`Store::pause`](crate::Store::pause) and
    /// [`Store::resume`](crate::Store::resume).
    pub fn set_paused(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// As [`Store::revive`](crate::Store::revive).
    pub fn revive(&mut self, which: &Which, now: EngineTime) -> u64 {
        let keys = self.dead_keys(which);
        for key in &keys {
            self.take_from_dead(key);
            self.make_ready(key, 0, now);
        }
        keys.len() as u64
    }

    /// As [`Store::drop_dead`](crate::Store::drop_dead).
    pub fn drop_dead(&mut self, which: &Which) -> u64 {
        let keys = self.dead_keys(which);
        for key in &keys {
            self.take_from_dead(key);
            self.remove_if_empty(key);
        }
        keys.len() as u64
    }

    /// Returns the selected dead keys, ordered by the time of their death.
    fn dead_keys(&self, which: &Which) -> Vec<Key> {
        let is_selected = |key: &Key| match which {
            Which::All => true,
            Which::Keys(keys) => keys.contains(key),
        };
        let dead = |(key, record): (&Key, &Record)| {
            let death = record.death.as_ref().filter(|_| is_selected(key))?;
            Some((death.at, key.clone()))
        };
        let mut keys: Vec<_> = self.records().filter_map(dead).collect();
        keys.sort();
        keys.into_iter().map(|(_, key)| key).collect()
    }
}

impl Default for Machine {
    fn default() -> Self {
        Self::new()
    }
}
