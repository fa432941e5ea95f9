//! Group commit: one thread writes what has gathered while it wrote what was before.
//!
//! A lone call is written at once; the calls that come meanwhile are one group, and one
//! fsync is enough for all of them. There is no timer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use requeue_store::{Error, ErrorKind, Now};
use tokio::sync::Notify;

use crate::group::Group;
use crate::journal::Journal;
use crate::ledger::{Ledger, Stage, Turn};
use crate::outcome::Ticket;

/// What calls and the committer share.
#[derive(Debug)]
pub(crate) struct Shared {
    ledger: Mutex<Ledger>,
    /// Told when there is something to write, or when the store is closed.
    work: Condvar,
    pub(crate) now: Now,
    /// Woken when a key is ready. It keeps one wake-up for the next who waits, so a key
    /// that comes between a look and the wait is not missed.
    pub(crate) ready: Notify,
    pub(crate) path: PathBuf,
}

impl Shared {
    pub(crate) fn new(ledger: Ledger, now: Now, path: PathBuf) -> Self {
        let (ledger, work, ready) = (Mutex::new(ledger), Condvar::new(), Notify::new());
        Self { ledger, work, now, ready, path }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Ledger> {
        // Every transition is whole, and no code of users runs inside: what a panic leaves
        // behind is sound.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out a call once there is room for what it changes, and waits until what it
    /// must wait for is on disk.
    pub(crate) async fn call<T>(
        &self,
        act: impl FnOnce(&mut Turn<'_>) -> T,
    ) -> Result<T, Error> {
        while let Some(ticket) = self.crowded()? {
            self.wait_for(ticket).await?;
        }
        let (answer, ticket) = self.act(act)?;
        if let Some(ticket) = ticket {
            self.wait_for(ticket).await?;
        }
        Ok(answer)
    }

    /// Takes no more calls, and has what is left written.
    pub(crate) fn close(&self) {
        self.lock().close();
        self.work.notify_one();
        self.ready.notify_waiters();
    }

    /// Takes no more calls, because the disk has failed.
    fn poison(&self, cause: &Arc<str>) {
        self.lock().poison(cause);
        self.ready.notify_waiters();
    }

    fn crowded(&self) -> Result<Option<Ticket>, Error> {
        let ledger = self.lock();
        self.check(&ledger)?;
        Ok(ledger.crowded())
    }

    fn act<T>(
        &self,
        act: impl FnOnce(&mut Turn<'_>) -> T,
    ) -> Result<(T, Option<Ticket>), Error> {
        let mut ledger = self.lock();
        self.check(&ledger)?;
        let mut turn = Turn::new(&mut ledger, self.now.read());
        let answer = act(&mut turn);
        let ticket = turn.ticket();
        let ready = ledger.machine().has_ready();
        let wake = ledger.has_group() && std::mem::take(&mut ledger.idle);
        drop(ledger);
        if wake {
            self.work.notify_one();
        }
        if ready {
            self.ready.notify_one();
        }
        Ok((answer, ticket))
    }

    /// Whether calls are taken.
    pub(crate) fn check(&self, ledger: &Ledger) -> Result<(), Error> {
        match ledger.stage() {
            Stage::Open => Ok(()),
            Stage::Closed => Err(self.closed()),
            Stage::Poisoned(cause) => Err(self.poisoned(cause)),
        }
    }

    async fn wait_for(&self, ticket: Ticket) -> Result<(), Error> {
        ticket.await.map_err(|cause| self.poisoned(&cause))
    }

    pub(crate) fn closed(&self) -> Error {
        let text = format!("the queue at {} is closed", self.path.display());
        Error::new(ErrorKind::Closed, text)
    }

    pub(crate) fn poisoned(&self, cause: &str) -> Error {
        let text = format!(
            "the queue at {} could not be written and accepts nothing more; open it anew to \
             see what it kept",
            self.path.display()
        );
        Error::new(ErrorKind::Poisoned, text).because(cause)
    }

    /// Waits for something to write: nothing, if the store is closed and all is written.
    fn next_group(&self) -> Option<Arc<Group>> {
        let mut ledger = self.lock();
        loop {
            if ledger.has_group() {
                return Some(ledger.take_group(self.now.read()));
            }
            if !matches!(ledger.stage(), Stage::Open) {
                return None;
            }
            ledger.idle = true;
            ledger = self.work.wait(ledger).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Starts the thread that writes.
pub(crate) fn start(
    shared: Arc<Shared>,
    journal: Box<dyn Journal>,
) -> Result<JoinHandle<()>, Error> {
    let text = format!("no thread could be started for {}", shared.path.display());
    Builder::new()
        .name("requeue-fjall".to_owned())
        .spawn(move || run(&shared, journal))
        .map_err(|error| Error::new(ErrorKind::Unavailable, text).because(error))
}

fn run(shared: &Shared, mut journal: Box<dyn Journal>) {
    while let Some(group) = shared.next_group() {
        // A journal that panics has failed as one that says so.
        let written = catch_unwind(AssertUnwindSafe(|| {
            journal.append(&mut group.writes(), group.reach())
        }));
        let cause = match written {
            Ok(Ok(())) => {
                shared.lock().wrote();
                group.end(Ok(()));
                continue;
            }
            Ok(Err(error)) => chain(&error),
            Err(_) => "the engine panicked".to_owned(),
        };
        let cause = Arc::from(cause);
        shared.poison(&cause);
        group.end(Err(cause));
        break;
    }
    journal.close();
}

/// An error and its causes on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests;
