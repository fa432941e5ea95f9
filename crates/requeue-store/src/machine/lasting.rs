//! The part of a queue that outlives its process.
//!
//! A lease is not written down, only who was granted the key and how often: when the
//! process is gone, so is whoever had the key. In the next life that lease has run out, so
//! whoever asks first moves the key as rule 8 of [`Store`](crate::Store) says: it is ready,
//! or dead if it was granted too often, which is how a key that brings down its process is
//! found out.

use std::time::Duration;

use super::{Buried, Held, Machine, Record};
use crate::{Key, Moment, Owner, Token};

/// What is kept of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lasting {
    /// When the key became ready or was last handed out, with its place among equals;
    /// nothing if it is neither ready nor with a worker.
    pub ready: Option<(Moment, u64)>,
    /// Who was granted the key, if it is with a worker.
    pub held_by: Option<Owner>,
    /// When its delay is over, with its place among equals.
    pub wake_at: Option<(Moment, u64)>,
    /// The priority with which it comes next.
    pub priority: i8,
    /// How often in a row it has failed.
    pub failures: u32,
    /// How often it was granted since a lease of it last ended by its holder.
    pub deliveries: u32,
    /// What went wrong the last time.
    pub error: Box<str>,
    /// Why, when and with whom it died.
    pub buried: Option<(String, Moment, Owner)>,
}

impl Machine {
    /// From now on remembers which keys have changed.
    pub fn follow(&mut self) {
        self.touched = Some(Vec::new());
    }

    /// Notes that the lasting part of a key has changed. Whoever changes it says so.
    pub(super) fn touch(&mut self, key: &Key) {
        if let Some(touched) = &mut self.touched {
            if touched.last() != Some(key) {
                touched.push(key.clone());
            }
        }
    }

    /// Tells the keys that have changed since the last call, and what is to be kept of
    /// them: `None` if nothing is. A key may come several times, with the same.
    pub fn drain_changes(&mut self, mut tell: impl FnMut(Key, Option<Lasting>)) {
        let Some(mut touched) = self.touched.take() else { return };
        for key in touched.drain(..) {
            let kept = self.lasting(&key);
            tell(key, kept);
        }
        self.touched = Some(touched);
    }

    /// What is to be kept of a key.
    pub fn lasting(&self, key: &Key) -> Option<Lasting> {
        let record = self.records.get(key)?;
        let granted = record.held.as_ref().map(|held| (held.granted, held.token.0));
        Some(Lasting {
            ready: record.since.or(granted),
            held_by: record.held.as_ref().map(|held| held.owner.clone()),
            wake_at: record.wake_at,
            priority: record.priority(),
            failures: record.failures,
            deliveries: record.deliveries,
            error: record.error.clone(),
            buried: record
                .buried
                .as_deref()
                .cloned()
                .map(|grave| (grave.reason, grave.at, grave.owner)),
        })
    }

    /// An empty queue filled with what was kept. The leases of what was with a worker have
    /// run out.
    pub fn restore(kept: impl IntoIterator<Item = (Key, Lasting)>) -> Self {
        let mut machine = Self::new();
        let mut kept: Vec<_> = kept.into_iter().collect();
        // What was held comes first, so that it alone is in the queue to be held again.
        kept.sort_by_key(|(_, kept)| (kept.held_by.is_none(), kept.ready, kept.wake_at));
        for (key, lasting) in kept {
            machine.restore_one(&key, lasting);
        }
        machine
    }

    fn restore_one(&mut self, key: &Key, lasting: Lasting) {
        let Lasting { failures, deliveries, error, buried, priority, .. } = lasting;
        let buried =
            buried.map(|(reason, at, owner)| Box::new(Buried { reason, at, owner }));
        let record = Record { failures, deliveries, error, buried, ..Record::default() };
        self.records.insert(key.clone(), Box::new(record));
        if let Some((at, _)) = lasting.ready {
            self.make_ready(key, priority, at);
            if let Some(owner) = lasting.held_by {
                self.hold_again(key, owner, at);
            }
        }
        if let Some((at, _)) = lasting.wake_at {
            self.delay(key, priority, at);
        }
        self.tidy(key);
    }

    /// Has the only key of the queue held by a lease that has run out and that nobody can
    /// name.
    fn hold_again(&mut self, key: &Key, owner: Owner, granted: Moment) {
        let Ok(lease) = self.queue.try_get() else { return };
        debug_assert_eq!(lease.key(), key);
        self.set_since(key, None);
        let (token, deadline, dirty) = (Token(0), Moment::default(), false);
        let record = self.record(key);
        let priority = record.lend_priority();
        let held = Held { lease, token, owner, granted, deadline, dirty, priority };
        record.held = Some(Box::new(held));
        self.leases.insert((deadline, key.clone()));
    }

    /// Raises the last token to at least this one, so that none is given out twice.
    pub fn raise_token(&mut self, token: u64) {
        self.last_token = self.last_token.max(token);
    }

    /// How much time is left of the shared rate's debt, to be kept: see [`Rate`](crate::Rate).
    pub fn debt(&self, now: Moment) -> Duration {
        self.arrival.since(now)
    }

    /// Takes up a debt of the shared rate that was kept.
    pub fn owe(&mut self, debt: Duration, now: Moment) {
        self.arrival = now.after(debt);
    }
}
