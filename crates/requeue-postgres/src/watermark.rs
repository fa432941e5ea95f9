//! The watermark: where the next lease begins to look for ready keys.
//!
//! A leased key keeps its position until it is finished, and its index entry stays until
//! the server removes it. The server cannot do that while an older transaction is open.
//! Reading those entries again and again is what makes queues in PostgreSQL slow down. So a
//! lease begins where the last one ended, and only now and then at the front, for keys that
//! were committed late.
//!
//! This holds for priority 0. Other priorities are read from the front each time.
//!
//! # Invariants
//!
//! 1. A lease that finds no key above the watermark looks below it, and delays and expired
//!    leases are read from the front, unless that has become slow. So no key is overlooked;
//!    some are leased out of order.
//! 2. Leases that begin at the front take at most a twentieth of the time. If the front has
//!    become slow, that includes leases that only end there.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use requeue::{Clock, SystemClock};

/// Shortest time between two leases that begin at the front.
const FRONT_INTERVAL: Duration = Duration::from_millis(50);

/// A lease that takes longer than this is slow.
const SLOW: Duration = Duration::from_millis(50);

/// This many slow leases in a row, one after the other, are not due to a busy machine.
const SLOW_IN_A_ROW: u32 = 3;

/// How long the front is avoided after a slow lease, as a multiple of its duration.
const REST: u32 = 20;

/// Where a lease begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) seq: i64,
    pub(crate) time: i64,
    /// Whether to look below `seq` if no key is above.
    pub(crate) thorough: bool,
}

/// What a lease found out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// The last leased `seq` of priority 0.
    pub(crate) last_seq: Option<i64>,
    /// The time up to which nothing is due.
    pub(crate) swept_until: Option<i64>,
    /// The duration of the call in the server.
    pub(crate) spent: Duration,
}

/// The watermarks of one store.
#[derive(Debug, Default)]
pub(crate) struct Watermark {
    marks: Mutex<Marks>,
}

#[derive(Debug, Default)]
struct Marks {
    seq: i64,
    time: i64,
    /// When a lease begins at the front again.
    front_at: Option<Instant>,
    slow_in_a_row: u32,
    /// When the last counted slow lease ended.
    slow_at: Option<Instant>,
    slow_until: Option<Instant>,
}

impl Watermark {
    /// Returns where the next lease begins.
    pub(crate) fn start(&self) -> Start {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner).start(SystemClock.now())
    }

    /// Records what a lease found out.
    pub(crate) fn record(&self, start: Start, progress: Progress) {
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        marks.record(start, progress, SystemClock.now());
    }
}

impl Marks {
    fn start(&mut self, now: Instant) -> Start {
        if self.slow_until.is_some_and(|until| now < until) {
            return Start { seq: self.seq, time: self.time, thorough: false };
        }
        if self.front_at.is_some_and(|at| now < at) {
            return Start { seq: self.seq, time: 0, thorough: true };
        }
        self.front_at = now.checked_add(FRONT_INTERVAL);
        Start { seq: 0, time: 0, thorough: true }
    }

    fn record(&mut self, start: Start, progress: Progress, now: Instant) {
        self.seq = self.seq.max(progress.last_seq.unwrap_or_default());
        self.time = progress.swept_until.unwrap_or(self.time);
        if !start.thorough {
            return;
        }
        if start.seq == 0 {
            self.front_at = now.checked_add(FRONT_INTERVAL.max(progress.spent * REST));
        }
        if progress.spent <= SLOW {
            self.slow_in_a_row = 0;
        } else if self.slow_at.is_none_or(|at| at + progress.spent <= now) {
            self.slow_in_a_row += 1;
            self.slow_at = Some(now);
        }
        if self.slow_in_a_row >= SLOW_IN_A_ROW {
            self.slow_until = now.checked_add(progress.spent * REST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRONT: Start = Start { seq: 0, time: 0, thorough: true };

    fn progress(seq: i64, time: i64, spent: Duration) -> Progress {
        Progress { last_seq: Some(seq), swept_until: Some(time), spent }
    }

    #[test]
    fn lease_begins_where_the_last_one_ended_and_sometimes_at_the_front() {
        let (mut marks, now) = (Marks::default(), SystemClock.now());
        assert_eq!(marks.start(now), FRONT);
        marks.record(FRONT, progress(7, 9, Duration::ZERO), now);
        let next = Start { seq: 7, time: 0, thorough: true };
        assert_eq!(marks.start(now), next);
        assert_eq!(marks.start(now + FRONT_INTERVAL), FRONT);
    }

    #[test]
    fn slow_front_is_visited_less_often() {
        let (mut marks, now) = (Marks::default(), SystemClock.now());
        let spent = FRONT_INTERVAL / 2;
        let start = marks.start(now);
        marks.record(start, progress(7, 9, spent), now);
        assert_eq!(marks.start(now + spent * 19).seq, 7);
        assert_eq!(marks.start(now + spent * 20), FRONT);
    }

    #[test]
    fn slow_leases_are_thorough_for_a_twentieth_of_the_time() {
        let (mut marks, now) = (Marks::default(), SystemClock.now());
        let spent = Duration::from_millis(100);
        for round in 1..=SLOW_IN_A_ROW {
            assert!(marks.start(now).thorough);
            marks.record(FRONT, progress(7, 9, spent), now + spent * round);
        }
        let now = now + spent * SLOW_IN_A_ROW;
        let short = Start { seq: 7, time: 9, thorough: false };
        assert_eq!(marks.start(now + spent * 19), short);
        assert_eq!(marks.start(now + spent * 20), FRONT);
    }

    /// A machine that stalled for a moment made all concurrent leases slow, and keys were
    /// overlooked for seconds.
    #[test]
    fn concurrent_slow_leases_count_as_one() {
        let (mut marks, now) = (Marks::default(), SystemClock.now());
        for _ in 0..2 * SLOW_IN_A_ROW {
            marks.record(FRONT, progress(7, 9, Duration::from_millis(100)), now);
        }
        assert!(marks.start(now).thorough);
    }
}
