//! The rules of a store once more, for a few keys and as short as they can be said. It
//! knows no engine, and shares no code with one.
//!
//! Times are microseconds. A key that became ready has a place in the line of its priority;
//! what was moved at the same time has the same place, since its order is left open.

use std::cmp::Reverse;
use std::time::Duration;

use requeue::{Added, Finish};

use crate::{Expired, Finished, Grant, Hold, Stats, Token, When};

/// How many keys there are: their numbers are their names.
pub(super) const KEYS: usize = 4;
/// After how many grants without an end a key dies.
pub(super) const MAX_DELIVERIES: u32 = 2;
/// How long leases last.
pub(super) const LEASE: u64 = 10_000;
/// How long a dead key waits after it is added.
pub(super) const REVIVE: u64 = 7_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Absent,
    Ready {
        place: Place,
        /// Since when, wherever it stood.
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

/// Where in its line a key stands, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    number: u64,
    at: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    pub(super) state: State,
    pub(super) wake_at: Option<u64>,
    /// The priority of what is planned, if anything is.
    pub(super) planned: Option<i8>,
    pub(super) failures: u32,
    pub(super) deliveries: u32,
}

/// What the rules say of a key that was handed out.
pub(super) struct Turn {
    /// It was the first of the highest priority, or has waited for the longest.
    pub(super) has_come: bool,
    pub(super) priority: i8,
    pub(super) waited: Duration,
}

impl State {
    /// Of a key that becomes ready, and so has just got its place.
    fn ready(place: Place) -> Self {
        Self::Ready { place, since: place.at }
    }
}

#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) records: [Record; KEYS],
    pub(super) now: u64,
    pub(super) paused: bool,
    last_place: u64,
}

impl Model {
    pub(super) fn new(now: u64) -> Self {
        Self { now, ..Self::default() }
    }

    fn next_place(&mut self) -> Place {
        self.last_place += 1;
        Place { number: self.last_place, at: self.now }
    }

