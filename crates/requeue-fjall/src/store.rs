//! The store: a queue in memory, with a journal written before calls are answered.

use std::fmt;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use requeue_store::machine::{Machine, TimeSource};
use requeue_store::{
    Add, Dead, EngineTime, Error, Expired, Failing, FinishRequest, Finished, Hold, Key,
    LeaseRequest, Leased, Look, Owner, Receipt, Replies, Reply, Stats, Store,
    TakeRequest, Taken, Which, Worker, every, within,
};

use crate::FjallStoreBuilder;
use crate::committer::{self, Access, Shared};
use crate::journal::Journal;
use crate::journaled_machine::{JournaledMachine, Lifecycle, Operation};
use crate::{migration, record};

/// A durable queue in a folder.
///
/// All keys are also in memory: the disk is read only when the store is opened. Clones
/// share one store. It has its own writer thread and needs no async runtime.
///
/// Dropping the last clone writes the remaining changes and closes the files. It blocks for
/// about one write. [`close`](FjallStore::close) does the same and reports errors.
#[derive(Clone)]
pub struct FjallStore {
    committer: Arc<CommitterHandle>,
}

/// Ends the committer thread when the last clone of the store is dropped.
struct CommitterHandle {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl CommitterHandle {
    fn close(&self) {
        self.shared.close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // After a panic there is nothing left to wait for, or to report here.
            drop(thread.join());
        }
    }
}

impl Drop for CommitterHandle {
    fn drop(&mut self) {
        self.close();
    }
}

impl FjallStore {
    /// Opens the queue in the folder `path`, which is created if it is missing.
    ///
    /// # Errors
    ///
    /// The same as [`FjallStoreBuilder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::builder(path).open()
    }

    /// Returns a builder for the queue in the folder `path`.
    pub fn builder(path: impl AsRef<Path>) -> FjallStoreBuilder {
        FjallStoreBuilder::new(path.as_ref())
    }

    /// Closes the store and all its clones.
    ///
    /// Blocks until the remaining changes are written and the files are closed. Later calls
    /// fail with [`ErrorKind::Closed`](requeue_store::ErrorKind::Closed).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Poisoned`](requeue_store::ErrorKind::Poisoned) if a write failed, now or
    /// earlier.
    pub fn close(&self) -> Result<(), Error> {
        self.committer.close();
        let lifecycle = self.shared().lock().lifecycle().clone();
        match lifecycle {
            Lifecycle::Poisoned(cause) => Err(self.shared().poisoned(&cause)),
            Lifecycle::Open | Lifecycle::Closed => Ok(()),
        }
    }

    /// Restores a store from a journal.
    pub(crate) fn restore(
        mut journal: Box<dyn Journal>,
        path: PathBuf,
        time: TimeSource,
    ) -> Result<Self, Error> {
        let mut records = Vec::new();
        journal.load(&mut |name, value| {
            let (record, version) = record::decode(name, value)?;
            if version < record::VERSION {
                return Err(migration::needed(&path, version));
            }
            records.push(record);
            Ok(())
        })?;
        let mut journaled = JournaledMachine::restore(records, time.now());
        journaled.is_full = !journal.reserve();
        let shared = Arc::new(Shared::new(journaled, time, path));
        let thread = committer::start(Arc::clone(&shared), journal)?;
        let thread = Mutex::new(Some(thread));
        Ok(Self { committer: Arc::new(CommitterHandle { shared, thread }) })
    }

    fn shared(&self) -> &Shared {
        &self.committer.shared
    }

    fn call<'a, T: Send + 'a>(
        &'a self,
        act: impl FnOnce(&mut Operation<'_>) -> T + Send + 'a,
    ) -> Reply<'a, T> {
        Box::pin(self.shared().call(Access::Write, act))
    }

    /// As [`call`](Self::call), but also while the disk is full.
    fn read<'a, T: Send + 'a>(
        &'a self,
        act: impl FnOnce(&mut Machine, EngineTime) -> T + Send + 'a,
    ) -> Reply<'a, T> {
        let read = |operation: &mut Operation<'_>| operation.buffered(act);
        Box::pin(self.shared().call(Access::Read, read))
    }

    /// As [`call`](Self::call) for `n` requests.
    fn call_each<'a, T: Send + 'a>(
        &'a self,
        n: usize,
        act: impl FnOnce(&mut Operation<'_>) -> Vec<T> + Send + 'a,
    ) -> Replies<'a, T> {
        Box::pin(async move { every(n, self.shared().call(Access::Write, act).await) })
    }

    /// As [`read`](Self::read) for `n` requests.
    fn read_each<'a, T: Send + 'a>(
        &'a self,
        n: usize,
        act: impl FnOnce(&mut Machine, EngineTime) -> Vec<T> + Send + 'a,
    ) -> Replies<'a, T> {
        Box::pin(async move { every(n, self.read(act).await) })
    }
}

