use super::pace::Pace;
use super::running::Running;
use super::{SPACING, Timing};

/// Times one event in so many of those that come every `nanos`.
fn spacing(pace: &mut Pace, now: &mut u64, nanos: u64) -> u64 {
    let mut passed = 1;
    while pace.passes() {
        *now += nanos;
        passed += 1;
    }
    *now += nanos;
    assert_eq!(pace.take(), passed, "those that passed are untold");
    pace.clock(*now);
    passed
}

#[test]
fn pace_changes_with_the_time_between_events() {
    let (mut pace, mut now) = (Pace::new(SPACING), 0);
    for _ in 0..64 {
        assert_eq!(spacing(&mut pace, &mut now, 1000), 1);
    }
    for _ in 0..10 {
        assert_eq!(spacing(&mut pace, &mut now, 1000), u64::from(SPACING));
    }
    assert_eq!(spacing(&mut pace, &mut now, 1001), u64::from(SPACING));
    for _ in 0..64 {
        assert_eq!(spacing(&mut pace, &mut now, 1000), 1);
    }
    assert_eq!(spacing(&mut pace, &mut now, 1000), u64::from(SPACING));
}

#[test]
fn event_after_a_pause_is_timed_and_a_spell_goes_on_if_it_was_fast() {
    let (mut pace, mut now) = (Pace::new(SPACING), 0);
    for _ in 0..64 {
        spacing(&mut pace, &mut now, 10);
    }
    pace.pause();
    assert_eq!(spacing(&mut pace, &mut now, 1000), 1);
    assert_eq!(spacing(&mut pace, &mut now, 1000), u64::from(SPACING));
    pace.pause();
    assert_eq!(spacing(&mut pace, &mut now, 1001), 1);
    assert_eq!(spacing(&mut pace, &mut now, 1000), 1);
}

#[test]
fn events_at_the_same_time_neither_begin_a_spell_nor_end_it() {
    let (mut pace, mut now) = (Pace::new(SPACING), 0);
    for _ in 0..1000 {
        assert_eq!(spacing(&mut pace, &mut now, 0), 1);
    }
    for _ in 0..64 {
        assert_eq!(spacing(&mut pace, &mut now, 1000), 1);
    }
    assert_eq!(spacing(&mut pace, &mut now, 0), u64::from(SPACING));
    // All of them count: twice as many may take twice as long.
    assert_eq!(spacing(&mut pace, &mut now, 2000), u64::from(SPACING));
    assert_eq!(spacing(&mut pace, &mut now, 1000), u64::from(SPACING));
}

#[test]
fn what_is_told_early_is_not_told_again() {
    let mut pace = Pace::new(SPACING);
    let mut now = 0;
    for _ in 0..64 {
        spacing(&mut pace, &mut now, 1);
    }
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
