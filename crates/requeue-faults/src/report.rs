//! The only module that prints.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "all output of the program is here"
)]

use std::time::Duration;

use crate::check::{Counts, Verdict};
use crate::data_loss::{LossCounts, Setting};
use crate::fault::FaultCounts;
use crate::process::child::name_of;
use crate::run::{RunConfig, RunResult};
use crate::soak::Growth;
use crate::soak::sample::Sample;
use crate::store::Kind;
use crate::store::bug::Bug;

/// How many violations of a run are printed.
const MAX_PRINTED: usize = 10;

/// How many samples of a soak are printed.
const SAMPLES_PRINTED: usize = 12;

pub(crate) fn error(error: &anyhow::Error) {
    eprintln!("requeue-faults: {error:#}");
}

pub(crate) fn run(config: &RunConfig, result: &RunResult) {
    let RunConfig { scenario, seconds, seed, .. } = config;
    let (store, load) = (name_of(&scenario.store), name_of(&scenario.load));
    println!("{store}, {load}, {seconds} s, seed {seed}");
    faults(&result.faults);
    verdict(&result.verdict);
    for path in result.unreached(config) {
        println!("  NOT REACHED: {path}");
    }
    if !result.verdict.violations.is_empty() {
        println!("  the histories are in {}", result.folder.display());
    }
}

fn faults(counts: &FaultCounts) {
    let FaultCounts { kills, stops, server_kills, cuts, connection_faults, .. } = counts;
    println!(
        "  {kills} processes killed, {stops} stopped; server killed {server_kills} times; \
         connections cut {cuts} times, \
         delayed, half-open or without replies {connection_faults} times"
    );
    let FaultCounts { black_holes, out_of_memory, full_disks, moves, .. } = counts;
    println!(
        "  a silent server {black_holes} times, out of memory {out_of_memory} times, \
         full disk {full_disks} times"
    );
    let FaultCounts { failovers, unplanned_failovers, .. } = counts;
    if moves + failovers + unplanned_failovers > 0 {
        println!(
            "  slots moved {moves} times; {failovers} failovers, {unplanned_failovers} more \
             that no fault asked for"
        );
    }
}

pub(crate) fn verdict(verdict: &Verdict) {
    let Counts { keys, adds, acknowledged, duplicates, .. } = verdict.counts;
    println!(
        "  {adds} adds of {keys} keys, {acknowledged} acknowledged, {duplicates} duplicates"
    );
    let Counts { grants, accepted, in_doubt, refused, redelivered, .. } = verdict.counts;
    println!(
        "  {grants} runs, {accepted} finishes accepted, {refused} stale finishes refused, \
         {in_doubt} in doubt, {redelivered} redeliveries, {} extensions",
        verdict.counts.extended
    );
    let Counts { rate_limited, dead, exhausted, revived, dropped, .. } = verdict.counts;
    println!(
        "  {dead} dead keys, {exhausted} of them after too many deliveries; \
         revived {revived} times, dropped {dropped} times; {rate_limited} rate-limited adds"
    );
    println!("  {} violations", verdict.violations.len());
    for violation in verdict.violations.iter().take(MAX_PRINTED) {
        println!("  {} {}", violation.rule, violation.text);
    }
}

pub(crate) fn data_loss(store: Kind, setting: Setting, counts: &LossCounts) {
    let LossCounts { kills, acknowledged, lost, leased, undone } = counts;
    println!(
        "{}, {}: lost {lost} of {acknowledged} acknowledged keys in {kills} kills",
        name_of(&store),
        setting.name(store)
    );
    if *leased > 0 {
        println!("  {undone} of {leased} leases undone");
    }
}

/// Prints some samples of a soak, and the figures that grew.
pub(crate) fn soak(store: Kind, seconds: u64, samples: &[Sample], growths: &[Growth]) {
    println!("{}, {seconds} s", name_of(&store));
    println!(
        "  {:>8} {:>12} {:>12} {:>12} {:>6}",
        "s", "clients MB", "servers MB", "connections", "files"
    );
    let count = samples.len().max(1);
    for (index, sample) in samples.iter().enumerate() {
        if (index + 1) % (count / SAMPLES_PRINTED).max(1) == 0 {
            let at = seconds * (index as u64 + 1) / count as u64;
            let Sample { client_memory, server_memory, connections, files } = sample;
            let (clients, servers) = (client_memory >> 20, server_memory >> 20);
            println!(
                "  {at:>8} {clients:>12} {servers:>12} {connections:>12} {files:>6}"
            );
        }
    }
    for Growth { name, before, after } in growths {
        println!("  GREW: {name}, from {before} to {after}");
    }
}

pub(crate) fn soak_cycles(cycles: u64, seconds: u64) {
    println!("{cycles} keys processed, {} per second", cycles / seconds.max(1));
}

/// Prints which invariants found a bug; without a verdict, that none did.
pub(crate) fn bug(bug: Bug, verdict: Option<&Verdict>, elapsed: Duration) {
    let seconds = elapsed.as_secs_f64();
    let Some(verdict) = verdict else {
        println!("{bug:?}: NOT FOUND in {seconds:.0} s");
        return;
    };
    let mut rules: Vec<_> = verdict.violations.iter().map(|found| found.rule).collect();
    rules.dedup();
    let rules: Vec<_> = rules.iter().map(ToString::to_string).collect();
    let (rules, count) = (rules.join(", "), verdict.violations.len());
    println!("{bug:?}: found by {rules} in {seconds:.0} s, {count} violations");
    if let Some(first) = verdict.violations.first() {
        println!("  {} {}", first.rule, first.text);
    }
}
