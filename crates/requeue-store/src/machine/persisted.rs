//! The part of a queue that outlives its process.
//!
//! A lease is not persisted, only its owner and the number of deliveries: when the process
//! ends, so do its workers. After a restart such a lease has expired, and the next lease or
//! expire call moves its key by rule 8 of [`Store`](crate::Store): the key becomes ready, or
//! dead if it was delivered too often. This is how a key that crashes its process is found.

use std::time::Duration;

use super::arrival::Arrival;
use super::{Death, Held, Machine, Record};
use crate::{EngineTime, Key, Owner, Token};

/// The persisted part of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PersistedKey {
    /// When the key became ready or was last leased, with its rank among equal times.
    /// `None` if it is neither ready nor leased.
    pub ready: Option<(EngineTime, u64)>,
    /// The owner of the lease, if the key is leased.
    pub held_by: Option<Owner>,
    /// Whether the key is leased and was added during the lease.
    pub dirty: bool,
    /// When its delay ends, with its rank among equal times.
    pub wake_at: Option<(EngineTime, u64)>,
    /// The priority of its next run.
    pub priority: i8,
    /// The number of failures.
    pub failures: u32,
    /// The number of deliveries since a holder last finished it.
    pub deliveries: u32,
    /// The last error.
    pub error: Box<str>,
    /// Why and when it died, and its last owner.
    pub death: Option<(String, EngineTime, Owner)>,
}

impl Machine {
    /// Starts to track changed keys.
    pub fn track_changes(&mut self) {
        self.changed = Some(Vec::new());
    }

    /// Records that the persisted part of a key has changed.
    pub(super) fn mark_changed(&mut self, key: &Key) {
        if let Some(changed) = &mut self.changed {
            if changed.last() != Some(key) {
                changed.push(key.clone());
            }
        }
    }

    /// Visits the keys that have changed since the last call, with the part to persist, or
    /// `None` for a removed key. A key may be repeated, with the same part.
    pub fn drain_changes(&mut self, mut visit: impl FnMut(Key, Option<PersistedKey>)) {
        let Some(mut changed) = self.changed.take() else { return };
        for key in changed.drain(..) {
            let persisted = self.persisted(&key);
            visit(key, persisted);
        }
        self.changed = Some(changed);
    }

    /// Returns the part of a key to persist.
    pub fn persisted(&self, key: &Key) -> Option<PersistedKey> {
        let record = self.records.get(key)?;
        let granted = record.held.as_ref().map(|held| (held.granted, held.token.0));
        let death = record.death.as_deref().cloned();
        Some(PersistedKey {
            ready: record.since.or(granted),
            held_by: record.held.as_ref().map(|held| held.owner.clone()),
            dirty: record.is_dirty(),
            wake_at: record.wake_at,
            priority: record.priority(),
            failures: record.failures,
            deliveries: record.deliveries,
            error: record.error.clone(),
            death: death.map(|death| (death.reason, death.at, death.owner)),
        })
    }

    /// Creates a queue from persisted keys. The leases of leased keys have expired.
    pub fn restore(keys: impl IntoIterator<Item = (Key, PersistedKey)>) -> Self {
        let mut machine = Self::new();
        let mut keys: Vec<_> = keys.into_iter().collect();
        // Leased keys come first: each is leased again while it is alone in the queue.
        keys.sort_by_key(|(_, key)| (key.held_by.is_none(), key.ready, key.wake_at));
        for (key, persisted) in keys {
            machine.restore_one(&key, persisted);
        }
        machine
    }

    fn restore_one(&mut self, key: &Key, persisted: PersistedKey) {
        let PersistedKey { failures, deliveries, error, death, priority, .. } = persisted;
        let death =
            death.map(|(reason, at, owner)| Box::new(Death { reason, at, owner }));
        let record = Record { failures, deliveries, error, death, ..Record::default() };
        self.change_counted(key, |counted| *counted = record);
        if let Some((at, _)) = persisted.ready {
            self.make_ready(key, priority, at);
            if let Some(owner) = persisted.held_by {
                self.lease_expired(key, owner, at);
            }
            if persisted.dirty {
                self.make_ready(key, priority, at);
            }
        }
        if let Some((at, _)) = persisted.wake_at {
            self.delay(key, priority, at);
        }
        self.remove_if_empty(key);
    }

    /// Leases the only key of the queue with an expired lease, whose token no holder has.
    fn lease_expired(&mut self, key: &Key, owner: Owner, granted: EngineTime) {
        let Ok(lease) = self.queue.try_get() else { return };
        debug_assert_eq!(lease.key(), key);
        self.set_since(key, None);
        let (token, deadline, dirty) = (Token(0), EngineTime::default(), false);
        let record = self.record(key);
        let priority = record.take_priority();
        let held = Held { lease, token, owner, granted, deadline, dirty, priority };
        record.held = Some(Box::new(held));
        self.leases.insert((deadline, key.clone()));
    }

    /// Raises the last token to at least `token`.
    pub fn raise_token(&mut self, token: u64) {
        self.last_token = self.last_token.max(token);
    }

    /// Returns how far the shared [rate](crate::Rate) is reserved ahead of `now`.
    pub fn rate_debt(&self, now: EngineTime) -> Duration {
        self.retries.debt(now)
    }

    /// Restores how far the shared rate is reserved ahead of `now`.
    pub fn set_rate_debt(&mut self, debt: Duration, now: EngineTime) {
        self.retries = Arrival::with_debt(debt, now);
    }

    /// Returns how far each shared limiter is reserved ahead of `now`, and forgets those
    /// that are not.
    pub fn limiter_debts(
        &mut self,
        now: EngineTime,
    ) -> impl Iterator<Item = (&str, Duration)> {
        self.limiters.retain(|_, limiter| !limiter.debt(now).is_zero());
        self.limiters.iter().map(move |(name, limiter)| (&**name, limiter.debt(now)))
    }

    /// Restores how far a shared limiter is reserved ahead of `now`.
    pub fn set_limiter_debt(&mut self, name: String, debt: Duration, now: EngineTime) {
        self.limiters.insert(name, Arrival::with_debt(debt, now));
    }
}
