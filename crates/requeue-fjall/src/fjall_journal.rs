//! The journal on fjall: an LSM tree with a preallocated journal file.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use requeue_store::{Error, ErrorKind};

use crate::folder;
use crate::journal::{Durability, Journal, Visitor, Write};

/// The keyspace that contains all records.
const KEYSPACE: &str = "queue";

/// An open fjall database.
pub(crate) struct FjallJournal {
    database: Database,
    records: Keyspace,
}

/// Describes a panic in fjall. Debug builds: see the crate's documentation.
const PANICKED: &str = if cfg!(debug_assertions) {
    "fjall panicked; debug builds also do this for a record torn by a crash, which a \
     release build can open"
} else {
    "fjall panicked"
};

impl FjallJournal {
    /// Opens the database, or creates it in an empty folder.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        // fjall asserts properties of the files it reads.
        let opened = catch_unwind(AssertUnwindSafe(|| Self::try_open(path)));
        let opened = opened.map_err(|_| damaged(path).because(PANICKED))?;
        opened.map_err(|error| open_error(path, error))
    }

    fn try_open(path: &Path) -> fjall::Result<Self> {
        let database = Database::builder(path).open()?;
        let records = database.keyspace(KEYSPACE, KeyspaceCreateOptions::default)?;
        Ok(Self { database, records })
    }
}

impl Journal for FjallJournal {
    fn load(&mut self, visit: &mut Visitor<'_>) -> Result<(), Error> {
        for record in self.records.iter() {
            let (name, value) = record.into_inner().map_err(read_error)?;
            visit(&name, &value)?;
        }
        Ok(())
    }

    fn append(
        &mut self,
        group: &mut dyn Iterator<Item = Write>,
        durability: Durability,
    ) -> Result<(), Error> {
        let mode = match durability {
            Durability::Buffered => PersistMode::Buffer,
            Durability::Durable => PersistMode::SyncData,
        };
        let mut batch = self.database.batch().durability(Some(mode));
        for Write { name, value } in group {
            match value {
                Some(value) => batch.insert(&self.records, name, value),
                None => batch.remove(&self.records, name),
            }
        }
        batch.commit().map_err(|error| {
            Error::new(ErrorKind::Poisoned, "cannot write to the journal")
                .because(cause(error))
        })
    }

    fn close(self: Box<Self>) {}
}

/// Unwraps an I/O error, which says more than fjall's text about it.
#[expect(clippy::wildcard_enum_match_arm, reason = "other errors are fjall's own")]
fn cause(error: fjall::Error) -> Box<dyn std::error::Error + Send + Sync> {
    match error {
        fjall::Error::Io(error) => error.into(),
        error => error.into(),
    }
}

fn read_error(error: fjall::Error) -> Error {
    let text = "cannot read the records of the queue";
    Error::new(ErrorKind::Corrupt, text).because(error)
}

fn damaged(path: &Path) -> Error {
    let text = format!("the queue at {} is damaged", path.display());
    Error::new(ErrorKind::Corrupt, text)
}

/// Classifies fjall's reason for not opening a folder.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "every other error, of later versions too, means unreadable files"
)]
fn open_error(path: &Path, error: fjall::Error) -> Error {
    let shown = path.display();
    match error {
        fjall::Error::Locked => {
            let text = format!(
                "the queue at {shown} is already open, in this process or another one"
            );
            Error::new(ErrorKind::Conflict, text)
        }
        fjall::Error::InvalidVersion(found) => {
            let found = found.map_or("unknown".to_owned(), |it| it.to_string());
            let text = format!(
                "the queue at {shown} has an unsupported fjall format: version {found}, \
                 expected 3"
            );
            Error::new(ErrorKind::Version, text)
        }
        fjall::Error::Io(error) => folder::open_error(path, error),
        error => damaged(path).because(error),
    }
}
