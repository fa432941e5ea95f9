//! The performance aims of the design, and which of them hold.

use crate::catalog::{Figure, name_of, title_of};
use crate::format::{ratio, short};
use crate::results::{Results, Row};

/// What a row should achieve.
enum Goal {
    /// At least this many times as fast as the Go original.
    TimesGo(f64),
    /// At most this many nanoseconds or bytes.
    AtMost(f64),
    /// At most this many times the figure of another system in the same scenario.
    AtMostTimes(f64, &'static str),
    /// At most this many times the figure of requeue in another scenario.
    AtMostTimesScenario(f64, &'static str),
}

use Goal::{AtMost, AtMostTimes, AtMostTimesScenario, TimesGo};

struct Aim {
    scenario: &'static str,
    system: &'static str,
    goal: Goal,
    /// Why the aim may not hold.
    reason: &'static str,
}

const fn aim(
    scenario: &'static str,
    system: &'static str,
    goal: Goal,
    reason: &'static str,
) -> Aim {
    Aim { scenario, system, goal, reason }
}

const ATOMICS: &str = "Locks dominate: an uncontended lock takes 6 ns on some machines and \
                       16 ns on others.";
const CACHE: &str = "Cache misses dominate, and vary with the load of the machine.";
const BATCHES: &str = "A key takes 0.19 atomic operations, so the 306 instructions of hashing, \
                       one probe and the changes of list and table decide.";
const ALLOCATION: &str = "The slot and the lease each allocate a copy of the key: malloc and \
                          free take 252 of 876 instructions.";
const GROWTH: &str = "Adding took 232 to 303 ns per key in a busy run, and 127 to 205 ns with \
                      `capacity`: the rest is growth. Each finish touches a random word \
                      of a table of 14 MB.";
const BACKLOG: &str = "The producer is faster, so up to 340,000 of 400,000 keys pile up and \
                       the run fills and drains a large queue. Wake-ups are rare: the worker \
                       sleeps 5 to 390 times.";
const BATCH_BACKLOG: &str = "As with single keys; the worker sleeps about 1,100 times in \
                             6,250 batches.";
const RETRIES: &str = "769 instructions in two lock scopes, each with a search in a growing \
                       table; reading the clock takes 63 of them.";
const DELAYS: &str =
    "584 instructions, and a random word of a table that grows to 14 MB.";
const CONTENTION: &str = "Threads compete for one lock, and the memory of a key moves \
                          between cores with it.";
const TIMER: &str = "Depends on how soon the kernel wakes a thread.";
const CLOCK: &str = "Most of the time is spent reading the system clock.";
const COUNTER: &str = "Each of the three calls reads the time stamp counter, and timing adds \
                       397 instructions to 446. It adds no atomic operation.";

const AIMS: &[Aim] = &[
    aim("cycle.u64.1k", "requeue", TimesGo(2.3), ATOMICS),
    aim("cycle.u64.1M", "requeue", TimesGo(2.3), ATOMICS),
    aim("cycle.u64.1k", "requeue-next", TimesGo(3.3), ATOMICS),
    aim("cycle.u64.1M", "requeue-next", TimesGo(3.3), CACHE),
    aim("cycle.u64.1k", "requeue-batch64", TimesGo(6.5), BATCHES),
    aim("cycle.u64.1M", "requeue-batch64", TimesGo(6.5), BATCHES),
    aim("cycle.u64.1k", "requeue-metrics", AtMostTimes(2.0, "requeue"), COUNTER),
    aim("cycle.str.1k", "requeue-next", TimesGo(2.7), ALLOCATION),
    aim("cycle.str.1M", "requeue-next", TimesGo(2.4), ALLOCATION),
    aim("dup.u64", "requeue", TimesGo(1.6), ATOMICS),
    aim("dup.str", "requeue", TimesGo(1.3), ATOMICS),
    aim("dup.u64", "requeue-batch64", TimesGo(3.0), CACHE),
    aim("fill.u64.1M", "requeue-next", TimesGo(2.5), GROWTH),
    aim("churn.u64", "requeue-next", TimesGo(1.0), CACHE),
    aim("churn.u64.late", "requeue-next", AtMostTimesScenario(1.15, "churn.u64"), CACHE),
    aim("throughput.1p1c", "requeue-next", TimesGo(2.0), BACKLOG),
    aim("throughput.2p2c", "requeue-next", TimesGo(2.0), CONTENTION),
    aim("throughput.8p8c", "requeue-next", TimesGo(2.0), CONTENTION),
    aim("throughput.1p1c", "requeue-batch64", TimesGo(3.8), BATCH_BACKLOG),
    aim("throughput.2p2c", "requeue-batch64", TimesGo(3.8), CONTENTION),
    aim("throughput.8p8c", "requeue-batch64", TimesGo(3.8), CONTENTION),
    aim("lateness.1k", "requeue", TimesGo(8.0), TIMER),
    aim("lateness.1k", "requeue", AtMost(80_000.0), TIMER),
    aim("lateness.1k", "requeue-async", TimesGo(8.0), TIMER),
    aim("lateness.1k", "requeue-async", AtMost(80_000.0), TIMER),
    aim("delay.insert.u64", "requeue", TimesGo(5.5), DELAYS),
    aim("retry.limited.u64", "requeue", TimesGo(6.0), RETRIES),
    aim("retry.first.u64", "requeue", TimesGo(1.5), CACHE),
    aim("retry.repeat.u64", "requeue", TimesGo(1.5), CACHE),
    aim("limit.allow.1t", "requeue", TimesGo(2.2), CLOCK),
    aim("limit.allow.1t", "requeue", AtMostTimes(1.15, "governor-std"), ATOMICS),
    aim("limit.allow.2t", "requeue", TimesGo(1.5), CONTENTION),
    aim("limit.allow.2t", "requeue", AtMostTimes(1.15, "governor-std"), CONTENTION),
    aim("limit.reserve.1t", "requeue", TimesGo(3.0), CLOCK),
    aim("pacer.take.1t", "requeue", TimesGo(1.6), CLOCK),
    aim("pacer.take.2t", "requeue", TimesGo(1.0), CONTENTION),
    aim("memory.ready.u64", "requeue", AtMost(44.0), ""),
    aim("memory.delayed.u64", "requeue", AtMost(60.0), ""),
    aim(
        "memory.idle",
        "requeue",
        AtMost(4096.0),
        "The wheel allocates its slots at the first delay.",
    ),
];

/// An aim that was measured.
pub struct Verdict {
    pub scenario: &'static str,
    pub system: &'static str,
    /// The aim in words.
    pub goal: String,
    pub measured: String,
    pub holds: bool,
    pub reason: &'static str,
}

impl Verdict {
    /// Describes the work in words.
    pub fn subject(&self) -> String {
        let title = title_of(self.scenario).unwrap_or(self.scenario);
        match name_of(self.system).split_once(", ") {
            Some((_, variant)) => format!("{title}; {variant}"),
            None => title.to_owned(),
        }
    }
}

/// Judges all aims whose rows were measured, by the median of the runs.
pub fn verdicts(results: &Results) -> Vec<Verdict> {
    AIMS.iter().filter_map(|aim| judge(aim, results)).collect()
}

fn judge(aim: &Aim, results: &Results) -> Option<Verdict> {
    let row = results.find(aim.scenario, aim.system)?;
    let (goal, measured, holds) = match aim.goal {
        TimesGo(times) => {
            let measured = results.times_go(row)?;
            let goal = format!("≥ {} × Go", short(times));
            (goal, format!("{} ×", ratio(measured)), measured.median >= times)
        }
        AtMost(most) => {
            let measured = row.spread()?.median;
            (
                limit(aim.scenario, most),
                limit_text(aim.scenario, measured),
                measured <= most,
            )
        }
        AtMostTimes(times, system) => {
            let other = results.find(aim.scenario, system)?;
            at_most_times(row, other, times, name_of(system))?
        }
        AtMostTimesScenario(times, scenario) => {
            let other = results.find(scenario, aim.system)?;
            at_most_times(row, other, times, "the first replacements")?
        }
    };
    let Aim { scenario, system, reason, .. } = *aim;
    Some(Verdict { scenario, system, goal, measured, holds, reason })
}

fn at_most_times(
    row: &Row,
    other: &Row,
    times: f64,
    name: &str,
) -> Option<(String, String, bool)> {
    let measured = other.advantage_over(row)?;
    let goal = format!("≤ {times} × {name}");
    Some((goal, format!("{} ×", ratio(measured)), measured.median <= times))
}

fn limit(scenario: &str, value: f64) -> String {
    format!("≤ {}", limit_text(scenario, value))
}

fn limit_text(scenario: &str, value: f64) -> String {
    let kind = crate::catalog::group_of(scenario).map(|group| group.figure);
    match kind {
        Some(Figure::Memory) => format!("{} bytes", short(value)),
        Some(Figure::Latency) => format!("{} µs", short(value / 1000.0)),
        Some(Figure::Cpu | Figure::Wall) | None => format!("{} ns", short(value)),
    }
}
