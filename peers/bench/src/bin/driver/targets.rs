//! The targets of the design, section 5, and which of them hold.

use std::fmt::Write;

use crate::result::{Measured, find};
use crate::table::short;

/// What is asked of one row.
enum Target {
    /// So many times better than the Go original.
    Go(f64),
    /// At most so many nanoseconds or bytes.
    AtMost(f64),
    /// At most so many times the figure of another row.
    Of(f64, &'static str, &'static str),
    /// So many times better than another system in the same scenario.
    Ahead(f64, &'static str),
}

use Target::{Ahead, AtMost, Go, Of};

const TARGETS: &[(&str, &str, Target)] = &[
    ("cycle.u64.1k", "requeue", Go(2.5)),
    ("cycle.u64.1M", "requeue", Go(2.5)),
    ("cycle.u64.1k", "requeue-next", Go(3.5)),
    ("cycle.u64.1M", "requeue-next", Go(3.5)),
    ("cycle.u64.1k", "requeue-batch64", Go(7.0)),
    ("cycle.u64.1M", "requeue-batch64", Go(7.0)),
    ("cycle.str.1k", "requeue-next", Go(3.0)),
    ("cycle.str.1M", "requeue-next", Go(2.0)),
    ("fill.u64.1M", "requeue-next", Go(4.0)),
    ("fill.str.1M", "requeue-next", Go(4.0)),
    ("dup.u64", "requeue", Go(1.3)),
    ("dup.str", "requeue", Go(1.3)),
    ("dup.u64", "requeue-batch64", Go(5.0)),
    ("throughput.1p1c", "requeue-next", Go(3.5)),
    ("throughput.2p2c", "requeue-next", Go(3.5)),
    ("throughput.8p8c", "requeue-next", Go(3.5)),
    ("throughput.1p1c", "requeue-batch64", Go(5.0)),
    ("throughput.2p2c", "requeue-batch64", Go(5.0)),
    ("throughput.8p8c", "requeue-batch64", Go(5.0)),
    ("delay.insert.u64", "requeue", Go(6.0)),
    ("memory.delayed.u64", "requeue", AtMost(60.0)),
    ("lateness.1k", "requeue", Go(10.0)),
    ("lateness.1k", "requeue", AtMost(70_000.0)),
    ("lateness.1k", "requeue", Ahead(20.0, "tokio-delay-queue")),
    ("lateness.1k", "requeue-async", Go(10.0)),
    ("lateness.1k", "requeue-async", AtMost(70_000.0)),
    ("lateness.1k", "requeue-async", Ahead(20.0, "tokio-delay-queue")),
    ("retry.limited.u64", "requeue", Go(6.0)),
    ("retry.first.u64", "requeue", Go(2.5)),
    ("retry.repeat.u64", "requeue", Go(3.5)),
    ("limit.allow.1t", "requeue", Go(2.4)),
    ("limit.allow.1t", "requeue", Of(1.3, "limit.allow.1t", "governor")),
    ("limit.allow.1t", "requeue", Of(1.3, "limit.allow.1t", "governor-std")),
    ("limit.allow.2t", "requeue", Go(2.0)),
    ("limit.allow.2t", "requeue", Of(1.3, "limit.allow.2t", "governor")),
    ("limit.allow.2t", "requeue", Of(1.3, "limit.allow.2t", "governor-std")),
    // A denied call that writes nothing costs no more when another thread is denied too.
    ("limit.deny.2t", "requeue", Of(1.5, "limit.deny.1t", "requeue")),
    ("limit.reserve.1t", "requeue", Go(3.0)),
    ("pacer.take.1t", "requeue", Go(1.8)),
    ("memory.ready.u64", "requeue", AtMost(40.0)),
    ("cycle.u64.1k", "requeue-metrics", Of(1.15, "cycle.u64.1k", "requeue")),
];

/// One line for each target, and how many were missed.
pub fn report(results: &[Measured]) -> String {
    let mut text = String::new();
    let mut missed = 0;
    for (scenario, system, target) in TARGETS {
        let Some(row) = find(results, scenario, system) else { continue };
        let Some((asked, measured, holds)) = target.judge(row, results) else { continue };
        missed += usize::from(!holds);
        let verdict = if holds { "holds" } else { "MISSED" };
        writeln!(text, "{scenario:<19} {system:<16} {asked:<39} {measured:<8} {verdict}")
            .expect("a string takes anything");
    }
    writeln!(text, "{missed} targets missed").expect("a string takes anything");
    text
}

impl Target {
    /// What was asked, what was measured, and whether that is enough.
    fn judge(&self, row: &Measured, all: &[Measured]) -> Option<(String, String, bool)> {
        let figure = row.figure()?;
        Some(match *self {
            Go(times) => {
                let ratio = row.ratio_to_go?;
                let asked = format!("at least {}× Go", short(times));
                (asked, format!("{ratio:.2}×"), ratio >= times)
            }
            AtMost(most) => {
                (format!("at most {}", short(most)), short(figure), figure <= most)
            }
            Ahead(times, system) => {
                let ratio = find(all, &row.scenario, system)?.figure()? / figure;
                let asked = format!("at least {}× {system}", short(times));
                (asked, format!("{ratio:.2}×"), ratio >= times)
            }
            Of(times, scenario, system) => {
                let ratio = figure / find(all, scenario, system)?.figure()?;
                let asked = format!("at most {times}× {system} {scenario}");
                (asked, format!("{ratio:.2}×"), ratio <= times)
            }
        })
    }
}
