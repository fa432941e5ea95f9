use super::Timing;
use super::pace::{Pace, RAREST};
use super::running::Running;

/// Events that come every so many nanoseconds.
#[derive(Default)]
struct Events {
    pace: Pace,
    now: u64,
}

impl Events {
    /// Goes on until an event is timed: the how manieth that is.
    fn time_one(&mut self, nanos: u64) -> u64 {
        let mut passed = 1;
        while self.pace.passes() {
            passed += 1;
        }
        self.now += passed * nanos;
        assert_eq!(self.pace.take(), passed, "those that passed are untold");
        self.pace.clock(self.now);
        passed
    }

    /// The same so often: one event in so many was timed each time.
    fn time(&mut self, times: usize, nanos: u64, spacing: u64) {
        for _ in 0..times {
            assert_eq!(self.time_one(nanos), spacing);
        }
    }

    /// As few events are timed as ever are.
    fn at_their_busiest() -> Self {
        let mut events = Self::default();
        while events.time_one(1000) < u64::from(RAREST) {}
        events
    }
}

#[test]
fn events_that_come_fast_are_timed_ever_more_rarely_up_to_a_point() {
    let mut events = Events::default();
    events.time(64, 1000, 1);
    for spacing in [2, 4, 8, 16, 32, 64] {
        events.time(16, 1000, spacing);
    }
    events.time(1000, 1000, u64::from(RAREST));
}

#[test]
fn events_that_come_slowly_are_all_timed() {
    let mut events = Events::default();
    events.time(63, 1000, 1);
    events.time(1000, 1001, 1);
    let mut events = Events::at_their_busiest();
    events.time(1, 1001, u64::from(RAREST));
    events.time(64, 1000, 1);
    events.time(1, 1000, 2);
}

#[test]
fn event_after_a_pause_is_timed_and_a_spell_goes_on_if_it_was_fast() {
    let mut events = Events::at_their_busiest();
    assert!(events.pace.passes() && events.pace.passes());
    events.pace.pause();
    assert!(!events.pace.passes());
    assert_eq!(events.pace.take(), 3);
    events.now += 3000;
    events.pace.clock(events.now);
    events.time(1, 1000, u64::from(RAREST));
    events.pace.pause();
    events.time(1, 16_001, 1);
    events.time(1, 1000, 1);
}

#[test]
fn event_that_takes_its_time_among_fast_ones_does_not_end_a_spell() {
    let mut events = Events::default();
    for _ in 0..4 {
        events.time(15, 100, 1);
        events.time(1, 14_500, 1);
    }
    events.time(8, 100, 2);
}

#[test]
fn events_at_the_same_time_neither_begin_a_spell_nor_end_it() {
    let mut events = Events::default();
    events.time(1000, 0, 1);
    let mut events = Events::at_their_busiest();
    events.time(1, 0, u64::from(RAREST));
    // All of them count: twice as many may take twice as long.
    events.time(1, 2000, u64::from(RAREST));
    events.time(1, 1000, u64::from(RAREST));
}

#[test]
fn what_is_told_early_is_not_told_again() {
    let Events { mut pace, .. } = Events::at_their_busiest();
    assert!(pace.passes() && pace.passes() && pace.passes());
    assert_eq!((pace.flush(), pace.flush()), (3, 0));
    assert!(pace.passes());
    assert_eq!(pace.take(), 1);
}

#[test]
fn running_keys_are_known_from_their_time_or_from_when_they_were_met() {
    let mut running = Running::default();
    let (early, met_first) = (running.begin(0), running.untimed());
    running.stamp(early, 100);
    running.meet(3, 200);
    let met_later = running.untimed();
    running.meet(4, 300);
    running.meet(4, 400);
    assert_eq!(running.times(1000), (900 + 2 * 800 + 700, 900));
    let late = running.begin(1);
    running.stamp(late, 500);
    assert_eq!(running.end(early), (100, Some(1)), "the later stands in its place");
    assert_eq!(running.end(early), (500, None));
    assert_eq!(running.end(met_first), (200, None));
    assert_eq!(running.end(met_later), (300, None));
    assert_eq!(running.times(1000), (800, 800));
    assert_eq!(running.end(met_first), (200, None));
    running.meet(0, 500);
    assert_eq!(running.times(1000), (0, 0));
}

#[test]
fn memory_for_slots_and_for_a_batch_is_given_back() {
    let mut timing = Timing::default();
    for slot in 0..100_000 {
        assert!(timing.add(slot));
    }
    let mut readings = 0;
    drop(timing.take_news(|| {
        readings += 1;
        1
    }));
    assert_eq!(readings, 1);
    timing.shrink(10);
    assert_eq!(timing.times.capacity(), 10);
    assert!(timing.pending.capacity() <= super::MAX_PENDING);
}
