//! A queue in a store. The store is asynchronous; workers call it from blocking threads.
//!
//! # Invariants
//!
//! 1. While the store is unreachable, calls are retried. Only [`StoreQueue::abandon`] ends
//!    them.
//! 2. A lease counts as held from before its command starts until the store has answered its
//!    finish. If no lease is held, the counts of the store are final for this process.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use requeue::metrics::Prometheus;
use requeue::{Clock, Counts, Finish, SystemClock};
use requeue_store::{
    Add, Backoff, Dead, Error, ErrorKind, Finished, Key as StoreKey, Rate, Receipt,
    RepliesExt, SharedLease, SharedQueue, Stats, Store, TakeRequest, Taken, When,
};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::lease_count::{CountedLease, LeaseCount};
use super::outage::{Outage, hopeless};
use crate::input::Key;
use crate::key_set::KeySet;
use crate::report::Report;
use crate::retry::retry;

/// The settings of a queue in a store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreOptions {
    pub(crate) lease: Duration,
    pub(crate) max_deliveries: Option<NonZeroU32>,
    pub(crate) revive_after: Duration,
    pub(crate) backoff: Backoff,
}

/// Ten years: longer than any outage, and the clock can still add it to the current time.
const PATIENCE: Duration = Duration::from_secs(60 * 60 * 24 * 365 * 10);

/// The maximum age of the counts in the status line.
const MAX_AGE: Duration = Duration::from_secs(1);

/// How long to wait for new counts before showing the old ones.
const STATS_TIMEOUT: Duration = Duration::from_secs(2);

/// The longest wait for a start under a shared rate: 1 per day, behind a few others.
const MAX_START_WAIT: Duration = Duration::from_secs(60 * 60 * 24 * 7);

/// Time between two checks of the store while nothing changes here.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The most dead keys to check for keys added here. Takes a second or two, and tens of
/// megabytes.
const MAX_DEAD: usize = 100_000;

type Queue = SharedQueue<Key, Arc<dyn Store>>;

/// A queue in a store.
#[derive(Debug)]
pub(crate) struct StoreQueue {
    queue: Queue,
    options: StoreOptions,
    max_queued: Option<usize>,
    outage: Arc<Outage>,
    report: Arc<Report>,
    leases: Arc<LeaseCount>,
    latest: Mutex<Latest>,
    abandoned: watch::Sender<bool>,
    /// The keys added by this process.
    added: Mutex<KeySet>,
    runtime: Runtime,
}

/// The last known counts, and when they were read.
#[derive(Debug, Default)]
struct Latest {
    at: Option<Instant>,
    stats: Stats,
}

/// A lease on a key of the store.
#[derive(Debug)]
pub(crate) struct StoreLease {
    lease: SharedLease<Key, Arc<dyn Store>>,
    /// Invariant 2.
    counted: CountedLease,
}

impl StoreLease {
    pub(crate) fn key(&self) -> &Key {
        self.lease.key()
    }

    pub(crate) fn failures(&self) -> u32 {
        self.lease.num_requeues()
    }

    pub(crate) fn token(&self) -> u64 {
        self.lease.token().0
    }
}

/// Starts the runtime for the calls to a store.
pub(crate) fn runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("store")
        .enable_all()
        .build()
        .context("cannot start threads for the store")
}

impl StoreQueue {
    pub(crate) fn new(
        runtime: Runtime,
        store: Arc<dyn Store>,
        options: StoreOptions,
        max_queued: Option<usize>,
        metrics: Option<Prometheus>,
        report: Arc<Report>,
    ) -> Self {
        let handle = runtime.handle().clone();
        let outage = Outage::new(Arc::clone(&store), Arc::clone(&report), handle.clone());
        let record = Arc::clone(&outage);
        let builder = Queue::builder(store)
            .name("run")
            .lease(options.lease)
            .max_deliveries(options.max_deliveries)
            .backoff(options.backoff)
            .revive_after(options.revive_after)
            .patience(PATIENCE)
            .on_error(move |error| record.record(error));
        let queue = match metrics {
            Some(metrics) => builder.metrics(metrics).build_on(handle),
            None => builder.build_on(handle),
        };
        outage.set_owner(queue.owner().clone());
        Self {
            queue,
            options,
            max_queued,
            outage,
            report,
            leases: Arc::default(),
            latest: Mutex::default(),
            abandoned: watch::Sender::new(false),
            added: Mutex::default(),
            runtime,
        }
    }

    fn store(&self) -> &Arc<dyn Store> {
        self.queue.store()
    }

    pub(crate) fn describe(&self) -> String {
        self.store().describe()
    }

