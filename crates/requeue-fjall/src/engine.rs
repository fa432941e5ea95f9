//! The journal on fjall: an LSM tree behind a journal that is allocated ahead.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use requeue_store::{Error, ErrorKind};

use crate::journal::{Journal, Reach, Visitor, Write};
use crate::place;

/// The keyspace that holds the records.
const KEYSPACE: &str = "queue";

/// A folder of fjall's, open.
pub(crate) struct Engine {
    database: Database,
    records: Keyspace,
}

/// What is said of a panic in the engine: see the documentation of the crate.
const PANICKED: &str = if cfg!(debug_assertions) {
    "the engine panicked, which a debug build of it also does where a crash has torn the \
     last record; a release build may open it"
} else {
    "the engine panicked"
};

impl Engine {
    /// Opens the folder, and makes it if it is not there.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        // fjall asserts some of what it reads.
        let opened = catch_unwind(AssertUnwindSafe(|| Self::try_open(path)));
        let opened = opened.map_err(|_| damaged(path).because(PANICKED))?;
        opened.map_err(|error| failed_to_open(path, error))
    }

    fn try_open(path: &Path) -> fjall::Result<Self> {
        let database = Database::builder(path).open()?;
        let records = database.keyspace(KEYSPACE, KeyspaceCreateOptions::default)?;
        Ok(Self { database, records })
    }
}

impl Journal for Engine {
    fn load(&mut self, visit: &mut Visitor<'_>) -> Result<(), Error> {
        for record in self.records.iter() {
            let (name, value) = record.into_inner().map_err(failed_to_read)?;
            visit(&name, &value)?;
        }
        Ok(())
    }

    fn append(
        &mut self,
        group: &mut dyn Iterator<Item = Write>,
        reach: Reach,
    ) -> Result<(), Error> {
        let mode = match reach {
            Reach::System => PersistMode::Buffer,
            Reach::Disk => PersistMode::SyncData,
        };
        let mut batch = self.database.batch().durability(Some(mode));
        for Write { name, value } in group {
            match value {
                Some(value) => batch.insert(&self.records, name, value),
                None => batch.remove(&self.records, name),
            }
        }
        batch.commit().map_err(|error| {
            Error::new(ErrorKind::Poisoned, "a group was not kept").because(cause(error))
        })
    }

    fn close(self: Box<Self>) {}
}

/// What the disk said, if it is that, without what fjall says about it.
#[expect(clippy::wildcard_enum_match_arm, reason = "all else is fjall's own to say")]
fn cause(error: fjall::Error) -> Box<dyn std::error::Error + Send + Sync> {
    match error {
        fjall::Error::Io(error) => error.into(),
        error => error.into(),
    }
}

fn failed_to_read(error: fjall::Error) -> Error {
    let text = "the records of the queue cannot be read";
    Error::new(ErrorKind::Corrupt, text).because(error)
}

fn damaged(path: &Path) -> Error {
    let text = format!("the queue at {} cannot be read: it is damaged", path.display());
    Error::new(ErrorKind::Corrupt, text)
}

/// What it means that fjall does not open a folder.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "whatever else fjall says, and will say, is that it cannot read its files"
)]
fn failed_to_open(path: &Path, error: fjall::Error) -> Error {
    let shown = path.display();
    match error {
        fjall::Error::Locked => {
            let text =
                format!("the queue at {shown} is in use, by another process or this one");
            Error::new(ErrorKind::Conflict, text)
        }
        fjall::Error::InvalidVersion(found) => {
            let found = found.map_or("an unknown one".to_owned(), |it| it.to_string());
            let text =
                format!("the files at {shown} are of fjall's version {found}, not 3");
            Error::new(ErrorKind::Version, text)
        }
        fjall::Error::Io(error) => place::failed(path, error),
        error => damaged(path).because(error),
    }
}
