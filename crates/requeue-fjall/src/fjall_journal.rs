//! The journal on fjall: an LSM tree with a preallocated journal file.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use requeue_store::{Error, ErrorKind};

use crate::folder;
use crate::journal::{Durability, Journal, Visitor, Write, WriteError};
use crate::reserve::Reserve;

/// The size of the file that shows whether a disk is full: the size of a sorted table.
const PROBE: usize = 256 << 10;

/// The keyspace that contains all records.
const KEYSPACE: &str = "queue";

/// A fjall database in a folder.
pub(crate) struct FjallJournal {
    path: PathBuf,
    /// `None` after a failed attempt to reopen it.
    open: Option<OpenDatabase>,
    reserve: Reserve,
}

struct OpenDatabase {
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
        let open = Some(OpenDatabase::open(path)?);
        Ok(Self { path: path.to_owned(), open, reserve: Reserve::new(path) })
    }

    fn database(&self) -> Result<&OpenDatabase, Error> {
        let closed = || Error::new(ErrorKind::Poisoned, "the journal is not open");
        self.open.as_ref().ok_or_else(closed)
    }
}

impl OpenDatabase {
    fn open(path: &Path) -> Result<Self, Error> {
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

    fn write(&self, group: &mut dyn Iterator<Item = Write>) -> fjall::Result<()> {
        let mode = Some(PersistMode::Buffer);
        let mut batch = self.database.batch().durability(mode);
        for Write { name, value } in group {
            match value {
                Some(value) => batch.insert(&self.records, name, value),
                None => batch.remove(&self.records, name),
            }
        }
        batch.commit()
    }
}

impl Journal for FjallJournal {
    fn load(&mut self, visit: &mut Visitor<'_>) -> Result<(), Error> {
        for record in self.database()?.records.iter() {
            let (name, value) = record.into_inner().map_err(read_error)?;
            visit(&name, &value)?;
        }
        Ok(())
    }

    fn append(
        &mut self,
        group: &mut dyn Iterator<Item = Write>,
        durability: Durability,
    ) -> Result<(), WriteError> {
        let open = self.database().map_err(WriteError::Failed)?;
        open.write(group).map_err(|error| {
            let text = "cannot write to the journal";
            if is_full(&error) || is_poisoned(&error) && !self.has_space() {
                WriteError::Full(Error::new(ErrorKind::Full, text).because(cause(error)))
            } else {
                failed(text, error)
            }
        })?;
        match durability {
            Durability::Buffered => Ok(()),
            // A failed fsync is never repeated, not even if the disk is full: pages that were
            // not written may count as written.
            Durability::Durable => open
                .database
                .persist(PersistMode::SyncData)
                .map_err(|error| failed("cannot write the journal to disk", error)),
        }
    }

    fn reopen(&mut self) -> Result<(), WriteError> {
        // The old database holds the lock of the folder.
        self.open = None;
        let open = OpenDatabase::open(&self.path).map_err(|error| {
            if error.kind() == ErrorKind::Full {
                WriteError::Full(error)
            } else {
                WriteError::Failed(error)
            }
        })?;
        self.open = Some(open);
        Ok(())
    }

    fn reserve(&mut self) -> bool {
        self.reserve.ensure()
    }

    fn release(&mut self) {
        self.reserve.remove();
    }

    fn close(self: Box<Self>) {}
}

impl FjallJournal {
    /// Returns whether a small file can be written.
    fn has_space(&self) -> bool {
        let path = self.path.join("probe");
        let written = fs::write(&path, vec![0; PROBE]);
        drop(fs::remove_file(&path));
        !written.is_err_and(|error| folder::is_full(&error))
    }
}

fn failed(text: &str, error: fjall::Error) -> WriteError {
    WriteError::Failed(Error::new(ErrorKind::Poisoned, text).because(cause(error)))
}

#[expect(clippy::wildcard_enum_match_arm, reason = "other errors are fjall's own")]
fn is_full(error: &fjall::Error) -> bool {
    match error {
        fjall::Error::Io(error) => folder::is_full(error),
        _ => false,
    }
}

/// Returns whether one of fjall's own threads failed before. It does not say why.
fn is_poisoned(error: &fjall::Error) -> bool {
    matches!(error, fjall::Error::Poisoned)
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
