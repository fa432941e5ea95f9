use super::{Timing, Unfinished};

#[test]
fn unfinished_work_is_that_of_all_leased_keys() {
    let mut timing = Timing::new(None);
    for (slot, now) in [(0, 100), (1, 300), (2, 400)] {
        timing.start(now);
        timing.added(slot);
        timing.leased(slot);
    }
    timing.start(1000);
    assert_eq!(timing.unfinished(3), Unfinished { total: 900 + 700 + 600, longest: 900 });
    timing.done(0);
    assert_eq!(timing.unfinished(2), Unfinished { total: 700 + 600, longest: 700 });
    timing.done(2);
    timing.done(1);
    assert_eq!(timing.unfinished(0), Unfinished::default());
}

#[test]
fn time_that_goes_back_counts_as_the_latest_time() {
    let mut timing = Timing::new(None);
    timing.start(500);
    timing.added(0);
    timing.start(400);
    timing.leased(0);
    timing.start(450);
    timing.done(0);
    timing.added(1);
    timing.leased(1);
    timing.start(550);
    assert_eq!(timing.unfinished(1), Unfinished { total: 50, longest: 50 });
}

#[test]
fn memory_of_many_slots_is_given_back() {
    let mut timing = Timing::new(None);
    (0..100_000).for_each(|slot| timing.added(slot));
    drop(timing.take_events());
    timing.shrink(10);
    assert_eq!(timing.times.capacity(), 10);
}
