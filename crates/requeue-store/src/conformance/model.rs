//! The rules of [`Store`](crate::Store) as a short model of a few keys, which shares no code
//! with any store.
//!
//! Times are in microseconds. A ready key has a position in the line of its priority. Keys
//! that were moved at the same time have the same position, because their order is not
//! specified.

use std::cmp::Reverse;
use std::time::Duration;

use requeue::{Added, Finish};

use crate::{Expired, Finished, Grant, Hold, Stats, Token, When};

/// The number of keys. Their numbers are their names.
pub(super) const KEYS: usize = 4;
/// The number of deliveries without a finish after which a key dies.
pub(super) const MAX_DELIVERIES: u32 = 2;
/// The length of leases.
pub(super) const LEASE: u64 = 10_000;
/// The delay of a dead key that is added again.
pub(super) const REVIVE: u64 = 7_000;
/// The delay of a key that is revived because it was added during its last lease.
const REVIVE_DIRTY: u64 = 1_000_000_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum ModelPhase {
    #[default]
    Absent,
    Ready {
        position: Position,
        /// When it became ready. A new position does not change it.
        since: u64,
    },
    Held {
        token: Token,
        deadline: u64,
        dirty: bool,
        priority: i8,
    },
    Dead,
}

/// The position of a key in the line of its priority, and when it got it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    number: u64,
    at: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ModelRecord {
    pub(super) phase: ModelPhase,
    pub(super) wake_at: Option<u64>,
    pub(super) pending_priority: Option<i8>,
    pub(super) failures: u32,
    pub(super) deliveries: u32,
}

/// What the rules say about a leased key.
pub(super) struct ExpectedLease {
    /// Whether it was the first of the highest priority, or the oldest.
    pub(super) in_order: bool,
    pub(super) priority: i8,
    pub(super) waited: Duration,
}

impl ModelPhase {
    /// The phase of a key that becomes ready now.
    fn ready(position: Position) -> Self {
        Self::Ready { position, since: position.at }
    }
}

#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) records: [ModelRecord; KEYS],
    pub(super) now: u64,
    pub(super) paused: bool,
    last_position: u64,
}

impl Model {
    pub(super) fn new(now: u64) -> Self {
        Self { now, ..Self::default() }
    }

    fn next_position(&mut self) -> Position {
        self.last_position += 1;
        Position { number: self.last_position, at: self.now }
    }

    pub(super) fn add(&mut self, number: usize, when: When, priority: i8) -> Added {
        let was_dead = self.records[number].phase == ModelPhase::Dead;
        if was_dead {
            self.records[number] = ModelRecord::default();
        }
        self.raise(number, priority);
        let delay = match when {
            When::Now => 0,
            When::After(delay) => micros(delay),
            When::RateLimited(_) => self.fail(number),
        };
        match if was_dead { delay.max(REVIVE) } else { delay } {
            0 => self.make_ready(number),
            delay => self.delay(number, delay),
        }
    }

    /// Raises the pending priority. A ready key moves to the tail of its new priority.
    fn raise(&mut self, number: usize, priority: i8) {
        let position = self.next_position();
        let record = &mut self.records[number];
        let before = record.pending_priority;
        record.pending_priority = before.max(Some(priority));
        if let ModelPhase::Ready { position: own, .. } = &mut record.phase {
            *own = if before < record.pending_priority { position } else { *own };
        }
    }

    fn make_ready(&mut self, number: usize) -> Added {
        let position = self.next_position();
        self.make_ready_at(number, position)
    }

    fn make_ready_at(&mut self, number: usize, position: Position) -> Added {
        match &mut self.records[number].phase {
            phase @ ModelPhase::Absent => {
                *phase = ModelPhase::ready(position);
                Added::Ready
            }
            ModelPhase::Held { dirty: dirty @ false, .. } => {
                *dirty = true;
                Added::Dirty
            }
            ModelPhase::Ready { .. } | ModelPhase::Held { .. } | ModelPhase::Dead => {
                Added::Duplicate
            }
        }
    }

    fn delay(&mut self, number: usize, delay: u64) -> Added {
        let record = &mut self.records[number];
        let wake_at = self.now + delay;
        if record.wake_at.is_some_and(|before| before <= wake_at) {
            return Added::Duplicate;
        }
        record.wake_at = Some(wake_at);
        Added::Delayed
    }

    /// Counts a failure. Returns the delay: 5 ms, doubled for each earlier failure, up to
    /// 1000 s.
    fn fail(&mut self, number: usize) -> u64 {
        let failures = &mut self.records[number].failures;
        let delay = 5_000_u64.saturating_mul(2_u64.saturating_pow(*failures));
        *failures += 1;
        delay.min(1_000_000_000)
    }

