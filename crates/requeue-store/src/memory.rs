//! The reference store: the state machine behind a lock.

use std::fmt;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;

use crate::engine_time::TimeSource;
use crate::machine::Machine;
use crate::sync::lock;
use crate::{
    Add, Dead, EngineClock, EngineTime, Expired, Failing, FinishRequest, Finished, Hold,
    Key, LeaseRequest, Leased, Look, Owner, Receipt, Replies, Reply, Stats, Store,
    TakeRequest, Taken, Which, Worker, within,
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
    /// Notified when a key is ready, and when the first delay ends earlier than before. It
    /// keeps one wake-up for the next waiter, so nothing that happens between a look and the
    /// wait is missed.
    news: Notify,
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
        Self { shared: Arc::new(Shared { machine, time, news: Notify::new() }) }
    }

    fn machine(&self) -> MutexGuard<'_, Machine> {
        lock(&self.shared.machine)
    }

    /// Executes a call, and wakes a waiter if a key is ready after it, or all if the first
    /// delay ends earlier than before.
    fn act<T>(&self, act: impl FnOnce(&mut Machine, EngineTime) -> T) -> T {
        let mut machine = self.machine();
        let before = machine.first_delay();
        let answer = act(&mut machine, self.shared.time.now());
        let (ready, after) = (machine.has_ready(), machine.first_delay());
        drop(machine);
        let earlier = after.is_some_and(|after| before.is_none_or(|it| after < it));
        if earlier {
            self.shared.news.notify_waiters();
        }
        if ready || earlier {
            self.shared.news.notify_one();
        }
        answer
    }

    fn call<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Machine, EngineTime) -> T,
    ) -> Reply<'_, T> {
        Box::pin(std::future::ready(Ok(self.act(act))))
    }

    /// Executes a call for each item.
    fn call_each<I, T: Send + 'static>(
        &self,
        items: &[I],
        act: impl Fn(&mut Machine, &I, EngineTime) -> T,
    ) -> Replies<'_, T> {
        let answers = self.act(|machine, now| {
            items.iter().map(|item| Ok(act(machine, item, now))).collect()
        });
        Box::pin(std::future::ready(answers))
    }

    /// Returns the time until the first delay ends.
    fn due_in(&self) -> Duration {
        let first = self.machine().first_delay();
        first.map_or(Duration::MAX, |at| at.since(self.shared.time.now()))
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

    fn add<'a>(&'a self, adds: &'a [Add]) -> Replies<'a, Receipt> {
        self.call_each(adds, Machine::add)
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest) -> Reply<'a, Leased> {
        self.call(|machine, now| machine.lease(request, now))
    }

    fn extend<'a>(
        &'a self,
        owner: &'a Owner,
        held: &'a [Hold],
        lease: Duration,
    ) -> Replies<'a, bool> {
        let held = self.act(|machine, now| machine.extend(owner, held, lease, now));
        Box::pin(std::future::ready(held.into_iter().map(Ok).collect()))
    }

    fn heartbeat<'a>(&'a self, owner: &'a Owner) -> Reply<'a, ()> {
        self.call(|machine, now| machine.heartbeat(owner, now))
    }

    fn finish<'a>(&'a self, requests: &'a [FinishRequest]) -> Replies<'a, Finished> {
        self.call_each(requests, Machine::finish)
    }

    fn reclaim<'a>(&'a self, owner: &'a Owner, held: &'a [Hold]) -> Reply<'a, u64> {
        self.call(|machine, now| machine.reclaim(owner, held, now))
    }

    fn expire(&self, max_deliveries: Option<NonZeroU32>) -> Reply<'_, Expired> {
        self.call(|machine, now| machine.expire(max_deliveries, now))
    }

    fn forget<'a>(&'a self, keys: &'a [Key]) -> Replies<'a, ()> {
        self.call_each(keys, |machine, key, _| machine.forget(key))
    }

    fn remove<'a>(&'a self, keys: &'a [Key]) -> Replies<'a, bool> {
        self.call_each(keys, |machine, key, _| machine.remove(key))
    }

    fn look<'a>(&'a self, keys: &'a [Key]) -> Replies<'a, Look> {
        let looks = self.act(|machine, now| {
            machine.move_due(now);
            keys.iter().map(|key| Ok(machine.look(key, now))).collect()
        });
        Box::pin(std::future::ready(looks))
    }

    fn take<'a>(&'a self, request: &'a TakeRequest) -> Reply<'a, Taken> {
        self.call(|machine, now| machine.take(request, now))
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
            let mut news = pin!(self.shared.news.notified());
            // Listens before it looks. Several waiters may be about to wait, and only one
            // of them gets the kept wake-up.
            news.as_mut().enable();
            within(at_most.min(self.due_in()), news).await;
            Ok(())
        })
    }
}
