//! Rewriting the records of older formats.

use std::path::Path;

use requeue_store::{Error, ErrorKind, Migration};

use crate::journal::{Durability, Journal, Write, WriteError};
use crate::record::{self, Encoder, Record, VERSION};

/// The number of records in one write.
const CHUNK: usize = 10_000;

/// The error for a folder with records of an older version.
pub(crate) fn needed(path: &Path, version: u8) -> Error {
    let shown = path.display();
    let text = format!(
        "the queue at {shown} has format version {version}; this program needs version \
         {VERSION}; run `requeue migrate --store {shown}`"
    );
    Error::new(ErrorKind::Version, text)
}

/// Rewrites all records of older versions, or only counts them.
///
/// An interrupted migration can be repeated: each record has its own version, and a store
/// opens only when all have the current one.
pub(crate) fn migrate(
    journal: &mut dyn Journal,
    dry_run: bool,
) -> Result<Migration, Error> {
    let (mut old, mut from) = (Vec::new(), VERSION);
    journal.load(&mut |name, value| {
        let (record, version) = record::decode(name, value)?;
        if version < VERSION {
            from = from.min(version);
            old.push(record);
        }
        Ok(())
    })?;
    let mut migration =
        Migration { from: from.into(), to: VERSION.into(), ..Migration::default() };
    if old.is_empty() {
        return Ok(migration);
    }
    let count = old.len();
    let records = if count == 1 { "record" } else { "records" };
    migration
        .steps
        .push(format!("rewrite {count} {records} in format version {VERSION}"));
    if !dry_run {
        rewrite(journal, &old)?;
        migration.applied = true;
    }
    Ok(migration)
}

fn rewrite(journal: &mut dyn Journal, records: &[Record]) -> Result<(), Error> {
    let mut encoder = Encoder::default();
    for records in records.chunks(CHUNK) {
        let mut writes = records.iter().map(|record| encode(&mut encoder, record));
        journal.append(&mut writes, Durability::Durable).map_err(
            |error| match error {
                WriteError::Full(error) | WriteError::Failed(error) => error,
            },
        )?;
    }
    Ok(())
}

fn encode(encoder: &mut Encoder, record: &Record) -> Write {
    match record {
        Record::QueueState(state) => Write {
            name: encoder.queue_state_name(),
            value: Some(encoder.queue_state(state)),
        },
        Record::Key(key, persisted) => {
            Write { name: encoder.key_name(key), value: Some(encoder.key(persisted)) }
        }
    }
}
