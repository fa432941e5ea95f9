//! Group commit: one thread writes all changes that accumulated during its last write.
//!
//! A single call is written at once. Calls made during that write form the next group and
//! share one fsync. There is no timer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use requeue_store::machine::TimeSource;
use requeue_store::{Error, ErrorKind};
use tokio::sync::Notify;

use crate::commit::CommitWait;
use crate::group::Group;
use crate::journal::Journal;
use crate::journaled_machine::{JournaledMachine, Lifecycle, Operation};

/// State shared by callers and the committer thread.
#[derive(Debug)]
pub(crate) struct Shared {
    journaled: Mutex<JournaledMachine>,
    /// Notifies the committer of a new group or of closing.
    committer_wake: Condvar,
    pub(crate) time: TimeSource,
    /// Notified when a key is ready. It stores one notification for the next waiter, so a
    /// key that becomes ready between a look and the wait is not missed.
    pub(crate) key_ready: Notify,
    pub(crate) path: PathBuf,
}

impl Shared {
    pub(crate) fn new(
        journaled: JournaledMachine,
        time: TimeSource,
        path: PathBuf,
    ) -> Self {
        Self {
            journaled: Mutex::new(journaled),
            committer_wake: Condvar::new(),
            time,
            key_ready: Notify::new(),
            path,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, JournaledMachine> {
        // Transitions are atomic and run no user code, so the state is sound even after a
        // panic.
        self.journaled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a call once there is room for its changes, and waits for the commit it needs.
    pub(crate) async fn call<T>(
        &self,
        act: impl FnOnce(&mut Operation<'_>) -> T,
    ) -> Result<T, Error> {
        while let Some(room) = self.wait_for_room()? {
            self.wait_for(room).await?;
        }
        let (answer, commit) = self.run(act)?;
        if let Some(commit) = commit {
            self.wait_for(commit).await?;
        }
        Ok(answer)
    }

    /// Refuses further calls, and lets the committer write the remaining changes.
    pub(crate) fn close(&self) {
        self.lock().close();
        self.committer_wake.notify_one();
        self.key_ready.notify_waiters();
    }

    /// Refuses further calls because a write failed.
    fn poison(&self, cause: &Arc<str>) {
        self.lock().poison(cause);
        self.key_ready.notify_waiters();
    }

    fn wait_for_room(&self) -> Result<Option<CommitWait>, Error> {
        let journaled = self.lock();
        self.check_open(&journaled)?;
        Ok(journaled.wait_for_room())
    }

    fn run<T>(
        &self,
        act: impl FnOnce(&mut Operation<'_>) -> T,
    ) -> Result<(T, Option<CommitWait>), Error> {
        let mut journaled = self.lock();
        self.check_open(&journaled)?;
        let mut operation = Operation::new(&mut journaled, self.time.now());
        let answer = act(&mut operation);
        let commit = operation.wait();
        let ready = journaled.machine().has_ready();
        let wake =
            journaled.has_changes() && std::mem::take(&mut journaled.committer_is_idle);
        drop(journaled);
        if wake {
            self.committer_wake.notify_one();
        }
        if ready {
            self.key_ready.notify_one();
        }
        Ok((answer, commit))
    }

    /// Fails if the store is closed or poisoned.
    pub(crate) fn check_open(&self, journaled: &JournaledMachine) -> Result<(), Error> {
        match journaled.lifecycle() {
            Lifecycle::Open => Ok(()),
            Lifecycle::Closed => Err(self.closed()),
            Lifecycle::Poisoned(cause) => Err(self.poisoned(cause)),
        }
    }

    async fn wait_for(&self, commit: CommitWait) -> Result<(), Error> {
        commit.await.map_err(|cause| self.poisoned(&cause))
    }

    fn closed(&self) -> Error {
        let text = format!("the queue at {} is closed", self.path.display());
        Error::new(ErrorKind::Closed, text)
    }

    pub(crate) fn poisoned(&self, cause: &str) -> Error {
        let text = format!(
            "a write to the queue at {} failed, and the store has stopped; open it again to \
             continue",
            self.path.display()
        );
        Error::new(ErrorKind::Poisoned, text).because(cause)
    }

    /// Waits for the next group. Returns `None` when the store is closed and all is written.
    fn next_group(&self) -> Option<Arc<Group>> {
        let mut journaled = self.lock();
        loop {
            if journaled.has_changes() {
                return Some(journaled.take_group(self.time.now()));
            }
            if !matches!(journaled.lifecycle(), Lifecycle::Open) {
                return None;
            }
            journaled.committer_is_idle = true;
            let woken = self.committer_wake.wait(journaled);
            journaled = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Starts the committer thread.
pub(crate) fn start(
    shared: Arc<Shared>,
    journal: Box<dyn Journal>,
) -> Result<JoinHandle<()>, Error> {
    let text = format!(
        "cannot start the writer thread of the queue at {}",
        shared.path.display()
    );
    Builder::new()
        .name("requeue-fjall".to_owned())
        .spawn(move || commit_groups(&shared, journal))
        .map_err(|error| Error::new(ErrorKind::Unavailable, text).because(error))
}

fn commit_groups(shared: &Shared, mut journal: Box<dyn Journal>) {
    while let Some(group) = shared.next_group() {
        // A panic in the journal is handled like an error.
        let written = catch_unwind(AssertUnwindSafe(|| {
            journal.append(&mut group.writes(), group.durability())
        }));
        let cause = match written {
            Ok(Ok(())) => {
                shared.lock().group_written();
                group.complete(Ok(()));
                continue;
            }
            Ok(Err(error)) => with_causes(&error),
            Err(_) => "fjall panicked".to_owned(),
        };
        let cause = Arc::from(cause);
        shared.poison(&cause);
        group.complete(Err(cause));
        break;
    }
    journal.close();
}

/// Formats an error and its causes on one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests;
