//! The steps that the calls are made of.

use std::num::NonZeroU32;
use std::time::Duration;

use requeue::{AddOptions, Added};

use super::{Buried, Held, Machine, Record};
use crate::{Backoff, Finished, Grant, Hold, Key, Moment, Owner, Rate, Token, micros_of};

impl Machine {
    pub(super) fn record(&mut self, key: &Key) -> &mut Record {
        self.records.entry(key.clone()).or_default()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&Key, &Record)> {
        self.records.iter().map(|(key, record)| (key, &**record))
    }

    /// Keeps invariant 3.
    pub(super) fn tidy(&mut self, key: &Key) {
        if self.records.get(key).is_some_and(|record| record.says_nothing()) {
            self.records.remove(key);
            self.touch(key);
        }
    }

    pub(super) fn hear_of(&mut self, owner: &Owner, now: Moment) {
        self.owners.insert(owner.clone(), now);
    }

    pub(super) fn next_count(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    pub(super) fn set_wake(&mut self, key: &Key, wake_at: Option<(Moment, u64)>) {
        let before = std::mem::replace(&mut self.record(key).wake_at, wake_at);
        if before != wake_at {
            self.touch(key);
        }
        if let Some((at, count)) = before {
            self.delays.remove(&(at, count, key.clone()));
        }
        if let Some((at, count)) = wake_at {
            self.delays.insert((at, count, key.clone()));
        }
    }

    pub(super) fn set_since(&mut self, key: &Key, since: Option<(Moment, u64)>) {
        let before = std::mem::replace(&mut self.record(key).since, since);
        if before != since {
            self.touch(key);
        }
        if let Some(since) = before {
            self.ready_since.remove(&since);
        }
        if let Some(since) = since {
            self.ready_since.insert(since);
        }
    }

    /// Raises the priority of what is planned for a key, or is about to be.
    fn raise(&mut self, key: &Key, priority: i8) -> i8 {
        let planned = self.record(key).planned;
        let level = planned.map_or(priority, |planned| planned.max(priority));
        self.set_planned(key, Some(level));
        level
    }

    pub(super) fn set_planned(&mut self, key: &Key, planned: Option<i8>) {
        let record = self.record(key);
        let before = record.priority();
        record.planned = planned;
        if record.priority() != before {
            self.touch(key);
        }
    }

    /// Adds a key to the queue, or raises it there.
    fn line_up(&self, key: &Key, priority: i8) -> Added {
        let options = AddOptions::new().priority(priority.into());
        let added = self.queue.add_with(key.clone(), options);
        added.expect("the queue of a machine is never closed")
    }

    pub(super) fn make_ready(&mut self, key: &Key, priority: i8, now: Moment) -> Added {
        let level = self.raise(key, priority);
        let added = self.line_up(key, level);
        match added {
            Added::Ready => {
                let count = self.next_count();
                self.set_since(key, Some((now, count)));
            }
            Added::Dirty => {
                let held = self.record(key).held.as_mut();
                held.expect("invariant 1: what is dirty is held").dirty = true;
            }
            Added::Duplicate | Added::Delayed | _ => {}
        }
        added
    }

    pub(super) fn delay(&mut self, key: &Key, priority: i8, at: Moment) -> Added {
        let level = self.raise(key, priority);
        let record = self.record(key);
        let in_queue = record.since.is_some() || record.is_dirty();
        let wake_at = record.wake_at;
        if in_queue {
            self.line_up(key, level); // invariant 5
        }
        if wake_at.is_some_and(|(before, _)| before <= at) {
            return Added::Duplicate;
        }
        let count = self.next_count();
        self.set_wake(key, Some((at, count)));
        Added::Delayed
    }

    /// Counts a failure: how long the key has to wait for it.
    pub(super) fn fail(&mut self, key: &Key, backoff: &Backoff, now: Moment) -> Duration {
        let shared = backoff.rate.map_or(Duration::ZERO, |rate| self.reserve(&rate, now));
        backoff.delay(self.count_failure(key)).max(shared)
    }

    /// Counts a failure. Returns how many there were before.
    pub(super) fn count_failure(&mut self, key: &Key) -> u32 {
        self.touch(key);
        let failures = &mut self.record(key).failures;
        let before = *failures;
        *failures = before.saturating_add(1);
        before
    }

    /// Takes a share of the common rate: how long to wait for it.
    pub(super) fn reserve(&mut self, rate: &Rate, now: Moment) -> Duration {
        let interval = micros_of(rate.interval).max(1);
        let burst = interval.saturating_mul(u64::from(rate.burst.get()));
        let arrival = self.arrival.max(now).after(Duration::from_micros(interval));
        self.arrival = arrival;
        arrival.since(now).saturating_sub(Duration::from_micros(burst))
    }

    pub(super) fn note(&mut self, key: &Key, error: &str) {
        self.record(key).error = error.into();
    }

    pub(super) fn absolve(&mut self, key: &Key) {
        let record = self.record(key);
        let failures = std::mem::take(&mut record.failures);
        let error = std::mem::take(&mut record.error);
        if failures > 0 || !error.is_empty() {
            self.touch(key);
        }
    }

    /// Takes a key from the dead: whether it was among them.
    pub(super) fn exhume(&mut self, key: &Key) -> bool {
        let Some(record) = self.records.get_mut(key) else { return false };
        let was_dead = record.buried.take().is_some();
        if was_dead {
            record.deliveries = 0;
            self.touch(key);
            self.absolve(key);
        }
        was_dead
    }

    pub(super) fn grant(
        &mut self,
        owner: &Owner,
        deadline: Moment,
        now: Moment,
    ) -> Option<Grant> {
        let lease = self.queue.try_get().ok()?;
        let key = lease.key().clone();
        let waited = self.waited(&key, now);
        self.set_since(&key, None);
        self.last_token = (self.last_token + 1).max(now.micros());
        let token = Token(self.last_token);
        let owner = owner.clone();
        let record = self.record(&key);
        record.deliveries = record.deliveries.saturating_add(1);
        let (deliveries, failures) = (record.deliveries, record.failures);
        let priority = record.lend_priority();
        let dirty = false;
        let held = Held { lease, token, owner, granted: now, deadline, dirty, priority };
        record.held = Some(Box::new(held));
        self.leases.insert((deadline, key.clone()));
        Some(Grant { key, token, deliveries, failures, priority, waited })
    }

    /// How long a key has been ready.
    fn waited(&mut self, key: &Key, now: Moment) -> Duration {
        self.record(key).since.map_or(Duration::ZERO, |(at, _)| now.since(at))
    }

    pub(super) fn extend_one(&mut self, hold: &Hold, deadline: Moment) -> bool {
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
    pub(super) fn take(&mut self, hold: &Hold) -> Option<Held> {
        let record = self.records.get_mut(&hold.key)?;
        let current = record.held.take_if(|current| current.token == hold.token)?;
        self.leases.remove(&(current.deadline, hold.key.clone()));
        self.touch(&hold.key);
        Some(*current)
    }

    /// Ends a lease in the queue, which makes a dirty key ready.
    pub(super) fn end(&mut self, held: Held, delay: Duration, now: Moment) -> Finished {
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

    pub(super) fn end_later(
        &mut self,
        held: Held,
        delay: Duration,
        now: Moment,
    ) -> Finished {
        if delay.is_zero() {
            self.hand_back(held, now);
            return Finished::Requeued;
        }
        let key = held.lease.key().clone();
        self.keep_priority(&held);
        self.delay(&key, held.priority, now.after(delay));
        self.end(held, delay, now)
    }

    /// Plans a key that comes again with the priority that it came with.
    fn keep_priority(&mut self, held: &Held) {
        let key = held.lease.key();
        let level = self.raise(key, held.priority);
        if held.dirty {
            self.line_up(key, level);
        }
    }

    /// Ends a lease so that its key is ready, dirty or not.
    pub(super) fn hand_back(&mut self, mut held: Held, now: Moment) {
        held.dirty = true;
        self.keep_priority(&held);
        let requeued = self.end(held, Duration::ZERO, now);
        debug_assert_eq!(requeued, Finished::Requeued);
    }

    pub(super) fn end_for_good(
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
        self.bury(held, reason.to_owned(), now);
        Finished::Buried
    }

    /// Ends a lease with its key dead: invariant 4.
    pub(super) fn bury(&mut self, held: Held, reason: String, now: Moment) {
        let Held { lease, owner, .. } = held;
        let key = lease.key().clone();
        // What made it dirty, and its delay, go with it.
        self.queue.remove(&key);
        lease.done();
        self.set_wake(&key, None);
        self.set_planned(&key, None);
        self.record(&key).buried = Some(Box::new(Buried { reason, at: now, owner }));
    }

    /// Ends a lease that has run out: whether the key is dead now.
    pub(super) fn run_out(
        &mut self,
        key: &Key,
        max: Option<NonZeroU32>,
        now: Moment,
    ) -> bool {
        self.touch(key);
        let record = self.record(key);
        let held = *record.held.take().expect("invariant 2: what is leased is held");
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
    pub(super) fn more_in(&self, now: Moment) -> Option<Duration> {
        if !self.queue.is_empty() {
            return Some(Duration::ZERO);
        }
        let delay = self.delays.first().map(|(at, ..)| *at);
        let lease = self.leases.first().map(|(at, _)| *at);
        delay.into_iter().chain(lease).min().map(|at| at.since(now))
    }
}

impl Record {
    fn is_dirty(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.dirty)
    }

    /// The priority with which the key comes next, if it comes again.
    pub(super) fn priority(&self) -> i8 {
        let lent = self.held.as_ref().map(|held| held.priority);
        self.planned.max(lent).unwrap_or_default()
    }

    /// The priority for a grant, which a delay keeps too: invariant 5.
    pub(super) fn lend_priority(&mut self) -> i8 {
        let planned = self.planned.unwrap_or_default();
        self.planned.take_if(|_| self.wake_at.is_none());
        planned
    }
}
