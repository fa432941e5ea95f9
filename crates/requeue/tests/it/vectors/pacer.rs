//! Uber's ratelimit.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use requeue::rate::Pacer;
use requeue::testing::FakeClock;
use serde_json::Value;

use super::histories;

#[test]
fn pacer_takes_as_long_as_in_go() {
    let (mut equal, mut carried) = (0, 0);
    for (number, history) in histories("pacer.jsonl").iter().enumerate() {
        let field = |name: &str| history[name].as_u64().unwrap();
        if field("per") % field("rate") == 0 {
            replay_exactly(history, &format!("pacer {number}"));
            equal += 1;
        } else {
            replay_with_remainder(history, &format!("pacer {number}"));
            carried += 1;
        }
    }
    assert!(equal >= 60 && carried >= 20, "{equal} and {carried}");
}

fn replay_exactly(history: &Value, pacer: &str) {
    let mut replay = Replay::new(history);
    for (gap, go) in takes(history) {
        replay.clock.advance(gap);
        let began = replay.clock.now();
        assert_eq!(replay.take().duration_since(began), go, "{pacer}, after {gap:?}");
    }
}

/// Decision 15: if the permissions do not divide the period, Go drops the remainder and gives
/// too many. Here it is carried, so each take is due up to a nanosecond later than in Go,
/// counted from the first.
fn replay_with_remainder(history: &Value, pacer: &str) {
    let mut replay = Replay::new(history);
    let mut go_clock = replay.clock.now();
    for (takes, (gap, slept)) in (0..).zip(takes(history)) {
        go_clock += gap;
        let here = replay.clock.now();
        replay.clock.advance(go_clock.saturating_duration_since(here));
        go_clock += slept;
        let later = replay.take().checked_duration_since(go_clock);
        let later = later.unwrap_or_else(|| panic!("{pacer}, take {takes} is early"));
        assert!(later <= Duration::from_nanos(takes), "{pacer}, take {takes}: {later:?}");
    }
}

fn takes(history: &Value) -> impl Iterator<Item = (Duration, Duration)> {
    let nanos = |value: &Value| Duration::from_nanos(value.as_u64().unwrap());
    let steps = history["steps"].as_array().unwrap();
    steps.iter().map(move |step| (nanos(&step[0]), nanos(&step[1])))
}

struct Replay {
    clock: FakeClock,
    pacer: Pacer,
}

impl Replay {
    fn new(history: &Value) -> Self {
        let field = |name: &str| history[name].as_u64().unwrap();
        let clock = FakeClock::new();
        let pacer = Pacer::builder(u32::try_from(field("rate")).unwrap())
            .per(Duration::from_nanos(field("per")))
            .slack(u32::try_from(field("slack")).unwrap())
            .clock(clock.clone())
            .build();
        Self { clock, pacer }
    }

    /// Takes, and advances the clock by exactly as much as the take sleeps.
    fn take(&mut self) -> Instant {
        let sleeps = self.pacer.try_take();
        let mut take = pin!(self.pacer.take());
        let mut poll = || take.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let Err(sleeps) = sleeps else { return sleeps.unwrap() };
        assert!(poll().is_pending());
        self.clock.advance(sleeps);
        match poll() {
            Poll::Ready(moment) => moment,
            Poll::Pending => panic!("try_take returned {sleeps:?}"),
        }
    }
}
