//! No limiter exceeds its bound, even if its callers give up.
//!
//! Callers wait, give up in any order, ask without waiting, reserve and cancel. An event
//! counts at the time at which it was permitted, not when its caller was polled.

use std::time::Duration;

use proptest::prelude::*;

use super::tasks::Tasks;
use crate::rate::line::Held;
use crate::rate::moment::{Nanos, Timeline, nanos};
use crate::rate::{Hierarchy, Keyed, Limit, Limiter, Pacer, Share, Window};
use crate::testing::FakeClock;

const MS: Nanos = 1_000_000;

/// A step of a caller.
#[derive(Clone, Debug)]
enum Step {
    Wait(u32),
    /// Drops the wait at this index.
    Leave(usize),
    Allow(u32),
    Reserve(u32),
    /// Cancels the reservation at this index.
    Cancel(usize),
    /// Lets this many milliseconds pass.
    Pass(u64),
    /// Polls the waits that were woken.
    Poll,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..4_u32).prop_map(Step::Wait),
        3 => any::<usize>().prop_map(Step::Leave),
        2 => (0..4_u32).prop_map(Step::Allow),
        2 => (0..4_u32).prop_map(Step::Reserve),
        2 => any::<usize>().prop_map(Step::Cancel),
        3 => prop_oneof![Just(100), 0..700_u64].prop_map(Step::Pass),
        4 => Just(Step::Poll),
    ];
    proptest::collection::vec(step, 1..120)
}

/// Events: nanoseconds since the start, and tokens.
#[derive(Default, Debug)]
struct Events(Vec<(Nanos, u32)>);

impl Events {
    fn push(&mut self, at: Nanos, n: u32) {
        self.0.push((at, n));
    }

    /// Checks that any span of time has at most `burst + limit × time` events, allowing for
    /// the rounding to a nanosecond.
    fn check_bucket(mut self, limit: f64, burst: u32) -> Result<(), TestCaseError> {
        self.0.sort_unstable();
        for start in 0..self.0.len() {
            let mut events = 0.0;
            for &(at, n) in &self.0[start..] {
                events += f64::from(n);
                let time = seconds(at - self.0[start].0 + 1);
                let most = f64::from(burst) + limit * time + 1e-6;
                prop_assert!(events <= most, "{events} of {most} from {start}: {self:?}");
            }
        }
        Ok(())
    }
}

#[expect(clippy::cast_precision_loss, reason = "less than an hour")]
fn seconds(span: Nanos) -> f64 {
    span as f64 / 1e9
}

