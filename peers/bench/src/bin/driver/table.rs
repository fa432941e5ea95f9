//! The figures as Markdown: one table for each group, one line for each system.

use std::fmt::Write;

use crate::result::{GROUPS, Measured, find, group};

pub fn markdown(results: &[Measured]) -> String {
    let mut text = String::new();
    for (name, _, title) in GROUPS {
        let rows: Vec<Measured> =
            results.iter().filter(|row| group(&row.scenario) == name).cloned().collect();
        if !rows.is_empty() {
            writeln!(text, "**{title}** (× = times better than Go)\n").expect("a string");
            text.push_str(&table(&rows));
            text.push('\n');
        }
    }
    text
}

fn table(rows: &[Measured]) -> String {
    let scenarios = distinct(rows, |row| &row.scenario);
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text = line(prefixed("system", scenarios.iter().map(|s| (*s).to_owned())));
    text.push_str(&line(prefixed("---", scenarios.iter().map(|_| "---:".to_owned()))));
    for system in distinct(rows, |row| &row.system) {
        let cells = scenarios.iter().map(|scenario| cell(find(rows, scenario, system)));
        text.push_str(&line(prefixed(system, cells)));
    }
    text
}

fn prefixed(first: &str, rest: impl Iterator<Item = String>) -> Vec<String> {
    std::iter::once(first.to_owned()).chain(rest).collect()
}

fn distinct(rows: &[Measured], part: fn(&Measured) -> &String) -> Vec<&str> {
    let mut seen = Vec::new();
    for row in rows {
        let value = part(row).as_str();
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

fn cell(row: Option<&Measured>) -> String {
    let Some(figure) = row.and_then(Measured::figure) else {
        return "–".to_owned();
    };
    match row.and_then(|row| row.ratio_to_go) {
        Some(ratio) => format!("{} ({}×)", short(figure), short(ratio)),
        None => short(figure),
    }
}

/// Two or three digits that count.
pub fn short(value: f64) -> String {
    match value {
        v if v < 0.095 => format!("{v:.2}"),
        v if v < 9.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}
