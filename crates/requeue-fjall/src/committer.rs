//! Group commit: one thread writes all changes that accumulated during its last write.
//!
//! A single call is written at once. Calls made during that write form the next group and
//! share one fsync. There is no timer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use requeue_store::machine::TimeSource;
use requeue_store::{Error, ErrorKind};
use tokio::sync::Notify;

use crate::commit::CommitWait;
use crate::group::Group;
use crate::journal::{Journal, WriteError};
use crate::journaled_machine::{JournaledMachine, Lifecycle, Operation};

/// State shared by callers and the committer thread.
#[derive(Debug)]
pub(crate) struct Shared {
    journaled: Mutex<JournaledMachine>,
    /// Notifies the committer of a new group or of closing.
    committer_wake: Condvar,
    pub(crate) time: TimeSource,
    /// Notified when a key is ready, and when the first delay ends earlier than before. It
    /// stores one notification for the next waiter, so a key that becomes ready between a
    /// look and the wait is not missed.
    pub(crate) news: Notify,
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
            news: Notify::new(),
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
        access: Access,
        act: impl FnOnce(&mut Operation<'_>) -> T,
    ) -> Result<T, Error> {
        while let Some(room) = self.wait_for_room(access)? {
            self.wait_for(room).await?;
        }
        let (answer, commit) = self.run(access, act)?;
        if let Some(commit) = commit {
            self.wait_for(commit).await?;
        }
        Ok(answer)
    }

    /// Refuses further calls, and lets the committer write the remaining changes.
    pub(crate) fn close(&self) {
        self.lock().close();
        self.committer_wake.notify_one();
        self.news.notify_waiters();
    }

    /// Refuses further calls because a write failed.
    fn poison(&self, cause: &Arc<str>) {
        self.lock().poison(cause);
        self.news.notify_waiters();
    }

    fn wait_for_room(&self, access: Access) -> Result<Option<CommitWait>, Error> {
        let journaled = self.lock();
        self.check_access(&journaled, access)?;
        Ok(journaled.wait_for_room())
    }

    fn run<T>(
        &self,
        access: Access,
        act: impl FnOnce(&mut Operation<'_>) -> T,
    ) -> Result<(T, Option<CommitWait>), Error> {
        let mut journaled = self.lock();
        self.check_access(&journaled, access)?;
        let before = journaled.machine().first_delay();
        let mut operation = Operation::new(&mut journaled, self.time.now());
        let answer = act(&mut operation);
        let commit = operation.wait();
        let ready = journaled.machine().has_ready();
        let after = journaled.machine().first_delay();
        let wake =
            journaled.has_changes() && std::mem::take(&mut journaled.committer_is_idle);
        drop(journaled);
        if wake {
            self.committer_wake.notify_one();
        }
        let earlier = after.is_some_and(|after| before.is_none_or(|it| after < it));
        if earlier {
            self.news.notify_waiters();
        }
        if ready || earlier {
            self.news.notify_one();
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

    /// Fails if the store is closed or poisoned, or if the disk is full for a write.
    fn check_access(
        &self,
        journaled: &JournaledMachine,
        access: Access,
    ) -> Result<(), Error> {
        self.check_open(journaled)?;
        if journaled.is_full && access == Access::Write {
            let text = format!(
                "the disk of the queue at {} is full; free some space",
                self.path.display()
            );
            return Err(Error::new(ErrorKind::Full, text));
        }
        Ok(())
    }

    /// Returns the time until the first delay ends.
    pub(crate) fn due_in(&self) -> Result<Duration, Error> {
        let journaled = self.lock();
        self.check_open(&journaled)?;
        let first = journaled.machine().first_delay();
        Ok(first.map_or(Duration::MAX, |at| at.since(self.time.now())))
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

    /// Waits for the next group, or for the next attempt to reserve space.
    fn next_work(&self) -> Work {
        let mut journaled = self.lock();
        loop {
            if journaled.has_changes() {
                return Work::Write(journaled.take_group(self.time.now()));
            }
            if !matches!(journaled.lifecycle(), Lifecycle::Open) {
                return Work::Close;
            }
            if journaled.is_full {
                drop(self.pause(journaled));
                return Work::Reserve;
            }
            journaled.committer_is_idle = true;
            let woken = self.committer_wake.wait(journaled);
            journaled = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits a little while the disk is full.
    fn pause<'a>(
        &self,
        journaled: MutexGuard<'a, JournaledMachine>,
    ) -> MutexGuard<'a, JournaledMachine> {
        let woken = self.committer_wake.wait_timeout(journaled, FULL_PAUSE);
        woken.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits a little while a group cannot be written. Returns whether the store is open.
    fn pause_while_full(&self) -> bool {
        let journaled = self.lock();
        let is_open = matches!(journaled.lifecycle(), Lifecycle::Open);
        if is_open {
            drop(self.pause(journaled));
        }
        is_open
    }
}

/// Whether a call changes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// It only looks, or changes nothing that is stored before it is answered.
    Read,
    Write,
}

/// The next work of the committer.
enum Work {
    Write(Arc<Group>),
    /// Try to reserve space.
    Reserve,
    Close,
}

/// The pause between two attempts to write or to reserve space while the disk is full.
const FULL_PAUSE: Duration = Duration::from_millis(50);

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
    loop {
        let group = match shared.next_work() {
            Work::Write(group) => group,
            Work::Reserve => {
                let is_full = !journal.reserve();
                shared.lock().is_full = is_full;
                continue;
            }
            Work::Close => break,
        };
        // A panic in the journal is handled like an error.
        let written =
            catch_unwind(AssertUnwindSafe(|| write_group(shared, &mut *journal, &group)));
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

/// Writes a group. While the disk is full, repeats it with the space of the reserve.
///
/// The error is final: the store was closed meanwhile, or the disk failed.
fn write_group(
    shared: &Shared,
    journal: &mut dyn Journal,
    group: &Group,
) -> Result<(), Error> {
    let mut result = journal.append(&mut group.writes(), group.durability());
    loop {
        match result {
            Ok(()) => return Ok(()),
            Err(WriteError::Failed(error)) => return Err(error),
            Err(WriteError::Full(error)) => {
                let is_first = !std::mem::replace(&mut shared.lock().is_full, true);
                journal.release();
                if !is_first && !shared.pause_while_full() {
                    return Err(error);
                }
            }
        }
        result = journal
            .reopen()
            .and_then(|()| journal.append(&mut group.writes(), group.durability()));
    }
}

/// Formats an error and its causes on one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests;
