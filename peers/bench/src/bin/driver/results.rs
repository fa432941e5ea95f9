//! The results of all runs, and how they compare.

use requeue_peers::measure::Sample;
use serde::{Deserialize, Serialize};

use crate::catalog::{Figure, group_of, is_original};

#[derive(Debug, Serialize, Deserialize)]
pub struct Results {
    pub machine: String,
    pub quick: bool,
    pub rounds: usize,
    pub rows: Vec<Row>,
}

/// One system in one scenario.
#[derive(Debug, Serialize, Deserialize)]
pub struct Row {
    pub scenario: String,
    pub system: String,
    /// One figure per run: the median of its rounds.
    pub runs: Vec<f64>,
}

/// The median and the range of several runs.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        Some(Self { median: values[values.len() / 2], low, high })
    }
}

impl Row {
    pub fn spread(&self) -> Option<Spread> {
        Spread::of(self.runs.iter().copied())
    }

    /// Returns `other / self`, run by run: how many times better this row is.
    pub fn advantage_over(&self, other: &Self) -> Option<Spread> {
        Spread::of(other.runs.iter().zip(&self.runs).map(|(other, own)| other / own))
    }
}

impl Results {
    pub fn runs(&self) -> usize {
        self.rows.iter().map(|row| row.runs.len()).max().unwrap_or(0)
    }

    pub fn find(&self, scenario: &str, system: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.scenario == scenario && row.system == system)
    }

    pub fn of_scenario<'a>(&'a self, id: &'a str) -> impl Iterator<Item = &'a Row> {
        self.rows.iter().filter(move |row| row.scenario == id)
    }

    /// Returns the Go original of a scenario.
    pub fn original(&self, scenario: &str) -> Option<&Row> {
        let mut rows = self.rows.iter();
        rows.find(|row| row.scenario == scenario && is_original(&row.system))
    }

    /// Returns how many times better a row is than the Go original.
    pub fn times_go(&self, row: &Row) -> Option<Spread> {
        row.advantage_over(self.original(&row.scenario)?)
    }
}

/// Returns the figure of one run: the median of its rounds.
pub fn figure(scenario: &str, samples: &[Sample]) -> Option<f64> {
    let part = match group_of(scenario)?.figure {
        Figure::Cpu => |sample: &Sample| sample.cpu_ns,
        Figure::Wall | Figure::Latency => |sample: &Sample| sample.wall_ns,
        Figure::Memory => |sample: &Sample| sample.bytes,
    };
    let samples = parallel_samples(scenario, samples);
    Spread::of(samples.iter().filter_map(part)).map(|spread| spread.median)
}

/// Selects the rounds of a two-thread scenario in which both threads really ran at the same
/// time. The others say nothing about contention. Returns all rounds if there are none.
fn parallel_samples(scenario: &str, samples: &[Sample]) -> Vec<Sample> {
    let is_parallel = |sample: &&Sample| match (sample.cpu_ns, sample.wall_ns) {
        (Some(cpu), Some(wall)) => cpu > 1.5 * wall,
        _ => false,
    };
    let parallel: Vec<Sample> = samples.iter().filter(is_parallel).copied().collect();
    if scenario.ends_with(".2t") && !parallel.is_empty() {
        parallel
    } else {
        samples.to_vec()
    }
}
