//! The store: a queue in memory, and a journal that is always a step ahead of the answers.

use std::fmt;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use requeue_store::machine::Machine;
use requeue_store::{
    Add, Dead, Error, Expired, Failing, FinishRequest, Finished, Hold, Key, LeaseRequest,
    Leased, Look, Now, Owner, Receipt, Reply, Stats, Store, Which, Worker, within,
};

use crate::FjallStoreBuilder;
use crate::committer::{self, Shared};
use crate::journal::Journal;
use crate::ledger::{Ledger, Stage, Turn};
use crate::record;

/// A queue on disk that one process has open.
///
/// All keys are in memory as well; the disk is read when it is opened and only written
/// after that. Clones are the same store. It needs no runtime: a thread of its own writes.
///
/// When the last clone is dropped, what is not written yet is, and the files are let go:
/// that takes as long as a write. [`close`](FjallStore::close) does the same and tells how
/// it went.
#[derive(Clone)]
pub struct FjallStore {
    open: Arc<Open>,
}

/// The part that ends the thread when nobody has the store any more.
struct Open {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Open {
    fn close(&self) {
        self.shared.close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A thread that panicked has written what it could, and nothing waits for it.
            drop(thread.join());
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.close();
    }
}

impl FjallStore {
    /// Opens the queue in the folder `path`, which is made if it is not there.
    ///
    /// # Errors
    ///
    /// As [`FjallStoreBuilder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::builder(path).open()
    }

    /// What opens the queue in the folder `path`, which is made if it is not there.
    pub fn builder(path: impl AsRef<Path>) -> FjallStoreBuilder {
        FjallStoreBuilder::new(path.as_ref())
    }

    /// Closes the store for all who have it, and lets go of its files. It blocks until all
    /// is written; calls that come later get
    /// [`ErrorKind::Closed`](requeue_store::ErrorKind::Closed).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Poisoned`](requeue_store::ErrorKind::Poisoned) if the disk has failed.
    pub fn close(&self) -> Result<(), Error> {
        self.open.close();
        let stage = self.shared().lock().stage().clone();
        match stage {
            Stage::Poisoned(cause) => Err(self.shared().poisoned(&cause)),
            Stage::Open | Stage::Closed => Ok(()),
        }
    }

    /// A store on a journal, with what it kept.
    pub(crate) fn on(
        mut journal: Box<dyn Journal>,
        path: PathBuf,
        now: Now,
    ) -> Result<Self, Error> {
        let mut records = Vec::new();
        journal.load(&mut |name, value| {
            records.push(record::decode(name, value)?);
            Ok(())
        })?;
        let ledger = Ledger::restore(records, now.read());
        let shared = Arc::new(Shared::new(ledger, now, path));
        let thread = committer::start(Arc::clone(&shared), journal)?;
        let thread = Mutex::new(Some(thread));
        Ok(Self { open: Arc::new(Open { shared, thread }) })
    }

    fn shared(&self) -> &Shared {
        &self.open.shared
    }

    fn call<'a, T: Send + 'a>(
        &'a self,
        act: impl FnOnce(&mut Turn<'_>) -> T + Send + 'a,
    ) -> Reply<'a, T> {
        Box::pin(self.shared().call(act))
    }
}

impl fmt::Debug for FjallStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = self.shared().lock().machine().stats(self.shared().now.read());
        f.debug_struct("FjallStore")
            .field("path", &self.shared().path)
            .field("stats", &stats)
            .finish_non_exhaustive()
    }
}

impl Store for FjallStore {
    fn describe(&self) -> String {
        format!("the queue at {}", self.shared().path.display())
    }

    fn add<'a>(&'a self, adds: &'a [Add]) -> Reply<'a, Vec<Receipt>> {
        self.call(|turn| {
            let add =
                |add: &Add| turn.on_key(&add.key, |machine, now| machine.add(add, now));
            adds.iter().map(add).collect()
        })
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest) -> Reply<'a, Leased> {
        self.call(|turn| turn.lease(request))
    }

    fn extend<'a>(
        &'a self,
        owner: &'a Owner,
        held: &'a [Hold],
        lease: Duration,
    ) -> Reply<'a, Vec<bool>> {
        self.call(move |turn| {
            turn.softly(|machine, now| machine.extend(owner, held, lease, now))
        })
    }

    fn finish<'a>(&'a self, requests: &'a [FinishRequest]) -> Reply<'a, Vec<Finished>> {
        self.call(|turn| {
            let finish = |request: &FinishRequest| {
                let key = &request.hold.key;
                turn.on_key(key, |machine, now| machine.finish(request, now))
            };
            requests.iter().map(finish).collect()
        })
    }

    fn reclaim<'a>(&'a self, owner: &'a Owner, held: &'a [Hold]) -> Reply<'a, u64> {
        self.call(|turn| turn.firmly(|machine, now| machine.reclaim(owner, held, now)))
    }

    fn expire(&self, max_deliveries: Option<NonZeroU32>) -> Reply<'_, Expired> {
        self.call(move |turn| {
            turn.softly(|machine, now| machine.expire(max_deliveries, now))
        })
    }

    fn forget<'a>(&'a self, keys: &'a [Key]) -> Reply<'a, ()> {
        self.call(move |turn| {
            for key in keys {
                turn.on_key(key, |machine, _| machine.forget(key));
            }
        })
    }

    fn remove<'a>(&'a self, keys: &'a [Key]) -> Reply<'a, Vec<bool>> {
        self.call(|turn| {
            let remove = |key| turn.on_key(key, |machine, _| machine.remove(key));
            keys.iter().map(remove).collect()
        })
    }

    fn look<'a>(&'a self, keys: &'a [Key]) -> Reply<'a, Vec<Look>> {
        self.call(|turn| {
            turn.softly(|machine, now| {
                machine.move_due(now);
                keys.iter().map(|key| machine.look(key, now)).collect()
            })
        })
    }

    fn stats(&self) -> Reply<'_, Stats> {
        self.call(|turn| {
            turn.softly(|machine, now| {
                machine.move_due(now);
                machine.stats(now)
            })
        })
    }

    fn failing(&self, limit: usize) -> Reply<'_, Vec<Failing>> {
        self.call(move |turn| turn.softly(|machine, now| machine.failing(limit, now)))
    }

    fn workers(&self) -> Reply<'_, Vec<Worker>> {
        self.call(|turn| turn.softly(Machine::workers))
    }

    fn dead(&self, limit: usize) -> Reply<'_, Vec<Dead>> {
        self.call(move |turn| turn.softly(|machine, now| machine.dead(limit, now)))
    }

    fn revive<'a>(&'a self, which: &'a Which) -> Reply<'a, u64> {
        self.call(|turn| turn.firmly(|machine, now| machine.revive(which, now)))
    }

    fn drop_dead<'a>(&'a self, which: &'a Which) -> Reply<'a, u64> {
        self.call(|turn| turn.firmly(|machine, _| machine.drop_dead(which)))
    }

    fn pause(&self) -> Reply<'_, ()> {
        self.call(|turn| turn.set_paused(true))
    }

    fn resume(&self) -> Reply<'_, ()> {
        self.call(|turn| turn.set_paused(false))
    }

    fn wait(&self, at_most: Duration) -> Reply<'_, ()> {
        Box::pin(async move {
            let shared = self.shared();
            shared.check(&shared.lock())?;
            within(at_most, shared.ready.notified()).await;
            Ok(())
        })
    }
}
