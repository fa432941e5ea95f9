//! Medians, and how they compare with Go's.

use requeue_peers::measure::Sample;
use serde::Serialize;

/// What one system needs in one scenario: medians over all rounds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Measured {
    pub scenario: String,
    pub system: String,
    pub cpu_ns: Option<f64>,
    pub wall_ns: Option<f64>,
    pub p99_ns: Option<f64>,
    pub bytes: Option<f64>,
    /// How many times better than the Go original; above 1 is ahead of it.
    pub ratio_to_go: Option<f64>,
}

/// The figure by which the systems of a scenario are compared.
#[derive(Clone, Copy, PartialEq)]
pub enum Figure {
    Cpu,
    Wall,
    Bytes,
}

/// The groups of scenarios in the order in which they are shown.
pub const GROUPS: [(&str, Figure, &str); 13] = [
    ("cycle", Figure::Cpu, "add, get, done: CPU ns for each key"),
    ("fill", Figure::Cpu, "add all keys, then get and finish all: CPU ns for each key"),
    ("dup", Figure::Cpu, "add a key that is ready already: CPU ns"),
    ("throughput", Figure::Wall, "producers and consumers: wall ns for each key"),
    ("latency", Figure::Wall, "from add to get: median, ns"),
    ("delay", Figure::Cpu, "add_after with a million keys waiting: CPU ns"),
    ("lateness", Figure::Wall, "from deadline to get: median, ns"),
    ("retry", Figure::Cpu, "retry policies, a million keys: CPU ns"),
    ("limit", Figure::Cpu, "rate limiters: CPU ns for each call"),
    ("pacer", Figure::Cpu, "pacers: CPU ns for each take"),
    ("keyed", Figure::Cpu, "a limiter for each key: CPU ns"),
    ("primitive", Figure::Cpu, "reading the clock, an uncontended lock: CPU ns"),
    ("memory", Figure::Bytes, "live heap for each of a million keys, bytes"),
];

pub fn group(scenario: &str) -> &str {
    scenario.split('.').next().unwrap_or(scenario)
}

impl Measured {
    /// The one figure that counts in this scenario.
    pub fn figure(&self) -> Option<f64> {
        let group = group(&self.scenario);
        let (_, figure, _) = GROUPS.iter().find(|(name, _, _)| *name == group)?;
        match figure {
            Figure::Cpu => self.cpu_ns,
            Figure::Wall => self.wall_ns,
            Figure::Bytes => self.bytes,
        }
    }

    /// The originals; controller-runtime's queue is another peer.
    fn is_original(&self) -> bool {
        ["go-client-go", "go-x-rate", "go-uber", "go"].contains(&self.system.as_str())
    }
}

pub fn median(scenario: &str, samples: &[Sample]) -> Measured {
    let samples = in_parallel(scenario, samples);
    let of = |part: fn(&Sample) -> Option<f64>| {
        let mut values: Vec<f64> = samples.iter().filter_map(part).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    Measured {
        cpu_ns: of(|s| s.cpu_ns),
        wall_ns: of(|s| s.wall_ns),
        p99_ns: of(|s| s.p99_ns),
        bytes: of(|s| s.bytes),
        ..Measured::default()
    }
}

/// Two threads that never met on two cores say nothing about contention: if some rounds
/// of a two-thread scenario had both running, only those count.
fn in_parallel(scenario: &str, samples: &[Sample]) -> Vec<Sample> {
    let both = |s: &&Sample| match (s.cpu_ns, s.wall_ns) {
        (Some(cpu), Some(wall)) => cpu > 1.5 * wall,
        _ => false,
    };
    let parallel: Vec<Sample> = samples.iter().filter(both).copied().collect();
    if scenario.ends_with(".2t") && !parallel.is_empty() {
        parallel
    } else {
        samples.to_vec()
    }
}

/// Fills in the ratio to the Go original of the same scenario.
pub fn against_go(mut results: Vec<Measured>) -> Vec<Measured> {
    let originals: Vec<(String, f64)> = results
        .iter()
        .filter(|row| row.is_original())
        .filter_map(|row| Some((row.scenario.clone(), row.figure()?)))
        .collect();
    for row in &mut results {
        let original = originals.iter().find(|(scenario, _)| *scenario == row.scenario);
        row.ratio_to_go = original.zip(row.figure()).map(|((_, go), own)| go / own);
    }
    results
}

pub fn find<'a>(
    results: &'a [Measured],
    scenario: &str,
    system: &str,
) -> Option<&'a Measured> {
    results.iter().find(|row| row.scenario == scenario && row.system == system)
}