    pub(super) fn add(&mut self, number: usize, when: When, priority: i8) -> Added {
        let was_dead = self.records[number].state == State::Dead;
        if was_dead {
            self.records[number] = Record::default();
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

    /// A key that is ready moves to the end of its new line.
    fn raise(&mut self, number: usize, priority: i8) {
        let place = self.next_place();
        let record = &mut self.records[number];
        let before = record.planned;
        record.planned = before.max(Some(priority));
        if let State::Ready { place: mine, .. } = &mut record.state {
            *mine = if before < record.planned { place } else { *mine };
        }
    }

    fn make_ready(&mut self, number: usize) -> Added {
        let place = self.next_place();
        self.make_ready_at(number, place)
    }

    fn make_ready_at(&mut self, number: usize, place: Place) -> Added {
        match &mut self.records[number].state {
            state @ State::Absent => {
                *state = State::ready(place);
                Added::Ready
            }
            State::Held { dirty: dirty @ false, .. } => {
                *dirty = true;
                Added::Dirty
            }
            State::Ready { .. } | State::Held { .. } | State::Dead => Added::Duplicate,
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

    /// 5 ms, doubled for each failure before, up to 1000 s.
    fn fail(&mut self, number: usize) -> u64 {
        let failures = &mut self.records[number].failures;
        let delay = 5_000_u64.saturating_mul(2_u64.saturating_pow(*failures));
        *failures += 1;
        delay.min(1_000_000_000)
    }

    /// Takes a key out of its line, if it was in one.
    pub(super) fn grant(&mut self, grant: &Grant, number: usize) -> Option<Turn> {
        let in_line = |record: &Record| match record.state {
            State::Ready { place, since } => {
                Some((Reverse(record.planned), place, since))
            }
            State::Absent | State::Held { .. } | State::Dead => None,
        };
        let (rank, place, since) = in_line(&self.records[number])?;
        let ready = || self.records.iter().filter_map(in_line);
        let is_first = |of, place| ready().all(|(rank, it, _)| rank != of || place <= it);
        let mut firsts = ready().filter(|(rank, place, _)| is_first(*rank, *place));
        let first = ready().all(|(other, it, _)| (rank, place) <= (other, it));
        // A store may compare places, or times, of which several keys may have the same.
        let oldest = ready().all(|(_, other, _)| place.number <= other.number)
            || ready().all(|(_, other, _)| place.at <= other.at)
            || is_first(rank, place) && firsts.all(|(.., other)| since <= other);
        let record = &mut self.records[number];
        record.deliveries += 1;
        let priority = record.planned.expect("what is ready is planned");
        record.planned.take_if(|_| record.wake_at.is_none());
        let (token, deadline) = (grant.token, self.now + LEASE);
        record.state = State::Held { token, deadline, dirty: false, priority };
        let waited = Duration::from_micros(self.now.saturating_sub(since));
        Some(Turn { has_come: first || oldest, priority, waited })
    }

    fn count(&self, of: impl Fn(&Record) -> bool) -> u64 {
        self.records.iter().map(|record| u64::from(of(record))).sum()
    }

    /// How many stand where. How long they did is not known here.
    pub(super) fn stats(&self) -> Stats {
        let is_dead = |record: &Record| record.state == State::Dead;
        Stats {
            ready: self.count(|record| matches!(record.state, State::Ready { .. })),
            delayed: self.count(|record| record.wake_at.is_some()),
            processing: self.count(|record| matches!(record.state, State::Held { .. })),
            dirty: self
                .count(|record| matches!(record.state, State::Held { dirty: true, .. })),
            failing: self.count(|record| record.failures > 0 && !is_dead(record)),
            dead: self.count(is_dead),
            oldest_ready: None,
            paused: self.paused,
        }
    }

    /// The token by which a key is held, whether it is dirty, and its priority.
    pub(super) fn held(&self, number: usize) -> Option<(Token, bool, i8)> {
        match self.records[number].state {
            State::Held { token, dirty, priority, .. } => Some((token, dirty, priority)),
            State::Absent | State::Ready { .. } | State::Dead => None,
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
        self.records[number].state = State::Absent;
        let delay = match finish {
            Finish::Succeed => self.forgive(number, None),
            Finish::RequeueAfter(delay) => self.forgive(number, Some(micros(delay))),
            Finish::Retry => Some(self.fail(number)),
            Finish::RetryAfter(delay) => {
                self.fail(number);
                Some(micros(delay))
            }
            Finish::GiveUp if dirty => self.forgive(number, None),
            Finish::GiveUp => {
                self.bury(number);
                return Finished::Buried;
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

    fn bury(&mut self, number: usize) {
        let record = &mut self.records[number];
        (record.state, record.wake_at, record.planned) = (State::Dead, None, None);
    }

    /// Releases every lease but that of one key: how many.
    pub(super) fn reclaim(&mut self, but: usize) -> u64 {
        let place = self.next_place();
        let mut count = 0;
        for number in (0..KEYS).filter(|number| *number != but) {
            if let Some((.., priority)) = self.held(number) {
                self.raise(number, priority);
                self.records[number].state = State::ready(place);
                self.records[number].deliveries -= 1;
                count += 1;
            }
        }
        count
    }

    fn forgive(&mut self, number: usize, delay: Option<u64>) -> Option<u64> {
        self.records[number].failures = 0;
        delay
    }

    pub(super) fn extend(&mut self, hold: &Hold, number: usize) -> bool {
        match &mut self.records[number].state {
            State::Held { token, deadline, .. } => {
                let current = *token == hold.token;
                if current {
                    *deadline = self.now + LEASE;
                }
                current
            }
            State::Absent | State::Ready { .. } | State::Dead => false,
        }
    }

    /// The keys whose time, as `of` tells it, has come: those of one time together.
    fn due(&self, of: impl Fn(&Record) -> Option<u64>) -> Vec<Vec<usize>> {
        let time = |number: &usize| of(&self.records[*number]);
        let mut due: Vec<_> = (0..KEYS)
            .filter(|number| time(number).is_some_and(|time| time <= self.now))
            .collect();
        due.sort_by_key(time);
        due.chunk_by(|a, b| time(a) == time(b)).map(<[usize]>::to_vec).collect()
    }

    /// Ends delays that are over: how many.
    pub(super) fn wake(&mut self) -> u64 {
        let mut count = 0;
        for together in self.due(|record| record.wake_at) {
            let place = self.next_place();
            for number in together {
                self.records[number].wake_at = None;
                self.make_ready_at(number, place);
                count += 1;
            }
        }
        count
    }

    pub(super) fn expire(&mut self) -> Expired {
        let mut expired = Expired { due: self.wake(), returned: 0, dead: 0 };
        let deadline = |record: &Record| match record.state {
            State::Held { deadline, .. } => Some(deadline),
            State::Absent | State::Ready { .. } | State::Dead => None,
        };
        for together in self.due(deadline) {
            let place = self.next_place();
            for number in together {
                if self.records[number].deliveries >= MAX_DELIVERIES {
                    self.bury(number);
                    expired.dead += 1;
                } else {
                    let priority = self.held(number).map(|(.., priority)| priority);
                    self.raise(number, priority.expect("only what is held runs out"));
                    self.records[number].state = State::ready(place);
                    expired.returned += 1;
                }
            }
        }
        expired
    }

    pub(super) fn remove(&mut self, number: usize) -> bool {
        let record = &mut self.records[number];
        record.planned = None;
        let delayed = record.wake_at.take().is_some();
        match &mut record.state {
            state @ State::Ready { .. } => {
                *state = State::Absent;
                true
            }
            State::Held { dirty, .. } => std::mem::take(dirty) || delayed,
            State::Absent | State::Dead => delayed,
        }
    }

    pub(super) fn forget(&mut self, number: usize) {
        if self.records[number].state != State::Dead {
            self.records[number].failures = 0;
        }
    }

    /// Takes a key from the dead: how many that were.
    pub(super) fn exhume(&mut self, number: usize) -> u64 {
        let dead = self.records[number].state == State::Dead;
        if dead {
            self.records[number] = Record::default();
        }
        dead.into()
    }

    pub(super) fn revive(&mut self, number: usize) -> u64 {
        let revived = self.exhume(number);
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