fn limit() -> impl Strategy<Value = f64> {
    prop_oneof![Just(1.0), Just(10.0), Just(3.0), 0.5..50.0]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 256 }))]

    #[test]
    fn limiter_keeps_to_burst_and_limit(
        limit in limit(),
        burst in 1..5_u32,
        steps in steps(),
    ) {
        let clock = FakeClock::new();
        let start = clock.now();
        let line = Timeline::from(start);
        let limiter =
            Limiter::with_clock(Limit::per_second(limit), burst, clock.clone());
        let (mut tasks, mut reserved, mut events) =
            (Tasks::new(), Vec::new(), Events::default());
        for step in steps {
            let now = nanos(clock.now() - start);
            match step {
                Step::Wait(n) => {
                    let limiter = &limiter;
                    tasks.spawn(async move {
                        (limiter.line_up(n).await, n)
                    });
                }
                Step::Leave(place) => tasks.cancel_at(place),
                Step::Allow(n) if limiter.allow_n(n) => events.push(now, n),
                Step::Reserve(n) => reserved.extend(limiter.reserve_n(n).map(|r| (r, n))),
                Step::Cancel(place) if !reserved.is_empty() => {
                    let (reservation, _) = reserved.remove(place % reserved.len());
                    // A reservation whose time has passed has happened.
                    if reservation.time_to_act() >= clock.now() {
                        reservation.cancel();
                    }
                }
                Step::Pass(ms) => clock.advance(Duration::from_millis(ms)),
                Step::Poll => {
                    for (_, (held, n)) in tasks.run() {
                        if let Ok(Held { claim: Some(claim), .. }) = held {
                            events.push(nanos(line.instant(claim.act()) - start), n);
                        }
                    }
                }
                Step::Allow(_) | Step::Cancel(_) => {}
            }
        }
        for (reservation, n) in reserved {
            events.push(nanos(reservation.time_to_act() - start), n);
        }
        events.check_bucket(limit, burst)?;
    }

    #[test]
    fn keyed_keeps_to_burst_and_limit(
        limit in limit(),
        burst in 1..5_u32,
        steps in steps(),
    ) {
        let clock = FakeClock::new();
        let start = clock.now();
        let line = Timeline::from(start);
        let keyed = Keyed::with_clock(Limit::per_second(limit), burst, clock.clone());
        let (mut tasks, mut reserved, mut events) =
            (Tasks::new(), Vec::new(), Events::default());
        for step in steps {
            let now = nanos(clock.now() - start);
            match step {
                Step::Wait(n) => {
                    let keyed = &keyed;
                    tasks.spawn(async move {
                        match keyed.line_up(&7, n, None) {
                            Some(waiting) => (Some(waiting.await), n),
                            None => (None, n),
                        }
                    });
                }
                Step::Leave(place) => tasks.cancel_at(place),
                Step::Allow(n) if keyed.allow_n(&7, n) => events.push(now, n),
                Step::Reserve(n) => {
                    reserved.extend(keyed.reserve_n(&7, n).map(|r| (r, n)));
                }
                Step::Cancel(place) if !reserved.is_empty() => {
                    let (reservation, _) = reserved.remove(place % reserved.len());
                    // A reservation whose time has passed has happened.
                    if reservation.time_to_act() >= clock.now() {
                        reservation.cancel();
                    }
                }
                Step::Pass(ms) => clock.advance(Duration::from_millis(ms)),
                Step::Poll => {
                    for (_, (held, n)) in tasks.run() {
                        match held {
                            Some(Ok(Held { claim: Some(claim), .. })) => {
                                let act = line.instant(claim.act());
                                events.push(nanos(act - start), n);
                            }
                            None => events.push(now, n),
                            Some(_) => {}
                        }
                    }
                }
                Step::Allow(_) | Step::Cancel(_) => {}
            }
        }
        for (reservation, n) in reserved {
            events.push(nanos(reservation.time_to_act() - start), n);
        }
        events.check_bucket(limit, burst)?;
    }

    #[test]
    fn pacer_keeps_its_interval(
        permissions in 1..20_u32,
        slack in 0..3_u32,
        steps in steps(),
    ) {
        let clock = FakeClock::new();
        let start = clock.now();
        let pacer =
            Pacer::builder(permissions).slack(slack).clock(clock.clone()).build();
        let (mut tasks, mut events) = (Tasks::new(), Vec::new());
        for step in steps {
            match step {
                Step::Wait(_) => drop(tasks.spawn(pacer.take())),
                Step::Leave(place) => tasks.cancel_at(place),
                Step::Allow(_) => events.extend(pacer.try_take()),
                Step::Pass(ms) => clock.advance(Duration::from_millis(ms)),
                Step::Poll => events.extend(tasks.run().into_iter().map(|(_, at)| at)),
                Step::Reserve(_) | Step::Cancel(_) => {}
            }
        }
        events.sort_unstable();
        // A burst of slack + 1 slots, and then one per interval.
        let mut slots = Events::default();
        for at in &events {
            slots.push(nanos(*at - start), 1);
        }
        slots.check_bucket(f64::from(permissions), slack + 1)?;
    }

    #[test]
    fn window_never_exceeds_n_events(
        n in 1..5_u32,
        per in 1..500_i64,
        steps in steps(),
    ) {
        let clock = FakeClock::new();
        let start = clock.now();
        let line = Timeline::from(start);
        let per_stretch = Duration::from_nanos(u64::try_from(per * MS).unwrap());
        let window = Window::with_clock(n, per_stretch, clock.clone());
        let (mut tasks, mut events) = (Tasks::new(), Vec::new());
        for step in steps {
            let now = nanos(clock.now() - start);
            match step {
                Step::Wait(asked) => {
                    let window = &window;
                    tasks.spawn(async move {
                        (window.line_up(asked).await, asked)
                    });
                }
                Step::Leave(place) => tasks.cancel_at(place),
                Step::Allow(asked) if window.allow_n(asked) => {
                    events.extend((0..asked).map(|_| now));
                }
                Step::Pass(ms) => clock.advance(Duration::from_millis(ms)),
                Step::Poll => {
                    for (_, (held, asked)) in tasks.run() {
                        if let Ok(held) = held {
                            let at = nanos(line.instant(held.ready) - start);
                            events.extend((0..asked).map(|_| at));
                        }
                    }
                }
                Step::Allow(_) | Step::Reserve(_) | Step::Cancel(_) => {}
            }
        }
        events.sort_unstable();
        for row in events.windows(n as usize + 1) {
            prop_assert!(row[n as usize] - row[0] >= per * MS, "{events:?}");
        }
    }

    #[test]
    fn hierarchy_keeps_to_burst_and_limit_of_its_root(
        limit in 2..20_u32,
        burst in 2..6_u32,
        steps in steps(),
    ) {
        let clock = FakeClock::new();
        let start = clock.now();
        let per_second = |n: u32| Limit::per_second(f64::from(n));
        let root = Hierarchy::with_clock(per_second(limit), burst, clock.clone());
        let child = root.child(Share::new(per_second(limit / 2), burst / 2)).unwrap();
        let borrower = root.child(Share::new(Limit::ZERO, 0)).unwrap();
        let nodes = [root, child, borrower];
        let (mut tasks, mut events) = (Tasks::new(), Events::default());
        for (turn, step) in steps.into_iter().enumerate() {
            let (now, node) = (nanos(clock.now() - start), &nodes[turn % 3]);
            match step {
                Step::Wait(n) => {
                    tasks.spawn(async move { (node.wait_n(n).await, n) });
                }
                Step::Leave(place) => tasks.cancel_at(place),
                Step::Allow(n) if node.allow_n(n) => events.push(now, n),
                Step::Pass(ms) => clock.advance(Duration::from_millis(ms)),
                Step::Poll => {
                    for (_, (waited, n)) in tasks.run() {
                        if waited.is_ok() {
                            events.push(now, n);
                        }
                    }
                }
                Step::Allow(_) | Step::Reserve(_) | Step::Cancel(_) => {}
            }
        }
        events.check_bucket(f64::from(limit), burst)?;
    }
}
