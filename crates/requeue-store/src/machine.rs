//! The rules of a store, without an engine: what each call changes, at a given time.
//!
//! Who may work on a key is decided by a [`requeue::Queue`], the very one that programs
//! use in memory: it holds the ready keys, hands out each to one holder, and knows which
//! are dirty. What a store adds to that stands in a record for each key and in two
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
//! 5. A record has `planned` exactly if its key is ready, dirty or delayed. If the key is
//!    ready or dirty, that is its priority in the queue.

use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroU32;
use std::time::Duration;

use requeue::order::Priority;
use requeue::{Finish, Lease, Queue};

use crate::{
    Add, Expired, FinishRequest, Finished, Hold, Key, LeaseRequest, Leased, Moment,
    Owner, Receipt, Token, When, Which,
};

mod lasting;
mod people;
mod steps;

pub use lasting::Lasting;

/// How much is moved at a time: each call stays short, however much has become due.
const DUE_AT_ONCE: usize = 500;

/// A queue as a store keeps it; see the module.
#[derive(Debug)]
pub struct Machine {
    queue: Queue<Key>,
    records: foldhash::HashMap<Key, Box<Record>>,
    delays: BTreeSet<(Moment, u64, Key)>,
    leases: BTreeSet<(Moment, Key)>,
    ready_since: BTreeSet<(Moment, u64)>,
    owners: HashMap<Owner, Moment>,
    last_token: u64,
    /// Theoretical arrival time of the shared rate.
    arrival: Moment,
    paused: bool,
    /// Orders what has the same time by when it was said.
    count: u64,
    /// Keys whose lasting part has changed since it was last asked for, some of them
    /// several times.
    touched: Option<Vec<Key>>,
}

/// All that is known of one key, besides what the queue knows. It is in a box, and so is
/// what most keys do not have: there are many records, and their table moves as it grows.
#[derive(Debug, Default)]
struct Record {
    held: Option<Box<Held>>,
    /// Since when the key is ready.
    since: Option<(Moment, u64)>,
    wake_at: Option<(Moment, u64)>,
    /// The priority of what is planned.
    planned: Option<i8>,
    failures: u32,
    deliveries: u32,
    error: Box<str>,
    buried: Option<Box<Buried>>,
}

#[derive(Debug)]
struct Held {
    lease: Lease<Key>,
    token: Token,
    owner: Owner,
    granted: Moment,
    deadline: Moment,
    dirty: bool,
    priority: i8,
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
            queue: Queue::builder().order(Priority::new()).build(),
            records: foldhash::HashMap::default(),
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
        let was_dead = self.exhume(&add.key);
        let own = match add.when {
            When::Now => Duration::ZERO,
            When::After(delay) => delay,
            When::RateLimited(backoff) => self.fail(&add.key, &backoff, now),
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
    pub fn finish(&mut self, request: &FinishRequest, now: Moment) -> Finished {
        let FinishRequest { hold, finish, backoff, .. } = request;
        let Some(held) = self.take(hold) else { return Finished::LeaseLost };
        let key = &hold.key;
        let deliveries = std::mem::take(&mut self.record(key).deliveries);
        match finish {
            Finish::Succeed => {
                self.absolve(key);
                self.end(held, Duration::ZERO, now)
            }
            Finish::RequeueAfter(delay) => {
                self.absolve(key);
                self.end_later(held, *delay, now)
            }
            Finish::Retry => {
                let delay = self.fail(key, backoff, now);
                self.note(key, request.error_text());
                self.end_later(held, delay, now)
            }
            Finish::RetryAfter(delay) => {
                self.count_failure(key);
                self.note(key, request.error_text());
                self.end_later(held, *delay, now)
            }
            Finish::GiveUp => {
                self.end_for_good(held, deliveries, request.error_text(), now)
            }
            Finish::Release => {
                self.record(key).deliveries = deliveries.saturating_sub(1);
                self.hand_back(held, now);
                Finished::Requeued
            }
            Finish::Done | _ => self.end(held, Duration::ZERO, now),
        }
    }

    /// As [`Store::reclaim`](crate::Store::reclaim).
    pub fn reclaim(&mut self, owner: &Owner, held: &[Hold], now: Moment) -> u64 {
        let lost = |(key, record): (&Key, &Record)| {
            let lease = record.held.as_ref().filter(|lease| lease.owner == *owner)?;
            let lost = Hold { key: key.clone(), token: lease.token };
            (!held.contains(&lost)).then_some(lost)
        };
        let mut lost: Vec<_> = self.all().filter_map(lost).collect();
        lost.sort_by_key(|hold| hold.token);
        let requests =
            lost.into_iter().map(|hold| FinishRequest::new(hold, Finish::Release));
        let answers = requests.map(|request| self.finish(&request, now));
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
            let planned = self.record(&key).planned.unwrap_or_default();
            self.set_wake(&key, None);
            self.make_ready(&key, planned, now);
        }
        DUE_AT_ONCE as u64
    }

    /// As [`Store::forget`](crate::Store::forget) for one key.
    pub fn forget(&mut self, key: &Key) {
        if self.records.get(key).is_some_and(|record| record.buried.is_none()) {
            self.absolve(key);
            self.tidy(key);
        }
    }

    /// As [`Store::remove`](crate::Store::remove) for one key.
    pub fn remove(&mut self, key: &Key) -> bool {
        let Some(record) = self.records.get_mut(key) else { return false };
        let dirty =
            record.held.as_mut().is_some_and(|held| std::mem::take(&mut held.dirty));
        let planned = dirty || record.since.is_some() || record.wake_at.is_some();
        self.set_planned(key, None);
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
            self.exhume(key);
            self.make_ready(key, 0, now);
        }
        keys.len() as u64
    }

    /// As [`Store::drop_dead`](crate::Store::drop_dead).
    pub fn drop_dead(&mut self, which: &Which) -> u64 {
        let keys = self.buried(which);
        for key in &keys {
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
        let mut keys: Vec<_> = self.all().filter_map(dead).collect();
        keys.sort();
        keys.into_iter().map(|(_, key)| key).collect()
    }
}

impl Default for Machine {
    fn default() -> Self {
        Self::new()
    }
}