impl fmt::Debug for FjallStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = self.shared().lock().machine().stats(self.shared().time.now());
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

    fn add<'a>(&'a self, adds: &'a [Add]) -> Replies<'a, Receipt> {
        self.call_each(adds.len(), |operation| {
            let add = |add: &Add| {
                operation.durable_on_key(&add.key, |machine, now| machine.add(add, now))
            };
            adds.iter().map(add).collect()
        })
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest) -> Reply<'a, Leased> {
        self.call(|operation| operation.lease(request))
    }

    fn extend<'a>(
        &'a self,
        owner: &'a Owner,
        held: &'a [Hold],
        lease: Duration,
    ) -> Replies<'a, bool> {
        self.read_each(held.len(), move |machine, now| {
            machine.extend(owner, held, lease, now)
        })
    }

    fn heartbeat<'a>(&'a self, owner: &'a Owner) -> Reply<'a, ()> {
        self.read(|machine, now| machine.heartbeat(owner, now))
    }

    fn finish<'a>(&'a self, requests: &'a [FinishRequest]) -> Replies<'a, Finished> {
        self.call_each(requests.len(), |operation| {
            let finish = |request: &FinishRequest| {
                let key = &request.hold.key;
                operation.durable_on_key(key, |machine, now| machine.finish(request, now))
            };
            requests.iter().map(finish).collect()
        })
    }

    fn reclaim<'a>(&'a self, owner: &'a Owner, held: &'a [Hold]) -> Reply<'a, u64> {
        self.call(|operation| {
            operation.durable(|machine, now| machine.reclaim(owner, held, now))
        })
    }

    fn expire(&self, max_deliveries: Option<NonZeroU32>) -> Reply<'_, Expired> {
        self.call(move |operation| {
            operation.buffered(|machine, now| machine.expire(max_deliveries, now))
        })
    }

    fn forget<'a>(&'a self, keys: &'a [Key]) -> Replies<'a, ()> {
        self.call_each(keys.len(), |operation| {
            let forget =
                |key| operation.durable_on_key(key, |machine, _| machine.forget(key));
            keys.iter().map(forget).collect()
        })
    }

    fn remove<'a>(&'a self, keys: &'a [Key]) -> Replies<'a, bool> {
        self.call_each(keys.len(), |operation| {
            let remove =
                |key| operation.durable_on_key(key, |machine, _| machine.remove(key));
            keys.iter().map(remove).collect()
        })
    }

    fn take<'a>(&'a self, request: &'a TakeRequest) -> Reply<'a, Taken> {
        self.call(|operation| operation.take(request))
    }

    fn look<'a>(&'a self, keys: &'a [Key]) -> Replies<'a, Look> {
        self.read_each(keys.len(), |machine, now| {
            machine.move_due(now);
            keys.iter().map(|key| machine.look(key, now)).collect()
        })
    }

    fn stats(&self) -> Reply<'_, Stats> {
        self.read(|machine, now| {
            machine.move_due(now);
            machine.stats(now)
        })
    }

    fn failing(&self, limit: usize) -> Reply<'_, Vec<Failing>> {
        self.read(move |machine, now| machine.failing(limit, now))
    }

    fn workers(&self) -> Reply<'_, Vec<Worker>> {
        self.read(Machine::workers)
    }

    fn dead(&self, limit: usize) -> Reply<'_, Vec<Dead>> {
        self.read(move |machine, now| machine.dead(limit, now))
    }

    fn revive<'a>(&'a self, which: &'a Which) -> Reply<'a, u64> {
        self.call(|operation| {
            operation.durable(|machine, now| machine.revive(which, now))
        })
    }

    fn drop_dead<'a>(&'a self, which: &'a Which) -> Reply<'a, u64> {
        self.call(|operation| operation.durable(|machine, _| machine.drop_dead(which)))
    }

    fn pause(&self) -> Reply<'_, ()> {
        self.call(|operation| operation.set_paused(true))
    }

    fn resume(&self) -> Reply<'_, ()> {
        self.call(|operation| operation.set_paused(false))
    }

    fn wait(&self, at_most: Duration) -> Reply<'_, ()> {
        Box::pin(async move {
            let shared = self.shared();
            let mut news = pin!(shared.news.notified());
            // Listens before it looks, so that no earlier delay is missed.
            news.as_mut().enable();
            within(at_most.min(shared.due_in()?), news).await;
            Ok(())
        })
    }
}
