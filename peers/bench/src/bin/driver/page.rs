//! The results as Markdown.

use std::fmt::Write;

use crate::aims::{Verdict, verdicts};
use crate::catalog::{GROUPS, Group, name_of, system_position};
use crate::format::figure;
use crate::results::Results;

pub fn render(results: &Results) -> String {
    let verdicts = verdicts(results);
    let mut text = summary(results);
    text.push_str(&aims(&verdicts));
    text.push_str(&missed(&verdicts));
    text.push_str("\n### All figures\n\nMedians. A dash means not measured.\n");
    for group in GROUPS {
        text.push_str(&table(results, group));
    }
    text
}

fn summary(results: &Results) -> String {
    let mode = if results.quick { " in quick mode" } else { "" };
    format!(
        "Machine: {}. Median (lowest–highest) of {} runs{mode}, {} rounds each.\n",
        results.machine,
        results.runs(),
        results.rounds
    )
}

fn aims(verdicts: &[Verdict]) -> String {
    let held = verdicts.iter().filter(|verdict| verdict.holds).count();
    let mut text = format!("\n### Aims\n\n{held} of {} aims hold.\n\n", verdicts.len());
    text.push_str("| work | aim | measured | |\n|---|---|---|---|\n");
    for verdict in verdicts {
        let Verdict { goal, measured, .. } = verdict;
        let result = if verdict.holds { "holds" } else { "**missed**" };
        writeln!(text, "| {} | {goal} | {measured} | {result} |", verdict.subject())
            .expect("writing to a string cannot fail");
    }
    text
}

fn missed(verdicts: &[Verdict]) -> String {
    let missed: Vec<_> = verdicts.iter().filter(|verdict| !verdict.holds).collect();
    if missed.is_empty() {
        return String::new();
    }
    let mut text = String::from("\n### Aims that do not hold, and why\n\n");
    for verdict in missed {
        let Verdict { goal, measured, reason, .. } = verdict;
        writeln!(text, "* {}: {measured}, aim {goal}. {reason}", verdict.subject())
            .expect("writing to a string cannot fail");
    }
    text
}

/// Returns a table with one line per scenario and one column per system.
fn table(results: &Results, group: &Group) -> String {
    let rows = group.scenarios.iter().flat_map(|(id, _)| results.of_scenario(id));
    let mut systems: Vec<&str> = rows.map(|row| row.system.as_str()).collect();
    systems.sort_by_key(|system| system_position(system));
    systems.dedup();
    if systems.is_empty() {
        return String::new();
    }
    let mut text = format!("\n**{}** ({})\n\n", group.title, group.figure.unit());
    text.push_str(&line("work", systems.iter().map(|system| name_of(system).to_owned())));
    text.push_str(&line("---", systems.iter().map(|_| "---:".to_owned())));
    for (scenario, title) in group.scenarios {
        let cell = |system: &&str| {
            let spread = results.find(scenario, system).and_then(|row| row.spread());
            spread.map_or("–".to_owned(), |spread| figure(group.figure, spread.median))
        };
        if results.of_scenario(scenario).next().is_some() {
            text.push_str(&line(title, systems.iter().map(cell)));
        }
    }
    text
}

fn line(title: &str, cells: impl Iterator<Item = String>) -> String {
    let cells: Vec<String> = cells.collect();
    format!("| {title} | {} |\n", cells.join(" | "))
}
