//! `requeue migrate`: brings stored data to the version of this program.

use anyhow::Result;
use requeue_store::Migration;

use crate::address::StoreAddress;
use crate::flags::MigrateFlags;
use crate::report;

/// Exit code: a dry run found something to do.
const NEEDED: u8 = 1;

pub(crate) fn migrate(flags: MigrateFlags) -> Result<u8> {
    let MigrateFlags { store, dry_run } = flags;
    let address = StoreAddress::from_flags(store)?;
    let done = super::runtime()?.block_on(address.migrate(dry_run))?;
    for step in &done.steps {
        report::page(format!("{step}\n").as_bytes())?;
    }
    report::note(&summary(&done));
    Ok(if done.steps.is_empty() || done.applied { 0 } else { NEEDED })
}

fn summary(done: &Migration) -> String {
    let Migration { from, to, steps, applied } = done;
    match (steps.is_empty(), applied) {
        (true, _) => format!("the stored data has version {to}; nothing to do"),
        (false, true) => format!("migrated the stored data from version {from} to {to}"),
        (false, false) => format!(
            "dry run: the stored data has version {from}, this program writes version {to}; \
             run requeue migrate without --dry-run"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_says_what_was_done() {
        let steps = vec!["add a column".to_owned()];
        let planned = Migration { from: 4, to: 5, steps, applied: false };
        assert!(summary(&planned).starts_with("dry run: the stored data has version 4"));
        let done = Migration { applied: true, ..planned };
        assert_eq!(summary(&done), "migrated the stored data from version 4 to 5");
        let none = Migration { from: 5, to: 5, ..Migration::default() };
        assert_eq!(summary(&none), "the stored data has version 5; nothing to do");
    }
}
