//! How far the line is known to be empty from its front.
//!
//! A key that was handed out keeps its place at the front of the line until it is done,
//! and its entry is there until the server removes it, which it cannot while any
//! transaction that began before is open. Going over those entries again and again is what
//! makes queues in PostgreSQL slow down. So a lease begins where the last one ended, and
//! looks from the front only now and then, for what was committed late.
//!
//! That is so for the line of priority 0. Those of other priorities are looked at from the
//! front each time.
//!
//! # Invariants
//!
//! 1. Unless looking from the front has become slow, a lease that finds nothing looks
//!    there too, and delays and leases are always looked at from the front. So nothing is
//!    overlooked, only found a little out of turn.
//! 2. Looks that begin at the front take at most a twentieth of the time; if looking there
//!    has become slow, so do those that end there.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use requeue::{Clock, SystemClock};

/// How often the line is looked at from its front, at most.
const FROM_FRONT: Duration = Duration::from_millis(50);

/// A look that takes longer than this is slow.
const SLOW: Duration = Duration::from_millis(50);

/// So many slow looks in a row, each begun after the one before, are more than a busy machine.
const SLOW_IN_A_ROW: u32 = 3;

/// How much longer than a slow look nothing is looked at from the front.
const RESPITE: u32 = 20;

/// Where a lease begins to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Aim {
    pub(crate) place: i64,
    pub(crate) moment: i64,
    pub(crate) thorough: bool,
}

/// What a lease learned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// The last place that was handed out in the line of priority 0.
    pub(crate) place: Option<i64>,
    /// The time at which nothing was left that is due.
    pub(crate) moment: Option<i64>,
    /// How long it took in the server.
    pub(crate) spent: Duration,
}

/// The low-water marks of one store.
#[derive(Debug, Default)]
pub(crate) struct Low {
    marks: Mutex<Marks>,
}

#[derive(Debug, Default)]
struct Marks {
    place: i64,
    moment: i64,
    /// When to begin at the front again.
    front_at: Option<Instant>,
    slow_in_a_row: u32,
    /// When the last slow look ended that counts.
    slow_at: Option<Instant>,
    slow_until: Option<Instant>,
}

impl Low {
    /// Where the next lease begins.
    pub(crate) fn aim(&self) -> Aim {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner).aim(SystemClock.now())
    }

    /// Takes in what a lease learned.
    pub(crate) fn learn(&self, aim: Aim, found: Found) {
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        marks.learn(aim, found, SystemClock.now());
    }
}

impl Marks {
    fn aim(&mut self, now: Instant) -> Aim {
        if self.slow_until.is_some_and(|until| now < until) {
            return Aim { place: self.place, moment: self.moment, thorough: false };
        }
        if self.front_at.is_some_and(|at| now < at) {
            return Aim { place: self.place, moment: 0, thorough: true };
        }
        self.front_at = now.checked_add(FROM_FRONT);
        Aim { place: 0, moment: 0, thorough: true }
    }

    fn learn(&mut self, aim: Aim, found: Found, now: Instant) {
        self.place = self.place.max(found.place.unwrap_or_default());
        self.moment = found.moment.unwrap_or(self.moment);
        if !aim.thorough {
            return;
        }
        if aim.place == 0 {
            self.front_at = now.checked_add(FROM_FRONT.max(found.spent * RESPITE));
        }
        if found.spent <= SLOW {
            self.slow_in_a_row = 0;
        } else if self.slow_at.is_none_or(|at| at + found.spent <= now) {
            self.slow_in_a_row += 1;
            self.slow_at = Some(now);
        }
        if self.slow_in_a_row >= SLOW_IN_A_ROW {
            self.slow_until = now.checked_add(found.spent * RESPITE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRONT: Aim = Aim { place: 0, moment: 0, thorough: true };

    fn found(place: i64, moment: i64, spent: Duration) -> Found {
        Found { place: Some(place), moment: Some(moment), spent }
    }

    #[test]
    fn a_lease_begins_where_the_last_one_ended_and_now_and_then_at_the_front() {
        let (mut marks, now) = (Marks::default(), SystemClock.now());
        assert_eq!(marks.aim(now), FRONT);
        marks.learn(FRONT, found(7, 9, Duration::ZERO), now);
        let next = Aim { place: 7, moment: 0, thorough: true };
        assert_eq!(marks.aim(now), next);
        assert_eq!(marks.aim(now + FROM_FRONT), FRONT);
    }

    #[test]
    fn a_look_from_the_front_that_takes_long_is_done_less_often() {
        let (mut marks, now) = (Marks::default(), SystemClock.now());
        let spent = FROM_FRONT / 2;
        let aim = marks.aim(now);
        marks.learn(aim, found(7, 9, spent), now);
        assert_eq!(marks.aim(now + spent * 19).place, 7);
        assert_eq!(marks.aim(now + spent * 20), FRONT);
    }

    #[test]
    fn what_has_become_slow_is_done_for_a_twentieth_of_the_time() {
        let (mut marks, now) = (Marks::default(), SystemClock.now());
        let spent = Duration::from_millis(100);
        for round in 1..=SLOW_IN_A_ROW {
            assert!(marks.aim(now).thorough);
            marks.learn(FRONT, found(7, 9, spent), now + spent * round);
        }
        let now = now + spent * SLOW_IN_A_ROW;
        let short = Aim { place: 7, moment: 9, thorough: false };
        assert_eq!(marks.aim(now + spent * 19), short);
        assert_eq!(marks.aim(now + spent * 20), FRONT);
    }
    /// A machine that stood still for a moment made all looks slow that were on their way,
    /// and keys were overlooked for seconds.
    #[test]
    fn slow_looks_at_the_same_time_are_one() {
        let (mut marks, now) = (Marks::default(), SystemClock.now());
        for _ in 0..2 * SLOW_IN_A_ROW {
            marks.learn(FRONT, found(7, 9, Duration::from_millis(100)), now);
        }
        assert!(marks.aim(now).thorough);
    }
}
