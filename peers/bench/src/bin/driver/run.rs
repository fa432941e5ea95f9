//! Runs the programs: one process per scenario, system and round.
//!
//! In each round the systems of a scenario follow each other, so that a noisy minute affects
//! all of them.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use requeue_peers::measure::Sample;

use crate::catalog::position_of;
use crate::machine;
use crate::options::Options;
use crate::results::{Results, Row, figure};

/// Scenarios that `--quick` skips: a million strings, 100,000 timers.
const SLOW: [&str; 8] = [
    "fill.str.1M",
    "delay.insert.str",
    "lateness.100k",
    "retry.first.str",
    "retry.repeat.str",
    "memory.ready.str",
    "memory.delayed.str",
    "keyed.1M",
];

/// One system in one scenario, and the program that measures it.
struct Job {
    scenario: String,
    system: String,
    program: PathBuf,
    figures: Vec<f64>,
}

pub fn all(options: &Options) -> Result<Results, Box<dyn Error>> {
    let mut jobs = jobs(options)?;
    for run in 0..options.runs {
        measure_run(&mut jobs, run, options)?;
    }
    let rows = jobs.into_iter().map(|job| Row {
        scenario: job.scenario,
        system: job.system,
        runs: job.figures,
    });
    Ok(Results {
        machine: machine::describe(),
        quick: options.quick,
        rounds: options.rounds,
        rows: rows.collect(),
    })
}

fn measure_run(
    jobs: &mut [Job],
    run: usize,
    options: &Options,
) -> Result<(), Box<dyn Error>> {
    let mut samples: Vec<Vec<Sample>> = jobs.iter().map(|_| Vec::new()).collect();
    for round in 0..options.rounds {
        eprintln!(
            "run {} of {}, round {} of {}",
            run + 1,
            options.runs,
            round + 1,
            options.rounds
        );
        for (job, samples) in jobs.iter().zip(&mut samples) {
            // Memory does not vary.
            if run + round == 0 || !job.scenario.starts_with("memory") {
                samples.push(measure(job, options.quick)?);
            }
        }
    }
    for (job, samples) in jobs.iter_mut().zip(&samples) {
        job.figures.extend(figure(&job.scenario, samples));
    }
    Ok(())
}

/// Lists the jobs of all programs, in the order of the catalog.
fn jobs(options: &Options) -> Result<Vec<Job>, Box<dyn Error>> {
    let here = std::env::current_exe()?;
    let (peers, memory) = (here.with_file_name("peers"), here.with_file_name("memory"));
    let mut jobs = Vec::new();
    for program in [&options.go, &peers, &memory] {
        jobs.extend(list(program)?);
    }
    if let Some(job) = jobs.iter().find(|job| position_of(&job.scenario).is_none()) {
        return Err(format!("scenario {} is not in the catalog", job.scenario).into());
    }
    let is_wanted = |job: &Job| {
        let is_skipped = options.quick && SLOW.contains(&job.scenario.as_str());
        job.scenario.starts_with(&options.only) && !is_skipped
    };
    jobs.retain(is_wanted);
    jobs.sort_by_key(|job| position_of(&job.scenario));
    Ok(jobs)
}

fn list(program: &Path) -> Result<Vec<Job>, Box<dyn Error>> {
    let text = output(Command::new(program).arg("list"))?;
    let job = |line: &str| {
        let (scenario, system) = line.split_once(' ')?;
        let (scenario, system) = (scenario.to_owned(), system.to_owned());
        Some(Job { scenario, system, program: program.to_owned(), figures: Vec::new() })
    };
    Ok(text.lines().filter_map(job).collect())
}

fn measure(job: &Job, quick: bool) -> Result<Sample, Box<dyn Error>> {
    let mut command = Command::new(&job.program);
    command.args(quick.then_some("--quick")).args([&job.scenario, &job.system]);
    Ok(serde_json::from_str(&output(&mut command)?)?)
}

fn output(command: &mut Command) -> Result<String, Box<dyn Error>> {
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}
