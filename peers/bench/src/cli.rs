//! The command line: `list`, or `[--quick] <scenario> <system>`, which prints a sample as
//! JSON.

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
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let quick = arguments.first().is_some_and(|argument| argument == "--quick");
    arguments.drain(..usize::from(quick));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["list"] => list(benches),
        [scenario, system] => return run(benches, scenario, system, Load { quick }),
        _ => return fail("usage: list, or [--quick] <scenario> <system>"),
    }
    ExitCode::SUCCESS
}

fn list(benches: &[Bench]) {
    for bench in benches {
        println!("{} {}", bench.scenario, bench.system);
    }
}

fn run(benches: &[Bench], scenario: &str, system: &str, load: Load) -> ExitCode {
    let is_wanted = |bench: &&Bench| bench.scenario == scenario && bench.system == system;
    let Some(bench) = benches.iter().find(is_wanted) else {
        return fail(&format!("unknown scenario {scenario:?} or system {system:?}"));
    };
    println!("{}", serde_json::to_string(&(bench.run)(load)).expect("a plain record"));
    ExitCode::SUCCESS
}

fn fail(message: &str) -> ExitCode {
    eprintln!("{message}");
    ExitCode::from(2)
}
