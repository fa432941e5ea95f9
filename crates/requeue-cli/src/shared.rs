//! The queue of a run on a store: asynchronous there, called by threads that wait here.
//!
//! # Invariants
//!
//! 1. While the store is away, calls are repeated; only [`SharedKeys::abandon`] ends them.
//! 2. A key counts as held here from before its command starts until the store has answered
//!    to its end, so whoever finds nothing held asks the store about a settled state.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use requeue::metrics::Prometheus;
use requeue::{Clock, Counts, SystemClock};
use requeue_store::{
    Add, Backoff, Dead, Error, ErrorKind, Finished, Key as StoreKey, Receipt,
    SharedLease, SharedQueue, Stats, Store, When,
};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::desk::{Desk, Stay};
use crate::input::Key;
use crate::outage::{Outage, given_up};
use crate::report::{Report, chain};
use crate::sieve::Sieve;

/// How a queue on a store is used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) lease: Duration,
    pub(crate) max_deliveries: Option<NonZeroU32>,
    pub(crate) revive_after: Duration,
    pub(crate) backoff: Backoff,
}

/// Longer than any outage: a run ends by signals, not by a store that is away. The clock
/// can still add it to the present.
const PATIENCE: Duration = Duration::from_secs(60 * 60 * 24 * 365 * 10);

/// How old the numbers of the status line may be.
const STALE: Duration = Duration::from_secs(1);

/// How long new numbers are waited for before old ones are shown.
const GLANCE: Duration = Duration::from_secs(2);

/// How often the store is asked whether all is done, if nothing happens here.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The most dead keys that are looked through for those that were added here: so many take a
/// second or two, and tens of megabytes.
const GRAVES: usize = 100_000;

/// By how much the clocks of a store and of this machine may run apart during a run.
const SKEW: Duration = Duration::from_secs(1);

type Queue = SharedQueue<Key, Arc<dyn Store>>;

/// The queue on a store.
#[derive(Debug)]
pub(crate) struct SharedKeys {
    queue: Queue,
    terms: Terms,
    outage: Arc<Outage>,
    report: Arc<Report>,
    desk: Arc<Desk>,
    latest: Mutex<Latest>,
    abandoned: watch::Sender<bool>,
    began: Instant,
    /// The keys that were added here; nothing before the first.
    added: OnceLock<Mutex<Sieve>>,
    runtime: Runtime,
}

/// The last numbers that the store told, and when.
#[derive(Debug, Default)]
struct Latest {
    at: Option<Instant>,
    stats: Stats,
}

/// A key of the store that is held here.
#[derive(Debug)]
pub(crate) struct StoredKey {
    lease: SharedLease<Key, Arc<dyn Store>>,
    stay: Stay,
}

impl StoredKey {
    pub(crate) fn key(&self) -> &Key {
        self.lease.key()
    }

    pub(crate) fn retries(&self) -> u32 {
        self.lease.num_requeues()
    }

    pub(crate) fn token(&self) -> u64 {
        self.lease.token().0
    }
}

/// How a key of a store ends here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Succeed,
    /// It comes again by its backoff; why, for people.
    Retry(String),
    /// It goes to the dead; why, for people.
    Bury(String),
    /// It was not run to its end, which is not its fault.
    Release,
}

/// What runs the calls of a store.
pub(crate) fn runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("store")
        .enable_all()
        .build()
        .context("cannot start the threads of the store")
}

impl SharedKeys {
    pub(crate) fn new(
        runtime: Runtime,
        store: Arc<dyn Store>,
        terms: Terms,
        metrics: Option<Prometheus>,
        report: Arc<Report>,
    ) -> Self {
        let handle = runtime.handle().clone();
        let outage = Outage::new(Arc::clone(&store), Arc::clone(&report), handle.clone());
        let heard = Arc::clone(&outage);
        let builder = Queue::builder(store)
            .name("run")
            .lease(terms.lease)
            .max_deliveries(terms.max_deliveries)
            .backoff(terms.backoff)
            .revive_after(terms.revive_after)
            .patience(PATIENCE)
            .on_error(move |error| heard.heard(error));
        let queue = match metrics {
            Some(metrics) => builder.metrics(metrics).build_on(handle),
            None => builder.build_on(handle),
        };
        Self {
            queue,
            terms,
            outage,
            report,
            desk: Arc::default(),
            latest: Mutex::default(),
            abandoned: watch::Sender::new(false),
            began: SystemClock.now(),
            added: OnceLock::new(),
            runtime,
        }
    }

    fn store(&self) -> &Arc<dyn Store> {
        self.queue.store()
    }