    /// Leases a key. Returns `None` if it was not ready.
    pub(super) fn grant(
        &mut self,
        grant: &Grant,
        number: usize,
    ) -> Option<ExpectedLease> {
        let in_line = |record: &ModelRecord| match record.phase {
            ModelPhase::Ready { position, since } => {
                Some((Reverse(record.pending_priority), position, since))
            }
            ModelPhase::Absent | ModelPhase::Held { .. } | ModelPhase::Dead => None,
        };
        let (rank, position, since) = in_line(&self.records[number])?;
        let ready = || self.records.iter().filter_map(in_line);
        let is_first =
            |of, position| ready().all(|(rank, it, _)| rank != of || position <= it);
        let mut firsts = ready().filter(|(rank, position, _)| is_first(*rank, *position));
        let first = ready().all(|(other, it, _)| (rank, position) <= (other, it));
        // A store may compare positions or times, and several keys may have the same time.
        let oldest = ready().all(|(_, other, _)| position.number <= other.number)
            || ready().all(|(_, other, _)| position.at <= other.at)
            || is_first(rank, position) && firsts.all(|(.., other)| since <= other);
        let record = &mut self.records[number];
        record.deliveries += 1;
        let priority = record.pending_priority.expect("a ready key is pending");
        record.pending_priority.take_if(|_| record.wake_at.is_none());
        let (token, deadline) = (grant.token, self.now + LEASE);
        record.phase = ModelPhase::Held { token, deadline, dirty: false, priority };
        let waited = Duration::from_micros(self.now.saturating_sub(since));
        Some(ExpectedLease { in_order: first || oldest, priority, waited })
    }

    fn count(&self, of: impl Fn(&ModelRecord) -> bool) -> u64 {
        self.records.iter().map(|record| u64::from(of(record))).sum()
    }

    /// Counts the keys by state. The model does not track ages.
    pub(super) fn stats(&self) -> Stats {
        let is_dead = |record: &ModelRecord| record.phase == ModelPhase::Dead;
        Stats {
            ready: self.count(|record| matches!(record.phase, ModelPhase::Ready { .. })),
            delayed: self.count(|record| record.wake_at.is_some()),
            processing: self
                .count(|record| matches!(record.phase, ModelPhase::Held { .. })),
            dirty: self.count(|record| {
                matches!(record.phase, ModelPhase::Held { dirty: true, .. })
            }),
            failing: self.count(|record| record.failures > 0 && !is_dead(record)),
            dead: self.count(is_dead),
            oldest_ready: None,
            paused: self.paused,
        }
    }

    /// Returns the token of a leased key, whether it is dirty, and its priority.
    pub(super) fn held(&self, number: usize) -> Option<(Token, bool, i8)> {
        match self.records[number].phase {
            ModelPhase::Held { token, dirty, priority, .. } => {
                Some((token, dirty, priority))
            }
            ModelPhase::Absent | ModelPhase::Ready { .. } | ModelPhase::Dead => None,
        }
    }

    pub(super) fn finish(
        &mut self,
        hold: &Hold,
        number: usize,
        finish: Finish,
    ) -> Finished {
        let current = self.held(number).filter(|(token, ..)| *token == hold.token);
        let Some((_, dirty, priority)) = current else { return Finished::LeaseLost };
        let deliveries = std::mem::take(&mut self.records[number].deliveries);
        self.records[number].phase = ModelPhase::Absent;
        let delay = match finish {
            Finish::Succeed => self.clear_failures(number, None),
            Finish::RequeueAfter(delay) => {
                self.clear_failures(number, Some(micros(delay)))
            }
            Finish::Retry => Some(self.fail(number)),
            Finish::RetryAfter(delay) => {
                self.fail(number);
                Some(micros(delay))
            }
            Finish::GiveUp if dirty => self.clear_failures(number, None),
            Finish::GiveUp => {
                self.make_dead(number);
                return Finished::Dead;
            }
            Finish::Release => {
                self.records[number].deliveries = deliveries - 1;
                Some(0)
            }
            Finish::Done | _ => None,
        };
        if delay.is_some() {
            self.raise(number, priority);
        }
        if let Some(delay @ 1..) = delay {
            self.delay(number, delay);
        }
        if dirty || delay == Some(0) {
            self.make_ready(number);
            return Finished::Requeued;
        }
        let later = |delay| Finished::Delayed(Duration::from_micros(delay));
        delay.map_or(Finished::Done, later)
    }

    fn make_dead(&mut self, number: usize) {
        let record = &mut self.records[number];
        (record.phase, record.wake_at, record.pending_priority) =
            (ModelPhase::Dead, None, None);
    }

