//! The reference store: the state machine behind a lock.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;

use crate::engine_time::TimeSource;
use crate::machine::Machine;
use crate::sync::lock;
use crate::{
    Add, Dead, EngineClock, EngineTime, Error, Expired, Failing, FinishRequest, Finished,
    Hold, Key, LeaseRequest, Leased, Look, Owner, Receipt, Reply, Stats, Store, Which,
    Worker, within,
};

/// A store in memory, for tests of code that uses a [`SharedQueue`](crate::SharedQueue).
///
/// Its keys are gone when the last clone is dropped. Clones share the same keys. A program
/// that does not need a store should use [`requeue::Queue`].
///
/// This is also the reference that the other stores are compared with.
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

struct Shared {
    machine: Mutex<Machine>,
    time: TimeSource,
    /// Notified when a key is ready. It keeps one wake-up for the next waiter, so a key that
    /// becomes ready between a look and the wait is not missed.
    ready: Notify,
}

impl MemoryStore {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self::with_time(TimeSource::System)
    }

    /// Creates an empty store with a clock for tests.
    pub fn with_clock(clock: EngineClock) -> Self {
        Self::with_time(TimeSource::Test(clock))
    }

    fn with_time(time: TimeSource) -> Self {
        let machine = Mutex::new(Machine::new());
        Self { shared: Arc::new(Shared { machine, time, ready: Notify::new() }) }
    }

    fn machine(&self) -> MutexGuard<'_, Machine> {
        lock(&self.shared.machine)
    }

    /// Executes a call, and wakes a waiter if a key is ready after it.
    fn call<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Machine, EngineTime) -> T,
    ) -> Reply<'_, T> {
        let mut machine = self.machine();
        let answer = act(&mut machine, self.shared.time.now());
        let ready = machine.has_ready();
        drop(machine);
        if ready {
            self.shared.ready.notify_one();
        }
        Box::pin(std::future::ready(Ok::<_, Error>(answer)))
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = self.machine().stats(self.shared.time.now());
        f.debug_struct("MemoryStore").field("stats", &stats).finish_non_exhaustive()
    }
}

impl Store for MemoryStore {
    fn describe(&self) -> String {
        "a queue in memory".to_owned()
    }

    fn add<'a>(&'a self, adds: &'a [Add]) -> Reply<'a, Vec<Receipt>> {
        self.call(|machine, now| adds.iter().map(|add| machine.add(add, now)).collect())
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest) -> Reply<'a, Leased> {
        self.call(|machine, now| machine.lease(request, now))
    }

    fn extend<'a>(
        &'a self,
        owner: &'a Owner,
        held: &'a [Hold],
        lease: Duration,
    ) -> Reply<'a, Vec<bool>> {
        self.call(|machine, now| machine.extend(owner, held, lease, now))
    }

    fn finish<'a>(&'a self, requests: &'a [FinishRequest]) -> Reply<'a, Vec<Finished>> {
        self.call(|machine, now| {
            requests.iter().map(|request| machine.finish(request, now)).collect()
        })
    }

    fn reclaim<'a>(&'a self, owner: &'a Owner, held: &'a [Hold]) -> Reply<'a, u64> {
        self.call(|machine, now| machine.reclaim(owner, held, now))
    }

    fn expire(&self, max_deliveries: Option<NonZeroU32>) -> Reply<'_, Expired> {
        self.call(|machine, now| machine.expire(max_deliveries, now))
    }

    fn forget<'a>(&'a self, keys: &'a [Key]) -> Reply<'a, ()> {
        self.call(|machine, _| keys.iter().for_each(|key| machine.forget(key)))
    }

    fn remove<'a>(&'a self, keys: &'a [Key]) -> Reply<'a, Vec<bool>> {
        self.call(|machine, _| keys.iter().map(|key| machine.remove(key)).collect())
    }

    fn look<'a>(&'a self, keys: &'a [Key]) -> Reply<'a, Vec<Look>> {
        self.call(|machine, now| {
            machine.move_due(now);
            keys.iter().map(|key| machine.look(key, now)).collect()
        })
    }

    fn stats(&self) -> Reply<'_, Stats> {
        self.call(|machine, now| {
            machine.move_due(now);
            machine.stats(now)
        })
    }

    fn failing(&self, limit: usize) -> Reply<'_, Vec<Failing>> {
        self.call(|machine, now| machine.failing(limit, now))
    }

    fn workers(&self) -> Reply<'_, Vec<Worker>> {
        self.call(Machine::workers)
    }

    fn dead(&self, limit: usize) -> Reply<'_, Vec<Dead>> {
        self.call(|machine, now| machine.dead(limit, now))
    }

    fn revive<'a>(&'a self, which: &'a Which) -> Reply<'a, u64> {
        self.call(|machine, now| machine.revive(which, now))
    }

    fn drop_dead<'a>(&'a self, which: &'a Which) -> Reply<'a, u64> {
        self.call(|machine, _| machine.drop_dead(which))
    }

    fn pause(&self) -> Reply<'_, ()> {
        self.call(|machine, _| machine.set_paused(true))
    }

    fn resume(&self) -> Reply<'_, ()> {
        self.call(|machine, _| machine.set_paused(false))
    }

    fn wait(&self, at_most: Duration) -> Reply<'_, ()> {
        Box::pin(async move {
            within(at_most, self.shared.ready.notified()).await;
            Ok(())
        })
    }
}
