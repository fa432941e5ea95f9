//! The client side of a [`SharedQueue`](crate::SharedQueue): the state that its handles
//! share, and its background tasks.
//!
//! There are four kinds of tasks, and each runs only while it has work: one sends adds, one
//! sends finishes, one fetches keys for getters, and the heartbeat extends held leases.
//! Failed adds and finishes are repeated by separate tasks, so that they delay no others.
//!
//! A task can end early, if it panics or its runtime shuts down. Each task owns a guard
//! whose drop then fails the waiting callers and lets the next call start a new task.

use std::fmt;
use std::future::Future;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use requeue::metrics::{Gauges, Metrics, Probe, Probed};
use requeue::{Clock, Finish};
use tokio::runtime::Handle;
use tokio::sync::{Notify, RwLock};

use self::getters::Getters;
use self::held_leases::{FinishGuard, HeldLeases};
use self::lanes::Lanes;
use self::meter::Meter;
use self::task_count::TaskCount;
use crate::lease::RawLease;
use crate::{Add, Backoff, Error, FinishRequest, Finished, Owner, Receipt, Store};

pub(crate) mod batch;
mod fetch;
pub(crate) mod getters;
mod heartbeat;
pub(crate) mod held_leases;
mod lanes;
pub(crate) mod meter;
pub(crate) mod outage;
mod reclaim;
mod send;
mod task_count;

/// Receives errors that no caller gets.
pub(crate) type OnError = Arc<dyn Fn(&Error) + Send + Sync>;

/// The delay of a retry policy, by the number of failures.
pub(crate) type RetryDelay = Arc<dyn Fn(u32) -> Duration + Send + Sync>;

/// The settings of a queue.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) name: String,
    pub(crate) owner: Owner,
    pub(crate) lease: Duration,
    pub(crate) max_deliveries: Option<NonZeroU32>,
    pub(crate) backoff: Backoff,
    pub(crate) retry: Option<RetryDelay>,
    pub(crate) revive_after: Duration,
    pub(crate) patience: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) on_error: Option<OnError>,
    pub(crate) on_drop: Finish,
}

impl Settings {
    /// Returns the backoff of a key that has failed `failures` times before.
    ///
    /// The delay of a retry policy becomes a backoff that always waits that long. If the
    /// policy panics, the backoff of the queue applies.
    pub(crate) fn backoff_after(&self, failures: u32) -> Backoff {
        let Some(retry) = &self.retry else { return self.backoff };
        let delay = catch_unwind(AssertUnwindSafe(|| retry(failures)));
        let delay = delay.unwrap_or_else(|_| self.backoff.delay(failures));
        Backoff { base: delay, max: delay, rate: self.backoff.rate }
    }
}

/// The state that the handles of a queue, its leases and its tasks share.
pub(crate) struct Client<S: Store> {
    pub(crate) store: S,
    pub(crate) settings: Settings,
    pub(crate) held: Arc<HeldLeases>,
    meter: Option<Meter>,
    runtime: Handle,
    adds: Lanes<Add, Receipt>,
    finishes: Lanes<FinishRequest, Finished, FinishGuard>,
    getters: Getters<RawLease<S>>,
    /// Tasks that lease keys or release undelivered ones.
    leasing_tasks: Arc<TaskCount>,
    has_heartbeat: AtomicBool,
    /// Whether the answer to a lease call was lost and its keys are not reclaimed yet.
    in_doubt: AtomicBool,
    /// Until then, a lease call whose answer was lost may be executed late.
    late_leases_until: Mutex<Option<Instant>>,
    /// Read from a lease call until its keys are among the held ones; written to reclaim
    /// the leases that are not.
    leasing: RwLock<()>,
    closed: AtomicBool,
    closing: Notify,
    /// Notified when something has ended that [`idle`](Self::idle) waits for.
    progress: Arc<Notify>,
}

impl<S: Store> Client<S> {
    pub(crate) fn new(
        store: S,
        settings: Settings,
        metrics: Option<Box<dyn Metrics>>,
        runtime: Handle,
    ) -> Arc<Self> {
        let progress = Arc::<Notify>::default();
        Arc::new_cyclic(|client: &Weak<Self>| Self {
            meter: metrics.map(|metrics| {
                let probe = Probe::new(Weak::<Self>::clone(client));
                Meter::new(metrics.queue(&settings.name, probe))
            }),
            store,
            settings,
            runtime,
            held: Arc::new(HeldLeases::new(Arc::clone(&progress))),
            adds: Lanes::new(Arc::clone(&progress)),
            finishes: Lanes::new(Arc::clone(&progress)),
            getters: Getters::new(),
            leasing_tasks: TaskCount::new(Arc::clone(&progress)),
            has_heartbeat: AtomicBool::new(false),
            in_doubt: AtomicBool::new(false),
            late_leases_until: Mutex::new(None),
            leasing: RwLock::new(()),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
            progress,
        })
    }

    pub(crate) fn is_closed(&self) -> bool {
        // SeqCst, together with `leasing_tasks`: see `TaskCount::enter`.
        self.closed.load(Ordering::SeqCst)
    }

    /// Stops adding and delivering keys.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.getters.close();
        self.closing.notify_waiters();
    }

    /// Waits until no lease is held and no call is in flight.
    pub(crate) async fn idle(&self) {
        self.flushed_once(|| self.held.is_empty()).await;
    }

    /// Waits until no call is in flight. On a closed client this takes at most as long as
    /// calls are repeated.
    pub(crate) async fn flushed(&self) {
        self.flushed_once(|| true).await;
    }

    async fn flushed_once(&self, is_ready: impl Fn() -> bool) {
        loop {
            // Listens before it looks, so that no change is missed.
            let progress = self.progress.notified();
            if is_ready() && self.is_flushed() {
                return self.reclaim_patiently().await;
            }
            progress.await;
        }
    }

    fn is_flushed(&self) -> bool {
        self.leasing_tasks.is_zero() && self.adds.is_idle() && self.finishes.is_idle()
    }

    /// Calls `report` with the meter if the queue is measured.
    pub(crate) fn measure<T>(&self, report: impl FnOnce(&Meter) -> T) -> Option<T> {
        self.meter.as_ref().map(report)
    }

    /// Reports an error to the user's callback. A panic of it is contained.
    pub(crate) fn report(&self, error: &Error) {
        if let Some(on_error) = &self.settings.on_error {
            drop(catch_unwind(AssertUnwindSafe(|| on_error(error))));
        }
    }

    fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.runtime.spawn(task));
    }

    /// Returns a timer, or `None` if the delay is beyond the range of the clock.
    pub(crate) fn timer(&self, delay: Duration) -> Option<requeue::Timer> {
        let clock = &self.settings.clock;
        clock.now().checked_add(delay).map(|at| clock.timer(at))
    }

    async fn pause(&self, delay: Duration) {
        if let Some(timer) = self.timer(delay) {
            timer.await;
        }
    }
}

impl<S: Store> Probed for Client<S> {
    fn gauges(&self) -> Gauges {
        let (parked, now) = (self.getters.count(), self.settings.clock.now());
        self.measure(|meter| meter.gauges(parked, now)).unwrap_or_default()
    }
}

impl<S: Store> fmt::Debug for Client<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("name", &self.settings.name)
            .finish_non_exhaustive()
    }
}
