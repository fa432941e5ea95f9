//! Inspecting a queue.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use super::{Machine, Record};
use crate::{Dead, EngineTime, Failing, Key, Look, Owner, Phase, Stats, Which, Worker};

/// How long an owner without leases is remembered.
const REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);

impl Machine {
    /// As [`Store::look`](crate::Store::look) for one key, after [`move_due`](Self::move_due).
    pub fn look(&self, key: &Key, now: EngineTime) -> Look {
        let Some(record) = self.records.get(key) else { return Look::default() };
        Look {
            phase: record.phase(),
            delayed: record.wake_at.map(|(at, _)| at.since(now)),
            failures: record.failures,
            deliveries: record.deliveries,
        }
    }

    /// As [`Store::stats`](crate::Store::stats), after [`move_due`](Self::move_due).
    pub fn stats(&self, now: EngineTime) -> Stats {
        let counts = self.queue.counts();
        Stats {
            ready: counts.ready as u64,
            delayed: self.delays.len() as u64,
            processing: counts.processing as u64,
            dirty: counts.dirty as u64,
            failing: self.failing,
            dead: self.dead,
            oldest_ready: self.ready_since.first().map(|(at, ..)| now.since(*at)),
            paused: self.paused,
        }
    }

    /// As [`Store::failing`](crate::Store::failing).
    pub fn failing(&self, limit: usize, now: EngineTime) -> Vec<Failing> {
        let failing = |(key, record): (&Key, &Record)| {
            record.is_failing().then(|| Failing {
                key: key.clone(),
                failures: record.failures,
                error: record.error.to_string(),
                retry_in: record.wake_at.map(|(at, _)| at.since(now)),
            })
        };
        let mut all: Vec<_> = self.records().filter_map(failing).collect();
        all.sort_by(|a, b| (b.failures, &a.key).cmp(&(a.failures, &b.key)));
        all.truncate(limit);
        all
    }

    /// As [`Store::dead`](crate::Store::dead).
    pub fn dead(&self, limit: usize, now: EngineTime) -> Vec<Dead> {
        let keys = self.dead_keys(&Which::All).into_iter().take(limit);
        let dead = |key: Key| {
            let record = self.records.get(&key)?;
            let death = record.death.clone()?;
            Some(Dead {
                reason: death.reason,
                since: now.since(death.at),
                failures: record.failures,
                deliveries: record.deliveries,
                owner: death.owner,
                key,
            })
        };
        keys.filter_map(dead).collect()
    }

    /// As [`Store::workers`](crate::Store::workers).
    pub fn workers(&mut self, now: EngineTime) -> Vec<Worker> {
        let mut processing: HashMap<&Owner, u64> = HashMap::new();
        for held in self.records.values().filter_map(|record| record.held.as_ref()) {
            *processing.entry(&held.owner).or_default() += 1;
        }
        let recent = |owner: &Owner, at| {
            now.since(at) <= REMEMBERED || processing.contains_key(owner)
        };
        self.owners.retain(|owner, at| recent(owner, *at));
        let names: BTreeSet<_> = self.owners.iter().collect();
        let worker = |(owner, at): (&Owner, &EngineTime)| Worker {
            owner: owner.clone(),
            seen: now.since(*at),
            processing: processing.get(owner).copied().unwrap_or_default(),
        };
        names.into_iter().map(worker).collect()
    }
}

impl Record {
    fn phase(&self) -> Phase {
        match (&self.held, &self.since, &self.death) {
            (Some(held), ..) => Phase::Processing {
                owner: held.owner.clone(),
                token: held.token,
                dirty: held.dirty,
            },
            (None, Some(_), _) => Phase::Ready,
            (None, None, Some(_)) => Phase::Dead,
            (None, None, None) => Phase::Absent,
        }
    }

    pub(super) fn is_failing(&self) -> bool {
        self.failures > 0 && self.death.is_none()
    }
}
