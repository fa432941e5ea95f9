//! `requeue run --dry-run`: prints the commands instead of running them.

use std::ops::ControlFlow;

use anyhow::{Context, Result};

use crate::USAGE;
use crate::command::Subject;
use crate::input::{Record, split_priority};
use crate::key_set::KeySet;
use crate::plan::Plan;
use crate::report;

/// Prints one command line for each distinct key of the input. Returns the exit code.
pub(crate) fn dry_run(plan: Plan) -> Result<u8> {
    let resumed = plan.resumed.unwrap_or_default();
    let (mut seen, mut number, mut rejected) = (KeySet::default(), 0, false);
    let mut lines = String::new();
    let mut printed = Ok(());
    for source in plan.input.sources {
        let read = source.read(plan.input.separator, |record| {
            let line = match record {
                Record::Line(line) => line,
                Record::Pause => {
                    printed = report::page(std::mem::take(&mut lines).as_bytes());
                    return if printed.is_ok() {
                        ControlFlow::Continue(())
                    } else {
                        ControlFlow::Break(())
                    };
                }
            };
            let key = match plan.input.priority {
                None => Ok(line.to_vec()),
                Some(field) => split_priority(line, field).map(|(_, key)| key),
            };
            match key {
                Ok(key) if key.is_empty() || seen.contains(&key) => {}
                Ok(key) if resumed.is_finished(&key) => {}
                Ok(key) => {
                    seen.insert(&key);
                    number += 1;
                    let line = plan.template.line(Subject { key: &key, number });
                    lines += &report::escaped_lines(&line);
                    lines.push('\n');
                }
                Err(why) => {
                    rejected = true;
                    report::note(&report::rejected_text(line, &why.to_string()));
                }
            }
            ControlFlow::Continue(())
        });
        if read.context("cannot read the input")?.is_break() {
            break;
        }
    }
    printed?;
    report::page(lines.as_bytes())?;
    Ok(if rejected { USAGE } else { 0 })
}
