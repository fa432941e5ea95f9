//! `list`, or `[--quick] <scenario> <system>`, which prints one sample as JSON.

use std::process::ExitCode;

use crate::measure::{Load, Sample};

/// One scenario on one system.
pub struct Bench {
    pub scenario: &'static str,
    pub system: &'static str,
    pub run: fn(Load) -> Sample,
}

pub fn bench(
    scenario: &'static str,
    system: &'static str,
    run: fn(Load) -> Sample,
) -> Bench {
    Bench { scenario, system, run }
}

pub fn main(benches: &[Bench]) -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let quick = words.first().is_some_and(|word| word == "--quick");
    words.drain(..usize::from(quick));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["list"] => list(benches),
        [scenario, system] => return run(benches, scenario, system, Load { quick }),
        _ => return usage("list, or [--quick] <scenario> <system>"),
    }
    ExitCode::SUCCESS
}

fn list(benches: &[Bench]) {
    for bench in benches {
        println!("{} {}", bench.scenario, bench.system);
    }
}

fn run(benches: &[Bench], scenario: &str, system: &str, load: Load) -> ExitCode {
    let wanted = |bench: &&Bench| bench.scenario == scenario && bench.system == system;
    let Some(bench) = benches.iter().find(wanted) else {
        return usage(&format!("no scenario {scenario:?} on {system:?}"));
    };
    println!("{}", serde_json::to_string(&(bench.run)(load)).expect("a plain record"));
    ExitCode::SUCCESS
}

fn usage(message: &str) -> ExitCode {
    eprintln!("bench: {message}");
    ExitCode::from(2)
}
