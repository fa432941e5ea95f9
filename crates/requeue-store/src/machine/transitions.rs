//! The steps that the calls consist of.

use std::num::NonZeroU32;
use std::time::Duration;

use requeue::{AddOptions, Added};

use super::{Death, Held, Machine, Record};
use crate::{Backoff, EngineTime, Finished, Grant, Hold, Key, Owner, Token};

impl Machine {
    pub(super) fn record(&mut self, key: &Key) -> &mut Record {
        self.records.entry(key.clone()).or_default()
    }

    pub(super) fn records(&self) -> impl Iterator<Item = (&Key, &Record)> {
        self.records.iter().map(|(key, record)| (key, &**record))
    }

    /// Keeps invariant 3.
    pub(super) fn remove_if_empty(&mut self, key: &Key) {
        if self.records.get(key).is_some_and(|record| record.is_empty()) {
            self.records.remove(key);
            self.mark_changed(key);
        }
    }

    /// Changes the failures or the death of a key: invariant 6.
    pub(super) fn change_counted<T>(
        &mut self,
        key: &Key,
        change: impl FnOnce(&mut Record) -> T,
    ) -> T {
        let record = self.record(key);
        let before = (record.is_failing(), record.death.is_some());
        let changed = change(record);
        let after = (record.is_failing(), record.death.is_some());
        let count =
            |n: u64, before: bool, after: bool| n + u64::from(after) - u64::from(before);
        self.failing = count(self.failing, before.0, after.0);
        self.dead = count(self.dead, before.1, after.1);
        changed
    }

    /// Records that an owner is alive.
    pub(super) fn see_owner(&mut self, owner: &Owner, now: EngineTime) {
        self.owners.insert(owner.clone(), now);
    }

    fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    pub(super) fn set_wake(&mut self, key: &Key, wake_at: Option<(EngineTime, u64)>) {
        let before = std::mem::replace(&mut self.record(key).wake_at, wake_at);
        if before != wake_at {
            self.mark_changed(key);
        }
        if let Some((at, sequence)) = before {
            self.delays.remove(&(at, sequence, key.clone()));
        }
        if let Some((at, sequence)) = wake_at {
            self.delays.insert((at, sequence, key.clone()));
        }
    }

    pub(super) fn set_since(&mut self, key: &Key, since: Option<(EngineTime, u64)>) {
        let before = std::mem::replace(&mut self.record(key).since, since);
        if before != since {
            self.mark_changed(key);
        }
        if let Some(since) = before {
            self.ready_since.remove(&since);
        }
        if let Some(since) = since {
            self.ready_since.insert(since);
        }
    }

    /// Raises the pending priority of a key to at least `priority`. Returns the result.
    fn raise_priority(&mut self, key: &Key, priority: i8) -> i8 {
        let pending = self.record(key).pending_priority;
        let raised = pending.map_or(priority, |pending| pending.max(priority));
        self.set_pending_priority(key, Some(raised));
        raised
    }

    pub(super) fn set_pending_priority(&mut self, key: &Key, pending: Option<i8>) {
        let record = self.record(key);
        let before = record.priority();
        record.pending_priority = pending;
        if record.priority() != before {
            self.mark_changed(key);
        }
    }

    /// Adds a key to the queue, or raises its priority there.
    fn enqueue(&self, key: &Key, priority: i8) -> Added {
        let options = AddOptions::new().priority(priority.into());
        let added = self.queue.add_with(key.clone(), options);
        added.expect("the queue of a machine is never closed")
    }

    pub(super) fn make_ready(
        &mut self,
        key: &Key,
        priority: i8,
        now: EngineTime,
    ) -> Added {
        let raised = self.raise_priority(key, priority);
        let added = self.enqueue(key, raised);
        match added {
            Added::Ready => {
                let sequence = self.next_sequence();
                self.set_since(key, Some((now, sequence)));
            }
            Added::Dirty => {
                let held = self.record(key).held.as_mut();
                held.expect("invariant 1: a dirty key is held").dirty = true;
                self.mark_changed(key);
            }
            Added::Duplicate | Added::Delayed | _ => {}
        }
        added
    }