    /// Releases every lease but that of one key. Returns how many.
    pub(super) fn reclaim(&mut self, but: usize) -> u64 {
        let position = self.next_position();
        let mut count = 0;
        for number in (0..KEYS).filter(|number| *number != but) {
            if let Some((.., priority)) = self.held(number) {
                self.raise(number, priority);
                self.records[number].phase = ModelPhase::ready(position);
                self.records[number].deliveries -= 1;
                count += 1;
            }
        }
        count
    }

    fn clear_failures(&mut self, number: usize, delay: Option<u64>) -> Option<u64> {
        self.records[number].failures = 0;
        delay
    }

    pub(super) fn extend(&mut self, hold: &Hold, number: usize) -> bool {
        match &mut self.records[number].phase {
            ModelPhase::Held { token, deadline, .. } => {
                let current = *token == hold.token;
                if current {
                    *deadline = self.now + LEASE;
                }
                current
            }
            ModelPhase::Absent | ModelPhase::Ready { .. } | ModelPhase::Dead => false,
        }
    }

    /// Returns the keys whose time has come. Keys with the same time are grouped.
    fn due(&self, of: impl Fn(&ModelRecord) -> Option<u64>) -> Vec<Vec<usize>> {
        let time = |number: &usize| of(&self.records[*number]);
        let mut due: Vec<_> = (0..KEYS)
            .filter(|number| time(number).is_some_and(|time| time <= self.now))
            .collect();
        due.sort_by_key(time);
        due.chunk_by(|a, b| time(a) == time(b)).map(<[usize]>::to_vec).collect()
    }

    /// Adds keys whose delay has ended. Returns how many.
    pub(super) fn wake(&mut self) -> u64 {
        let mut count = 0;
        for together in self.due(|record| record.wake_at) {
            let position = self.next_position();
            for number in together {
                self.records[number].wake_at = None;
                self.make_ready_at(number, position);
                count += 1;
            }
        }
        count
    }

    pub(super) fn expire(&mut self) -> Expired {
        let mut expired = Expired { due: self.wake(), returned: 0, dead: 0 };
        let deadline = |record: &ModelRecord| match record.phase {
            ModelPhase::Held { deadline, .. } => Some(deadline),
            ModelPhase::Absent | ModelPhase::Ready { .. } | ModelPhase::Dead => None,
        };
        for together in self.due(deadline) {
            let position = self.next_position();
            for number in together {
                let is_last = self.records[number].deliveries >= MAX_DELIVERIES;
                let is_dirty = self.held(number).is_some_and(|(_, dirty, _)| dirty);
                if is_last && is_dirty {
                    self.revive_dirty(number);
                    expired.returned += 1;
                } else if is_last {
                    self.make_dead(number);
                    expired.dead += 1;
                } else {
                    let priority = self.held(number).map(|(.., priority)| priority);
                    self.raise(number, priority.expect("only leased keys expire"));
                    self.records[number].phase = ModelPhase::ready(position);
                    expired.returned += 1;
                }
            }
        }
        expired
    }

    /// The add of a dirty key revives it at its last expiry. Only its priority is left.
    fn revive_dirty(&mut self, number: usize) {
        let pending_priority = self.records[number].pending_priority;
        let wake_at = Some(self.now + REVIVE_DIRTY);
        self.records[number] =
            ModelRecord { wake_at, pending_priority, ..ModelRecord::default() };
    }

    pub(super) fn remove(&mut self, number: usize) -> bool {
        let record = &mut self.records[number];
        record.pending_priority = None;
        let delayed = record.wake_at.take().is_some();
        match &mut record.phase {
            phase @ ModelPhase::Ready { .. } => {
                *phase = ModelPhase::Absent;
                true
            }
            ModelPhase::Held { dirty, .. } => std::mem::take(dirty) || delayed,
            ModelPhase::Absent | ModelPhase::Dead => delayed,
        }
    }

    pub(super) fn forget(&mut self, number: usize) {
        if self.records[number].phase != ModelPhase::Dead {
            self.records[number].failures = 0;
        }
    }

    /// Takes a key from the dead. Returns 1 if it was dead, and 0 otherwise.
    pub(super) fn take_from_dead(&mut self, number: usize) -> u64 {
        let dead = self.records[number].phase == ModelPhase::Dead;
        if dead {
            self.records[number] = ModelRecord::default();
        }
        dead.into()
    }

    pub(super) fn revive(&mut self, number: usize) -> u64 {
        let revived = self.take_from_dead(number);
        if revived == 1 {
            self.raise(number, 0);
            self.make_ready(number);
        }
        revived
    }
}

fn micros(delay: Duration) -> u64 {
    u64::try_from(delay.as_micros()).expect("short")
}
