//! A soak: hours of work with interrupted connections, during which nothing may grow.
//!
//! Processes add and process a fixed set of keys. Connections are cut all the time, so that
//! a leak in reconnecting shows. Memory, connections and open files are sampled. The median
//! of the last quarter must not exceed that of the second quarter by more than a tolerance.

pub(crate) mod sample;
pub(crate) mod work;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use requeue::{Clock, SystemClock};

use self::sample::Sample;
use crate::process::child::{ChildProcess, Launch};
use crate::process::role::Role;
use crate::random::Random;
use crate::report;
use crate::run::plan::Plan;
use crate::run::scenario::{Load, Scenario};
use crate::server::Servers;
use crate::server::engine::Persistence;
use crate::store::Kind;
use crate::time::{now, sleep_blocking};

/// The number of samples of a soak.
const SAMPLES: u64 = 48;

/// The pause between two interruptions of connections.
const INTERRUPTION: Duration = Duration::from_secs(3);

/// How many processes use a server. An embedded store has one.
const PROCESSES: usize = 2;

/// How much a figure may grow.
#[derive(Clone, Copy, Debug)]
struct Tolerance {
    /// In bytes. fjall keeps up to 64 MB of recent writes in memory before it sorts them.
    memory: u64,
    connections: u64,
    files: u64,
}

/// A figure of a sample: its name, its value, and how much it may grow.
type Figure = (&'static str, fn(&Sample) -> u64, u64);

/// A figure that grew: its name, and the medians of the second and the last quarter.
#[derive(Clone, Debug)]
pub(crate) struct Growth {
    pub(crate) name: &'static str,
    pub(crate) before: u64,
    pub(crate) after: u64,
}

/// Soaks a store. Returns whether nothing grew.
pub(crate) fn run(store: Kind, seconds: u64, seed: u64) -> Result<bool> {
    let folder = std::env::temp_dir().join(format!("requeue-soak-{}", now()));
    fs::create_dir(&folder)?;
    let samples = soak(store, seconds, seed, &folder).with_context(|| {
        format!("the soak failed; its files are in {}", folder.display())
    })?;
    fs::remove_dir_all(&folder)?;
    let growths = growths(&samples, tolerance(store));
    report::soak(store, seconds, &samples, &growths);
    Ok(growths.is_empty())
}

fn tolerance(store: Kind) -> Tolerance {
    let memory = if store == Kind::Folder { 128 << 20 } else { 24 << 20 };
    // Reconnecting clients overlap for a moment.
    Tolerance { memory, connections: 8, files: 16 }
}

fn soak(store: Kind, seconds: u64, seed: u64, folder: &Path) -> Result<Vec<Sample>> {
    let mut servers = Servers::start(store, folder, Persistence::AfterReply)?;
    let mut children = start_processes(store, seconds, seed, folder, &servers)?;
    let interval = Duration::from_secs(seconds) / u32::try_from(SAMPLES)?;
    let mut random = Random::new(seed, "soak");
    let mut samples = Vec::new();
    let start = SystemClock.now();
    for number in 1..=u32::try_from(SAMPLES)? {
        let next = start + interval * number;
        while SystemClock.now() < next {
            interrupt(&mut servers, &mut random)?;
            let left = next.saturating_duration_since(SystemClock.now());
            sleep_blocking(left.min(INTERRUPTION));
        }
        let clients: Vec<_> = children.iter().map(ChildProcess::id).collect();
        samples.push(Sample::take(&clients, &servers)?);
    }
    children.iter_mut().for_each(ChildProcess::request_exit);
    for child in &mut children {
        child.wait(Duration::from_secs(60))?;
    }
    let cycles = work::read_cycles(folder)?;
    ensure!(cycles > 0, "no key was processed");
    report::soak_cycles(cycles, seconds);
    Ok(samples)
}

fn start_processes(
    store: Kind,
    seconds: u64,
    seed: u64,
    folder: &Path,
    servers: &Servers,
) -> Result<Vec<ChildProcess>> {
    let scenario = Scenario::new(store, Load::Steady, seed);
    let start = now();
    let until = start + seconds * 1_000_000;
    let (producers, clock_steps) = (PROCESSES, Vec::new());
    Plan { start, until, seed, producers, scenario, clock_steps }.write(folder)?;
    let address = if store.is_embedded() {
        folder.join("queue").display().to_string()
    } else {
        servers.address(store)
    };
    let launch = Launch { folder: PathBuf::from(folder), address, bug: None };
    let count = if store.is_embedded() { 1 } else { PROCESSES };
    (0..count).map(|number| ChildProcess::start(&launch, Role::Soak, number)).collect()
}

/// Cuts the connections of one server, from either side.
fn interrupt(servers: &mut Servers, random: &mut Random) -> Result<()> {
    if servers.is_empty() {
        return Ok(());
    }
    let index = random.index(servers.len());
    let server = &servers[index];
    if random.percent(50) {
        server.proxy.cut();
    } else {
        server.engine.end_connections()?;
    }
    Ok(())
}

/// Compares the second quarter of the samples with the last.
fn growths(samples: &[Sample], tolerance: Tolerance) -> Vec<Growth> {
    let quarter = samples.len() / 4;
    let (early, late) =
        (&samples[quarter..2 * quarter], &samples[samples.len() - quarter..]);
    let figures: [Figure; 4] = [
        ("memory of the clients", |sample| sample.client_memory, tolerance.memory),
        ("memory of the servers", |sample| sample.server_memory, tolerance.memory),
        ("connections", |sample| sample.connections, tolerance.connections),
        ("open files", |sample| sample.files, tolerance.files),
    ];
    let grown = figures.into_iter().filter_map(|(name, figure, tolerance)| {
        let (before, after) = (median(early, figure), median(late, figure));
        (after > before + tolerance).then_some(Growth { name, before, after })
    });
    grown.collect()
}

fn median(samples: &[Sample], figure: fn(&Sample) -> u64) -> u64 {
    let mut values: Vec<_> = samples.iter().map(figure).collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLERANCE: Tolerance = Tolerance { memory: 10, connections: 1, files: 2 };

    fn samples(connections: impl Fn(u64) -> u64) -> Vec<Sample> {
        let sample =
            |number| Sample { connections: connections(number), ..Sample::default() };
        (0..48).map(sample).collect()
    }

    #[test]
    fn a_figure_that_grows_all_the_time_is_found() {
        let growths = growths(&samples(|number| number / 8), TOLERANCE);
        let names: Vec<_> = growths.iter().map(|growth| growth.name).collect();
        assert_eq!(names, ["connections"]);
    }

    #[test]
    fn a_figure_that_only_grows_at_first_or_varies_is_not() {
        assert!(growths(&samples(|number| number.min(12)), TOLERANCE).is_empty());
        assert!(growths(&samples(|number| number % 7), TOLERANCE).is_empty());
    }
}