    pub(super) fn delay(&mut self, key: &Key, priority: i8, at: EngineTime) -> Added {
        let raised = self.raise_priority(key, priority);
        let record = self.record(key);
        let in_queue = record.since.is_some() || record.is_dirty();
        let wake_at = record.wake_at;
        if in_queue {
            self.enqueue(key, raised); // invariant 5
        }
        if wake_at.is_some_and(|(before, _)| before <= at) {
            return Added::Duplicate;
        }
        let sequence = self.next_sequence();
        self.set_wake(key, Some((at, sequence)));
        Added::Delayed
    }

    /// Counts a failure. Returns the delay that the backoff chooses.
    pub(super) fn back_off(
        &mut self,
        key: &Key,
        backoff: &Backoff,
        now: EngineTime,
    ) -> Duration {
        let shared = backoff.rate.map_or(Duration::ZERO, |rate| {
            let (after, wait) = self.retries.reserve(&rate, 1, now);
            self.retries = after;
            wait
        });
        backoff.delay(self.count_failure(key)).max(shared)
    }

    /// Counts a failure. Returns the number of earlier ones.
    pub(super) fn count_failure(&mut self, key: &Key) -> u32 {
        self.mark_changed(key);
        self.change_counted(key, |record| {
            let before = record.failures;
            record.failures = before.saturating_add(1);
            before
        })
    }

    pub(super) fn set_error(&mut self, key: &Key, error: &str) {
        self.record(key).error = error.into();
    }

    pub(super) fn clear_failures(&mut self, key: &Key) {
        let (failures, error) = self.change_counted(key, |record| {
            (std::mem::take(&mut record.failures), std::mem::take(&mut record.error))
        });
        if failures > 0 || !error.is_empty() {
            self.mark_changed(key);
        }
    }

    /// Takes a key from the dead. Returns whether it was dead.
    pub(super) fn take_from_dead(&mut self, key: &Key) -> bool {
        if !self.records.contains_key(key) {
            return false;
        }
        let was_dead = self.change_counted(key, |record| record.death.take().is_some());
        if was_dead {
            self.record(key).deliveries = 0;
            self.mark_changed(key);
            self.clear_failures(key);
        }
        was_dead
    }

    pub(super) fn grant(
        &mut self,
        owner: &Owner,
        deadline: EngineTime,
        now: EngineTime,
    ) -> Option<Grant> {
        let lease = self.queue.try_get().ok()?;
        let key = lease.key().clone();
        let since = self.record(&key).since;
        let waited = since.map_or(Duration::ZERO, |(at, _)| now.since(at));
        self.set_since(&key, None);
        self.last_token = (self.last_token + 1).max(now.micros());
        let token = Token(self.last_token);
        let owner = owner.clone();
        let record = self.record(&key);
        record.deliveries = record.deliveries.saturating_add(1);
        let (deliveries, failures) = (record.deliveries, record.failures);
        let priority = record.take_priority();
        let dirty = false;
        let held = Held { lease, token, owner, granted: now, deadline, dirty, priority };
        record.held = Some(Box::new(held));
        self.leases.insert((deadline, key.clone()));
        Some(Grant { key, token, deliveries, failures, priority, waited })
    }

