//! The only place that prints.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is where it is done"
)]

use std::time::Duration;

use crate::bug::Bug;
use crate::check::{Counts, Verdict};
use crate::conductor::{Outcome, Piece};
use crate::crew::name_of;
use crate::loss::{Case, Loss};
use crate::nemesis::Faults;
use crate::shortcuts::Shortcuts;
use crate::stores::Kind;

/// How many violations are told.
const TOLD: usize = 10;

pub(crate) fn complaint(error: &anyhow::Error) {
    eprintln!("requeue-faults: {error:#}");
}

pub(crate) fn outcome(piece: &Piece, outcome: &Outcome) {
    let Piece { scene, seconds, seed, .. } = piece;
    let (store, load) = (name_of(&scene.store), name_of(&scene.load));
    println!("{store}, {load}, {seconds} s, seed {seed}");
    let Faults { kills, stalls, engine_kills, cuts, troubles, moves } = outcome.faults;
    println!(
        "  {kills} processes killed, {stalls} stopped; engine killed {engine_kills} times; \
         connections cut {cuts} times, delayed, half-open or without replies {troubles} times"
    );
    if moves > 0 {
        println!("  slots moved {moves} times");
    }
    verdict(&outcome.verdict);
    let Shortcuts { adds, leases, ends } = outcome.shortcuts;
    let waited = outcome.verdict.counts.waited;
    println!(
        "  by the short scripts {adds} adds, {leases} leases, {ends} ends; \
         {waited} keys came with the end of a wait"
    );
    for way in outcome.missed(piece) {
        println!("  NOT REACHED: {way}");
    }
    if !outcome.verdict.violations.is_empty() {
        println!("  the histories are in {}", outcome.folder.display());
    }
}

pub(crate) fn verdict(verdict: &Verdict) {
    let Counts { keys, adds, acknowledged, merged, .. } = verdict.counts;
    let Counts { grants, accepted, in_doubt, refused, taken_over, .. } = verdict.counts;
    println!(
        "  {adds} adds of {keys} keys, {acknowledged} acknowledged, {merged} merged"
    );
    println!(
        "  {grants} runs, {accepted} ends accepted, {refused} stale ends refused, \
         {in_doubt} in doubt, {taken_over} runs taken over"
    );
    let Counts { paced, dead, worn_out, revived, dropped, .. } = verdict.counts;
    println!(
        "  {dead} keys died, {worn_out} of them of lost leases; revived {revived} times, \
         dropped {dropped} times; {paced} adds by the shared rate"
    );
    println!("  {} violations", verdict.violations.len());
    for violation in verdict.violations.iter().take(TOLD) {
        println!("  {} {}", violation.rule, violation.text);
    }
}

/// What was lost in a case.
pub(crate) fn loss(store: Kind, case: Case, loss: &Loss) {
    let Loss { kills, acknowledged, lost, leased, undone } = loss;
    println!(
        "{}, {}: {lost} of {acknowledged} acknowledged keys lost in {kills} kills",
        name_of(&store),
        case.name(store)
    );
    if *leased > 0 {
        println!("  {undone} of {leased} leases undone");
    }
}

/// A bug and how it was found, or not.
pub(crate) fn bug(bug: Bug, verdict: Option<&Verdict>, took: Duration) {
    let took = took.as_secs_f64();
    let Some(verdict) = verdict else {
        println!("{bug:?}: NOT FOUND in {took:.0} s");
        return;
    };
    let mut rules: Vec<_> = verdict.violations.iter().map(|found| found.rule).collect();
    rules.dedup();
    let rules: Vec<_> = rules.iter().map(ToString::to_string).collect();
    let count = verdict.violations.len();
    println!("{bug:?}: found by {} in {took:.0} s, {count} violations", rules.join(", "));
    if let Some(first) = verdict.violations.first() {
        println!("  {} {}", first.rule, first.text);
    }
}
