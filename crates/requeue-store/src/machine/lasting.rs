//! The part of a queue that outlives its process.
//!
//! That a key is processing is not written down: when the process is gone, so is whoever
//! had the key, and it is ready again. So a run costs two writes, its add and its end.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Buried, Machine, Record};
use crate::{Key, Moment, Owner};

/// What is kept of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lasting {
    /// When the key became ready or was last handed out, with its place among equals;
    /// nothing if it is neither ready nor with a worker.
    pub ready: Option<(Moment, u64)>,
    /// When its delay is over, with its place among equals.
    pub wake_at: Option<(Moment, u64)>,
    /// How often in a row it has failed.
    pub failures: u32,
    /// How often it was granted since a lease of it last ended by its holder.
    pub deliveries: u32,
    /// What went wrong the last time.
    pub error: String,
    /// Why, when and with whom it died.
    pub buried: Option<(String, Moment, Owner)>,
}

impl Machine {
    /// From now on remembers which keys have changed.
    pub fn follow(&mut self) {
        self.touched = Some(BTreeSet::new());
    }

    pub(super) fn touch(&mut self, key: &Key) {
        if let Some(touched) = &mut self.touched {
            touched.insert(key.clone());
        }
    }

    /// The keys that may have changed since the last call, and what is to be kept of them:
    /// `None` if nothing is.
    pub fn take_changes(&mut self) -> Vec<(Key, Option<Lasting>)> {
        let touched = self.touched.as_mut().map(std::mem::take).unwrap_or_default();
        touched.into_iter().map(|key| (key.clone(), self.lasting(&key))).collect()
    }

    /// What is to be kept of a key.
    pub fn lasting(&self, key: &Key) -> Option<Lasting> {
        let record = self.records.get(key)?;
        let granted = record.held.as_ref().map(|held| (held.granted, held.token.0));
        Some(Lasting {
            ready: record.since.or(granted),
            wake_at: record.wake_at,
            failures: record.failures,
            deliveries: record.deliveries,
            error: record.error.clone(),
            buried: record
                .buried
                .clone()
                .map(|grave| (grave.reason, grave.at, grave.owner)),
        })
    }

    /// An empty queue filled with what was kept. What was with a worker is ready again.
    pub fn restore(kept: impl IntoIterator<Item = (Key, Lasting)>) -> Self {
        let mut machine = Self::new();
        let mut kept: Vec<_> = kept.into_iter().collect();
        kept.sort_by_key(|(_, lasting)| (lasting.ready, lasting.wake_at));
        for (key, lasting) in kept {
            machine.restore_one(&key, lasting);
        }
        machine
    }

    fn restore_one(&mut self, key: &Key, lasting: Lasting) {
        let Lasting { ready, wake_at, failures, deliveries, error, buried } = lasting;
        let buried = buried.map(|(reason, at, owner)| Buried { reason, at, owner });
        let record = Record { failures, deliveries, error, buried, ..Record::default() };
        self.records.insert(key.clone(), record);
        if let Some((at, _)) = ready {
            self.make_ready(key, at);
        }
        if let Some((at, _)) = wake_at {
            self.delay(key, at);
        }
        self.tidy(key);
    }

    /// Raises the last token to at least this one, so that none is given out twice.
    pub fn raise_token(&mut self, token: u64) {
        self.last_token = self.last_token.max(token);
    }

    /// How much time is left of the shared rate's debt, to be kept: see [`Rate`](crate::Rate).
    pub fn debt(&self, now: Moment) -> Duration {
        self.arrival.since(now)
    }
}