    pub(super) fn extend_one(&mut self, hold: &Hold, deadline: EngineTime) -> bool {
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

    /// Takes the lease with this token out of its record.
    pub(super) fn take_lease(&mut self, hold: &Hold) -> Option<Held> {
        let record = self.records.get_mut(&hold.key)?;
        let current = record.held.take_if(|current| current.token == hold.token)?;
        self.leases.remove(&(current.deadline, hold.key.clone()));
        self.mark_changed(&hold.key);
        Some(*current)
    }

    /// Ends a lease in the queue, which makes a dirty key ready.
    pub(super) fn end(
        &mut self,
        held: Held,
        delay: Duration,
        now: EngineTime,
    ) -> Finished {
        let Held { lease, dirty, .. } = held;
        let key = lease.key().clone();
        lease.done();
        if dirty {
            let sequence = self.next_sequence();
            self.set_since(&key, Some((now, sequence)));
        }
        self.remove_if_empty(&key);
        match dirty {
            true => Finished::Requeued,
            false if delay.is_zero() => Finished::Done,
            false => Finished::Delayed(delay),
        }
    }

    /// Ends a lease and delays its key.
    pub(super) fn end_delayed(
        &mut self,
        held: Held,
        delay: Duration,
        now: EngineTime,
    ) -> Finished {
        if delay.is_zero() {
            return self.end_ready(held, now);
        }
        let key = held.lease.key().clone();
        self.keep_priority(&held);
        self.delay(&key, held.priority, now.after(delay));
        self.end(held, delay, now)
    }

    /// Gives a requeued key at least the priority of its lease.
    fn keep_priority(&mut self, held: &Held) {
        let key = held.lease.key();
        let raised = self.raise_priority(key, held.priority);
        if held.dirty {
            self.enqueue(key, raised);
        }
    }

    /// Ends a lease and makes its key ready.
    pub(super) fn end_ready(&mut self, mut held: Held, now: EngineTime) -> Finished {
        held.dirty = true;
        self.keep_priority(&held);
        self.end(held, Duration::ZERO, now)
    }

    /// Ends a lease whose holder gave up.
    pub(super) fn end_given_up(
        &mut self,
        held: Held,
        deliveries: u32,
        reason: &str,
        now: EngineTime,
    ) -> Finished {
        if held.dirty {
            self.clear_failures(held.lease.key());
            return self.end(held, Duration::ZERO, now);
        }
        self.record(held.lease.key()).deliveries = deliveries;
        self.end_dead(held, reason.to_owned(), now)
    }

    /// Ends a lease and moves its key to the dead: invariant 4.
    fn end_dead(&mut self, held: Held, reason: String, now: EngineTime) -> Finished {
        let Held { lease, owner, .. } = held;
        let key = lease.key().clone();
        lease.done();
        self.set_wake(&key, None);
        self.set_pending_priority(&key, None);
        let death = Some(Box::new(Death { reason, at: now, owner }));
        self.change_counted(&key, |record| record.death = death);
        Finished::Dead
    }

    /// Ends the last allowed lease of a dirty key: its add revives the key (rule 8). The
    /// pending priority is that of its adds.
    fn end_revived(&mut self, held: Held, now: EngineTime) {
        let key = held.lease.key().clone();
        self.queue.remove(&key); // the add, which is executed with a delay instead
        held.lease.done();
        self.record(&key).deliveries = 0;
        self.clear_failures(&key);
        let sequence = self.next_sequence();
        self.set_wake(&key, Some((now.after(Backoff::default().max), sequence)));
    }

    /// Ends an expired lease. Returns whether its key is dead now.
    pub(super) fn expire_lease(
        &mut self,
        key: &Key,
        max_deliveries: Option<NonZeroU32>,
        now: EngineTime,
    ) -> bool {
        self.mark_changed(key);
        let record = self.record(key);
        let held = *record.held.take().expect("invariant 2: a leased key is held");
        let deliveries = record.deliveries;
        self.leases.remove(&(held.deadline, key.clone()));
        if max_deliveries.is_none_or(|max| deliveries < max.get()) {
            self.end_ready(held, now);
            return false;
        }
        if held.dirty {
            self.end_revived(held, now);
            return false;
        }
        let times = if deliveries == 1 { "time" } else { "times" };
        let reason = format!("its lease expired {deliveries} {times} in a row");
        self.end_dead(held, reason, now);
        true
    }

    /// Returns when the first delay ends. `None` if no key is delayed or the queue is
    /// paused.
    pub fn first_delay(&self) -> Option<EngineTime> {
        self.delays.first().map(|(at, ..)| *at).filter(|_| !self.paused)
    }

    /// Returns when the next delay ends or lease expires.
    pub(super) fn more_in(&self, now: EngineTime) -> Option<Duration> {
        if !self.queue.is_empty() {
            return Some(Duration::ZERO);
        }
        let delay = self.delays.first().map(|(at, ..)| *at);
        let lease = self.leases.first().map(|(at, _)| *at);
        delay.into_iter().chain(lease).min().map(|at| at.since(now))
    }
}

impl Record {
    pub(super) fn is_dirty(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.dirty)
    }

    /// Returns the priority of the next run, if there is one.
    pub(super) fn priority(&self) -> i8 {
        let held = self.held.as_ref().map(|held| held.priority);
        self.pending_priority.max(held).unwrap_or_default()
    }

    /// Takes the priority for a lease. A delay keeps it too: invariant 5.
    pub(super) fn take_priority(&mut self) -> i8 {
        let priority = self.pending_priority.unwrap_or_default();
        self.pending_priority.take_if(|_| self.wake_at.is_none());
        priority
    }
}
