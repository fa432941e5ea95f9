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
use crate::store::Kind;
use crate::store::bug::Bug;

/// How many violations of a run are printed.
const MAX_PRINTED: usize = 10;

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
    let FaultCounts { kills, stops, server_kills, cuts, connection_faults, moves } =
        counts;
    println!(
        "  {kills} processes killed, {stops} stopped; server killed {server_kills} times; \
         connections cut {cuts} times, \
         delayed, half-open or without replies {connection_faults} times"
    );
    if *moves > 0 {
        println!("  slots moved {moves} times");
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
         {in_doubt} in doubt, {redelivered} redeliveries"
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
