//! The requests to the limiters, and when they pass.

use std::time::Duration;

use requeue::rate::{Hierarchy, Limit, Limiter, Pacer, Share, Window};
use requeue::testing::FakeClock;

use super::chart::{Chart, Colour, Row};

/// Milliseconds since the start.
pub(crate) type Millis = u32;

/// The interval at which waiting events try to pass.
const STEP: Millis = 10;

/// The end of the pictures.
pub(crate) const END: Millis = 11_000;

/// Times, and how many events want to happen then.
type Bursts = [(Millis, u32)];

/// A burst after one second, and a smaller one six seconds later.
const ASKED: [(Millis, u32); 2] = [(1000, 20), (7000, 16)];

/// Draws each limiter, at 5 events per second.
pub(crate) fn one_burst() -> Chart {
    Chart {
        title: "The same two bursts through limiters of 5 per second",
        rows: vec![
            row("asked", "20 at once, then 16", Colour::Grey, at_once(&ASKED)),
            row("Limiter", "5/s, burst 10", Colour::Blue, by_limiter()),
            row("Pacer", "5/s, no slack", Colour::Orange, by_pacer(0)),
            row("Pacer", "5/s, slack 10", Colour::Red, by_pacer(10)),
            row("Window", "10 in any 2 s", Colour::Green, by_window()),
        ],
    }
}

/// Draws two children of a hierarchy: one asks for the first burst, both for the second.
pub(crate) fn two_tenants() -> Chart {
    let web = [(7000, 16)];
    let [batch_passed, web_passed] = by_hierarchy([&ASKED, &web]);
    let all = merge(&batch_passed, &web_passed);
    Chart {
        title: "A hierarchy of 5 per second: batch alone, then web and batch together",
        rows: vec![
            row("batch asks", "20 at once, then 16", Colour::Grey, at_once(&ASKED)),
            row("web asks", "16 at once", Colour::Grey, at_once(&web)),
            row("batch", "2/s, ceiling 4/s", Colour::Orange, batch_passed),
            row("web", "3/s, no ceiling", Colour::Blue, web_passed),
            row("together", "5/s, burst 10", Colour::Green, all),
        ],
    }
}

fn row(
    name: &'static str,
    settings: &'static str,
    colour: Colour,
    at: Vec<Millis>,
) -> Row {
    Row { name, settings, colour, at }
}

fn by_limiter() -> Vec<Millis> {
    let clock = FakeClock::new();
    let limiter = Limiter::with_clock(Limit::per_second(5.0), 10, clock.clone());
    let [passed] = run(&clock, [&ASKED], |_| limiter.allow());
    passed
}

fn by_pacer(slack: u32) -> Vec<Millis> {
    let clock = FakeClock::new();
    let pacer = Pacer::builder(5).slack(slack).clock(clock.clone()).build();
    let [passed] = run(&clock, [&ASKED], |_| pacer.try_take().is_ok());
    passed
}

fn by_window() -> Vec<Millis> {
    let clock = FakeClock::new();
    let window = Window::with_clock(10, Duration::from_secs(2), clock.clone());
    let [passed] = run(&clock, [&ASKED], |_| window.allow());
    passed
}

fn by_hierarchy(asked: [&Bursts; 2]) -> [Vec<Millis>; 2] {
    let clock = FakeClock::new();
    let per_second = Limit::per_second;
    let all = Hierarchy::with_clock(per_second(5.0), 10, clock.clone());
    let batch = Share::new(per_second(2.0), 2).ceil(per_second(4.0), 6);
    let web = Share::new(per_second(3.0), 3);
    let children = [batch, web].map(|share| all.child(share).expect("5/s is enough"));
    run(&clock, asked, |child| children[child].allow())
}

/// Lets each event wait until `allow` returns true, and records when it does.
fn run<const N: usize>(
    clock: &FakeClock,
    asked: [&Bursts; N],
    allow: impl Fn(usize) -> bool,
) -> [Vec<Millis>; N] {
    let mut waiting = [0; N];
    let mut passed = [const { Vec::new() }; N];
    for now in (0..END).step_by(STEP as usize) {
        for (waiting, asked) in waiting.iter_mut().zip(asked) {
            *waiting +=
                asked.iter().filter(|(at, _)| *at == now).map(|(_, n)| n).sum::<u32>();
        }
        let mut blocked = false;
        while !blocked {
            blocked = true;
            for source in 0..N {
                if waiting[source] > 0 && allow(source) {
                    waiting[source] -= 1;
                    passed[source].push(now);
                    blocked = false;
                }
            }
        }
        clock.advance(Duration::from_millis(STEP.into()));
    }
    passed
}

fn at_once(asked: &Bursts) -> Vec<Millis> {
    asked.iter().flat_map(|&(at, n)| (0..n).map(move |_| at)).collect()
}

fn merge(a: &[Millis], b: &[Millis]) -> Vec<Millis> {
    let mut all = [a, b].concat();
    all.sort_unstable();
    all
}