    pub(crate) fn describe(&self) -> String {
        self.store().describe()
    }

    /// Waits for the answer of the store; `None` if that was given up.
    fn wait<T>(&self, call: impl Future<Output = T>) -> Option<T> {
        let given_up =
            given_up(self.abandoned.subscribe(), self.outage.since(), &SystemClock);
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                answer = call => Some(answer),
                () = given_up => {
                    // The next call need not find out the same.
                    self.outage.heard_nothing();
                    None
                }
            }
        })
    }

    /// Takes note that the store does not answer, which the caller tells of.
    pub(crate) fn fell_silent(&self) {
        self.outage.heard_nothing();
    }

    /// Waits for a key; `None` if this is closed.
    pub(crate) fn take(&self) -> Result<Option<StoredKey>, Error> {
        let taken = self.wait(self.queue.get()).unwrap_or(Ok(None))?;
        Ok(taken.map(|lease| StoredKey { lease, stay: Stay::at(&self.desk) }))
    }

    /// Ends a lease: what came of it, once the store knows.
    pub(crate) fn end(&self, key: StoredKey, end: End) -> Result<Finished, Error> {
        let StoredKey { lease, stay } = key;
        let ending = match end {
            End::Succeed => lease.succeed(),
            End::Retry(error) => lease.retry(error),
            End::Bury(reason) => lease.bury(reason),
            End::Release => lease.release(),
        };
        let finished = self.wait(ending).unwrap_or_else(|| {
            let text = format!("no answer from {} was waited for", self.describe());
            Err(Error::new(ErrorKind::Unknown, text))
        });
        drop(stay);
        finished
    }

    /// The wish to add a key now, if a store takes it.
    pub(crate) fn wish(&self, key: &[u8], priority: Option<i32>) -> Result<Add, Error> {
        let add = Add::new(StoreKey::new(key)?, When::Now);
        let revive_after = self.terms.revive_after;
        Add { revive_after, ..add }.with_priority(priority.unwrap_or_default())
    }

    /// Adds keys, in one call for all: what became of each; nothing if this is closed.
    pub(crate) fn add(&self, adds: &[Add]) -> Result<Vec<Receipt>, Error> {
        let mut sieve = self.sieve().lock().unwrap_or_else(PoisonError::into_inner);
        for add in adds {
            sieve.add(&add.key);
        }
        drop(sieve);
        self.wait(self.add_patiently(adds)).unwrap_or_else(|| Ok(Vec::new()))
    }

    fn sieve(&self) -> &Mutex<Sieve> {
        self.added.get_or_init(Mutex::default)
    }

    /// An add that is repeated costs one more run at worst.
    async fn add_patiently(&self, adds: &[Add]) -> Result<Vec<Receipt>, Error> {
        let mut pause = Duration::from_millis(20);
        while !self.is_closed() {
            match self.store().add(adds).await {
                Err(error) if error.is_transient() => self.outage.heard(&error),
                Err(error) => return Err(error),
                Ok(receipts) => {
                    self.queue.count_added(adds, &receipts);
                    return Ok(receipts);
                }
            }
            SystemClock.timer(SystemClock.now() + pause).await;
            pause = (pause * 2).min(LOOK_EVERY);
        }
        Ok(Vec::new())
    }

    /// Asks the store until it answers; `None` if that was given up.
    fn ask<T>(
        &self,
        mut call: impl AsyncFnMut(&dyn Store) -> Result<T, Error>,
    ) -> Option<Result<T, Error>> {
        self.wait(async {
            loop {
                match call(&**self.store()).await {
                    Err(error) if error.is_transient() => self.outage.heard(&error),
                    answer => return answer,
                }
                SystemClock.timer(SystemClock.now() + LOOK_EVERY).await;
            }
        })
    }

    /// How the queue stands when all is done; `None` if the store was given up.
    pub(crate) fn last_stats(&self) -> Option<Result<Stats, Error>> {
        self.ask(async |store| store.stats().await)
    }

    /// The dead keys that were added here; of `dead` keys, those that died longest ago are
    /// looked through. One that was dead before is alive since it was added, so it has died
    /// since: that leaves out nearly all that only seem to be ours.
    pub(crate) fn died(&self, dead: u64) -> Result<Vec<Dead>, Error> {
        if dead == 0 || self.added.get().is_none() {
            return Ok(Vec::new());
        }
        if dead > GRAVES as u64 {
            self.report.note(&format!(
                "of {dead} dead keys, {GRAVES} are looked through for those of this run"
            ));
        }
        let all = self.ask(async |store| store.dead(GRAVES).await);
        let lasted = SystemClock.now().saturating_duration_since(self.began) + SKEW;
        let sieve = self.sieve().lock().unwrap_or_else(PoisonError::into_inner);
        let is_ours = |dead: &Dead| dead.since <= lasted && sieve.contains(&dead.key);
        Ok(all.transpose()?.unwrap_or_default().into_iter().filter(is_ours).collect())
    }

    /// Does something if the lease of a key is lost, and something else a while later,
    /// unless what comes back is dropped before. The while is shorter than what is left
    /// until another is given the key.
    pub(crate) fn on_loss(
        &self,
        key: &StoredKey,
        kill_after: Duration,
        first: impl FnOnce() + Send + 'static,
        then: impl FnOnce() + Send + 'static,
    ) -> LossWatch {
        let lost = key.lease.lost();
        let grace = kill_after.min(self.terms.lease / 10);
        LossWatch(self.runtime.spawn(async move {
            lost.await;
            first();
            SystemClock.timer(SystemClock.now() + grace).await;
            then();
        }))
    }

    /// Takes no more keys and adds none.
    pub(crate) fn close(&self) {
        self.queue.close();
        self.desk.close();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }

    /// Waits no longer for a store that does not answer.
    pub(crate) fn abandon(&self) {
        self.abandoned.send_replace(true);
    }

    /// Waits until the store knows the end of everything that was held here.
    pub(crate) fn drain(&self) {
        self.wait(self.queue.drain());
    }

    /// Waits until the whole queue is empty, or this is closed.
    pub(crate) fn wait_idle(&self) -> Result<(), Error> {
        let mut told = false;
        loop {
            if self.desk.wait_free() {
                return Ok(());
            }
            match self.wait(self.store().stats()) {
                None => return Ok(()),
                Some(Ok(stats)) if left(&stats) == 0 => return Ok(()),
                Some(Ok(stats)) => {
                    if stats.paused && !std::mem::replace(&mut told, true) {
                        self.tell_paused();
                    }
                }
                Some(Err(error)) if error.is_transient() => self.outage.heard(&error),
                Some(Err(error)) => return Err(error),
            }
            self.desk.wait_busy(LOOK_EVERY);
        }
    }

    /// Tells of a queue that hands out nothing.
    fn tell_paused(&self) {
        self.report.note(&format!(
            "{} is paused: nothing starts until requeue resume",
            self.describe()
        ));
    }

    /// Tells a worker what it will find.
    pub(crate) fn greet(&self) {
        let stats = self.wait(self.store().stats());
        if matches!(stats, Some(Ok(Stats { paused: true, .. }))) {
            self.tell_paused();
        }
    }

    /// How the queue stands, now or a moment ago.
    pub(crate) fn counts(&self) -> Counts {
        counts(&self.latest())
    }

    fn latest(&self) -> Stats {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if latest.at.is_none_or(|at| SystemClock.now() >= at + STALE) {
            latest.stats = self.glance().unwrap_or(latest.stats);
            latest.at = Some(SystemClock.now());
        }
        latest.stats
    }

    /// How the queue stands now, if that can be told at once.
    pub(crate) fn glance(&self) -> Option<Stats> {
        let asked = async { tokio::time::timeout(GLANCE, self.queue.stats()).await };
        self.wait(asked)?.ok()?.ok()
    }

    /// How many more keys may wait, if at most `max` may; waits until it is some, or until
    /// this is closed.
    pub(crate) fn room(&self, max: usize) -> usize {
        loop {
            self.refresh();
            let counts = self.counts();
            let room = max.saturating_sub(counts.ready + counts.delayed);
            if room > 0 || self.is_closed() {
                return room;
            }
            self.desk.wait_news(LOOK_EVERY);
        }
    }

    /// Has the next counts be new ones.
    pub(crate) fn refresh(&self) {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).at = None;
    }
}

/// Watches for the loss of a lease until it is dropped.
#[derive(Debug)]
pub(crate) struct LossWatch(JoinHandle<()>);

impl Drop for LossWatch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// How many keys are still to be worked on. One that has a delay besides counts twice.
pub(crate) fn left(stats: &Stats) -> u64 {
    stats.ready + stats.delayed + stats.processing
}

fn counts(stats: &Stats) -> Counts {
    let number = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    Counts {
        ready: number(stats.ready),
        delayed: number(stats.delayed),
        processing: number(stats.processing),
        dirty: number(stats.dirty),
    }
}

/// What is told of an error that ends a run.
pub(crate) fn fatal(error: &Error) -> String {
    format!("the store failed: {}", chain(error))
}