    /// Waits for an answer of the store. Returns `None` if the store is abandoned.
    fn block_on<T>(&self, call: impl Future<Output = T>) -> Option<T> {
        let hopeless =
            hopeless(self.abandoned.subscribe(), self.outage.since(), &SystemClock);
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                answer = call => Some(answer),
                () = hopeless => {
                    // Later calls then end at once.
                    self.outage.begin();
                    None
                }
            }
        })
    }

    /// Retries a call until the store answers. Returns `None` if the store is abandoned, or
    /// unreachable when `keep_trying` returns `false`.
    fn call<T, F: Future<Output = Result<T, Error>>>(
        &self,
        call: impl FnMut() -> F,
        keep_trying: impl Fn() -> bool,
    ) -> Option<Result<T, Error>> {
        let answer = self.block_on(retry(call, |error| {
            self.outage.record(error);
            keep_trying()
        }));
        answer.filter(|answer| !answer.as_ref().is_err_and(Error::is_transient))
    }

    /// Records that the store does not answer. The caller reports it.
    pub(crate) fn begin_outage(&self) {
        self.outage.begin();
    }

    /// Waits for a key. Returns `None` if the queue is closed.
    pub(crate) fn get(&self) -> Result<Option<StoreLease>, Error> {
        let lease = self.block_on(self.queue.get()).unwrap_or(Ok(None))?;
        Ok(lease.map(|lease| StoreLease { lease, counted: self.leases.add() }))
    }

    /// Finishes a lease and waits for the answer of the store. `error` explains a failure.
    pub(crate) fn finish(
        &self,
        lease: StoreLease,
        finish: Finish,
        error: String,
    ) -> Result<Finished, Error> {
        let StoreLease { lease, counted } = lease;
        let finishing = lease.with_error(error).finish(finish);
        let finished = self.block_on(finishing).unwrap_or_else(|| {
            let text = format!("stopped waiting for an answer from {}", self.describe());
            Err(Error::new(ErrorKind::Unknown, text))
        });
        drop(counted);
        finished
    }

    /// Takes a start of the limit that all workers share. Returns how long to wait before it,
    /// or `None` if the store is abandoned.
    pub(crate) fn take_start(&self, rate: Rate) -> Result<Option<Duration>, Error> {
        let request = TakeRequest {
            limiter: "starts".to_owned(),
            rate,
            n: 1,
            max_wait: MAX_START_WAIT,
        };
        loop {
            let taken = self.call(|| self.store().take(&request), || !self.is_closed());
            match taken.transpose()? {
                None => return Ok(None),
                Some(Taken::Granted { after }) => return Ok(Some(after)),
                Some(_) if self.is_closed() => return Ok(None),
                // The rate was lower before.
                Some(_) => self.leases.wait_change(POLL_INTERVAL),
            }
        }
    }

    /// Encodes an add. Fails if the key is too long or the priority out of range.
    pub(crate) fn encode(&self, key: &[u8], priority: Option<i32>) -> Result<Add, Error> {
        let add = Add::new(StoreKey::new(key)?, When::Now);
        let revive_after = self.options.revive_after;
        Add { revive_after, ..add }.with_priority(priority.unwrap_or_default())
    }

    /// Adds keys in one call. Returns a receipt for each, or nothing if the queue is closed.
    pub(crate) fn add(&self, adds: &[Add]) -> Result<Vec<Receipt>, Error> {
        let answer = self.call(|| self.store().add(adds).all(), || !self.is_closed());
        let receipts = answer.transpose()?.unwrap_or_default();
        self.queue.count_added(adds, &receipts);
        let mut added = self.added();
        for (add, _) in adds.iter().zip(&receipts) {
            added.insert(&add.key);
        }
        Ok(receipts)
    }

    fn added(&self) -> MutexGuard<'_, KeySet> {
        self.added.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the final counts, or `None` if the store is abandoned.
    pub(crate) fn final_stats(&self) -> Option<Result<Stats, Error>> {
        self.call(|| self.store().stats(), || true)
    }

    /// Returns the dead keys that this process added. `dead` is the number of all dead keys;
    /// only the oldest [`MAX_DEAD`] are checked.
    ///
    /// Adding a dead key revives it, so a key that was added and is dead died after its add.
    pub(crate) fn died(&self, dead: u64) -> Result<Vec<Dead>, Error> {
        if dead == 0 || self.added().is_empty() {
            return Ok(Vec::new());
        }
        if dead > MAX_DEAD as u64 {
            self.report.note(&format!(
                "checked only the oldest {MAX_DEAD} of {dead} dead keys for failures"
            ));
        }
        let all = self.call(|| self.store().dead(MAX_DEAD), || true);
        let mut dead = all.transpose()?.unwrap_or_default();
        let added = self.added();
        dead.retain(|dead| added.contains(&dead.key));
        Ok(dead)
    }

    /// Calls `terminate` when the lease is lost, and `kill` a while later, unless the guard is
    /// dropped. `kill` comes before another worker can get the key.
    pub(crate) fn on_loss(
        &self,
        lease: &StoreLease,
        kill_after: Duration,
        terminate: impl FnOnce() + Send + 'static,
        kill: impl FnOnce() + Send + 'static,
    ) -> LossGuard {
        let lost = lease.lease.lost();
        let grace = kill_after.min(self.options.lease / 10);
        LossGuard(self.runtime.spawn(async move {
            lost.await;
            terminate();
            SystemClock.timer(SystemClock.now() + grace).await;
            kill();
        }))
    }

    /// Stops delivering and adding keys.
    pub(crate) fn close(&self) {
        self.queue.close();
        self.leases.close();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }

    /// Stops waiting for an unreachable store (invariant 1).
    pub(crate) fn abandon(&self) {
        self.abandoned.send_replace(true);
    }

    /// Waits until the store has answered every finish.
    pub(crate) fn drain(&self) {
        self.block_on(self.queue.shutdown());
    }

    /// Waits until the whole queue is empty or this handle is closed.
    pub(crate) fn wait_idle(&self) -> Result<(), Error> {
        let mut noted = false;
        while !self.leases.wait_none() {
            let stats = self.call(|| self.store().stats(), || !self.is_closed());
            let Some(stats) = stats.transpose()? else { break };
            if remaining(&stats) == 0 {
                break;
            }
            if stats.paused && !std::mem::replace(&mut noted, true) {
                self.note_paused();
            }
            self.leases.wait_some(POLL_INTERVAL);
        }
        Ok(())
    }

    fn note_paused(&self) {
        self.report.note(&format!(
            "{} is paused; no key starts until requeue resume",
            self.describe()
        ));
    }

    /// Reports that the queue is paused, if it is.
    pub(crate) fn check_paused(&self) {
        let stats = self.block_on(self.store().stats());
        if matches!(stats, Some(Ok(Stats { paused: true, .. }))) {
            self.note_paused();
        }
    }

    /// Returns the counts, at most [`MAX_AGE`] old unless the store is slow.
    pub(crate) fn counts(&self) -> Counts {
        let mut latest = self.latest();
        if latest.at.is_none_or(|at| SystemClock.now() >= at + MAX_AGE) {
            latest.stats = self.stats().unwrap_or(latest.stats);
            latest.at = Some(SystemClock.now());
        }
        to_counts(&latest.stats)
    }

    /// Returns the number of keys that will be retried, as of the last [`counts`](Self::counts).
    pub(crate) fn failing(&self) -> u64 {
        self.latest().stats.failing
    }

    fn latest(&self) -> MutexGuard<'_, Latest> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the next [`counts`](Self::counts) ask the store.
    pub(crate) fn refresh(&self) {
        self.latest().at = None;
    }

    /// Asks the store for its counts. Returns `None` if it does not answer soon.
    pub(crate) fn stats(&self) -> Option<Stats> {
        let call =
            async { tokio::time::timeout(STATS_TIMEOUT, self.queue.stats()).await };
        self.block_on(call)?.ok()?.ok()
    }

    /// Waits until there is room for more keys or the queue is closed. Returns how many of
    /// the `wanted` keys to add next.
    pub(crate) fn wait_for_room(&self, wanted: usize) -> usize {
        let Some(max) = self.max_queued else { return wanted };
        loop {
            self.refresh();
            let counts = self.counts();
            let room = max.saturating_sub(counts.ready + counts.delayed).min(wanted);
            if room > 0 || self.is_closed() {
                return room;
            }
            self.leases.wait_change(POLL_INTERVAL);
        }
    }
}

/// Watches for the loss of a lease until it is dropped.
#[derive(Debug)]
pub(crate) struct LossGuard(JoinHandle<()>);

impl Drop for LossGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Returns the number of keys still to run. A key that is also delayed counts twice.
pub(crate) fn remaining(stats: &Stats) -> u64 {
    stats.ready + stats.delayed + stats.processing
}

fn to_counts(stats: &Stats) -> Counts {
    let number = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    Counts {
        ready: number(stats.ready),
        delayed: number(stats.delayed),
        processing: number(stats.processing),
        dirty: number(stats.dirty),
    }
}
