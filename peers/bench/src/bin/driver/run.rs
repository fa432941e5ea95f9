//! One process for each scenario, system and round, Go and Rust in turns.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use requeue_peers::measure::Sample;

use crate::options::Options;
use crate::result::{self, Measured};

/// Scenarios that `--quick` leaves out: a million strings, a hundred thousand timers.
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

struct Row {
    scenario: String,
    system: String,
    program: PathBuf,
    samples: Vec<Sample>,
}

pub fn all(options: &Options) -> Result<Vec<Measured>, Box<dyn Error>> {
    let mut rows = rows(options)?;
    for round in 0..options.rounds {
        eprintln!("round {} of {}", round + 1, options.rounds);
        // Memory is the same in each round.
        let wanted = |row: &&mut Row| round == 0 || !row.scenario.starts_with("memory");
        for row in rows.iter_mut().filter(wanted) {
            row.samples.push(sample(row, options.quick)?);
        }
    }
    let medians = rows.iter().map(|row| Measured {
        scenario: row.scenario.clone(),
        system: row.system.clone(),
        ..result::median(&row.scenario, &row.samples)
    });
    Ok(result::against_go(medians.collect()))
}

/// All rows of all programs, those of one scenario side by side, scenarios in the order
/// of the Go program.
fn rows(options: &Options) -> Result<Vec<Row>, Box<dyn Error>> {
    let here = std::env::current_exe()?;
    let mut rows = Vec::new();
    for program in
        [&options.go, &here.with_file_name("peers"), &here.with_file_name("memory")]
    {
        rows.extend(list(program)?);
    }
    let wanted = |scenario: &str| {
        scenario.starts_with(&options.only)
            && !(options.quick && SLOW.contains(&scenario))
    };
    rows.retain(|row| wanted(&row.scenario));
    let listed: Vec<String> = rows.iter().map(|row| row.scenario.clone()).collect();
    rows.sort_by_key(|row| listed.iter().position(|scenario| *scenario == row.scenario));
    Ok(rows)
}

fn list(program: &Path) -> Result<Vec<Row>, Box<dyn Error>> {
    let listed = output(Command::new(program).arg("list"))?;
    let row = |line: &str| {
        let (scenario, system) = line.split_once(' ')?;
        let (scenario, system) = (scenario.to_owned(), system.to_owned());
        Some(Row { scenario, system, program: program.to_owned(), samples: Vec::new() })
    };
    Ok(listed.lines().filter_map(row).collect())
}

fn sample(row: &Row, quick: bool) -> Result<Sample, Box<dyn Error>> {
    let mut command = Command::new(&row.program);
    command.args(quick.then_some("--quick")).args([&row.scenario, &row.system]);
    let line = output(&mut command)?;
    Ok(serde_json::from_str(&line)?)
}

fn output(command: &mut Command) -> Result<String, Box<dyn Error>> {
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}
