//! What the handles of one queue share, and the tasks behind them.
//!
//! Four kinds of tasks, each there only while it has something to do: one sends adds, one
//! sends ends of leases, one fetches keys for those who wait, and one, the heartbeat,
//! extends what is held. They are told nothing by timers that a call would have to wait
//! for. What a store cannot do now because of one key goes on in tasks of its own.
//!
//! A task may end in the middle, if it panics or its runtime is shut down. Each has
//! something whose drop then tells those who wait for it, and lets the next call start
//! another.

use std::fmt;
use std::future::Future;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use requeue::metrics::{Gauges, Metrics, Probe, Probed};
use requeue::{Clock, Finish};
use tokio::runtime::Handle;
use tokio::sync::{Notify, RwLock, Semaphore};

use crate::batch::Batcher;
use crate::getters::Getters;
use crate::held::{HeldLeases, Leaving};
use crate::lease::RawLease;
use crate::meter::Meter;
use crate::tally::Tally;
use crate::{Add, Backoff, Error, FinishRequest, Finished, Owner, Receipt, Store};

mod beat;
mod fetch;
mod send;

/// The pauses between attempts of a call that fails: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The most calls at a time for what somebody has keys of: each may keep a connection for a
/// while, and others need some too.
const MAX_ASIDE: usize = 3;

/// Hears of errors that nobody is told otherwise.
pub(crate) type OnError = Arc<dyn Fn(&Error) + Send + Sync>;

/// What a queue was built with.
#[derive(Clone)]
pub(crate) struct Terms {
    pub(crate) name: String,
    pub(crate) owner: Owner,
    pub(crate) lease: Duration,
    pub(crate) max_deliveries: Option<NonZeroU32>,
    pub(crate) backoff: Backoff,
    pub(crate) revive_after: Duration,
    pub(crate) patience: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) on_error: Option<OnError>,
    pub(crate) on_drop: Finish,
}

/// What the handles of a queue, its leases and its tasks share.
pub(crate) struct Engine<S: Store> {
    pub(crate) store: S,
    pub(crate) terms: Terms,
    pub(crate) held: Arc<HeldLeases>,
    meter: Option<Meter>,
    runtime: Handle,
    adds: Batcher<Add, Receipt>,
    ends: Batcher<FinishRequest, Finished, Leaving>,
    getters: Getters<RawLease<S>>,
    /// For calls that hold nobody up.
    aside: Semaphore,
    /// Tasks that lease, or bring back what was leased to nobody.
    lessees: Arc<Tally>,
    beating: AtomicBool,
    /// The answer to a lease was lost, and what it granted was not brought back yet.
    in_doubt: AtomicBool,
    /// Read while keys are leased until they are held; written while what is not held is
    /// brought back.
    leasing: RwLock<()>,
    closed: AtomicBool,
    closing: Notify,
    /// Told when something has ended that [`settle`](Self::settle) waits for.
    ended: Arc<Notify>,
}

impl<S: Store> Engine<S> {
    pub(crate) fn new(
        store: S,
        terms: Terms,
        metrics: Option<Box<dyn Metrics>>,
        runtime: Handle,
    ) -> Arc<Self> {
        let ended = Arc::<Notify>::default();
        Arc::new_cyclic(|engine: &Weak<Self>| Self {
            meter: metrics.map(|metrics| {
                let probe = Probe::new(Weak::<Self>::clone(engine));
                Meter::new(metrics.queue(&terms.name, probe))
            }),
            store,
            terms,
            runtime,
            held: Arc::new(HeldLeases::new(Arc::clone(&ended))),
            adds: Batcher::new(Arc::clone(&ended)),
            ends: Batcher::new(Arc::clone(&ended)),
            getters: Getters::new(),
            aside: Semaphore::new(MAX_ASIDE),
            lessees: Tally::new(Arc::clone(&ended)),
            beating: AtomicBool::new(false),
            in_doubt: AtomicBool::new(false),
            leasing: RwLock::new(()),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
            ended,
        })
    }

    pub(crate) fn is_closed(&self) -> bool {
        // In one order with `lessees`: a try that counts itself and then finds the queue
        // open is seen by whoever closes it and then looks for such.
        self.closed.load(Ordering::SeqCst)
    }

    /// Adds nothing and hands out nothing any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.getters.close();
        self.closing.notify_waiters();
    }

    /// Waits until nothing is held and nothing is on its way.
    pub(crate) async fn settle(&self) {
        self.rest_once(|| self.held.is_empty()).await;
    }

    /// Waits until nothing is on its way. Who has closed it before waits no longer than
    /// calls are tried.
    pub(crate) async fn rest(&self) {
        self.rest_once(|| true).await;
    }

    async fn rest_once(&self, may_rest: impl Fn() -> bool) {
        loop {
            // Listens before it looks, so that no news is missed.
            let ended = self.ended.notified();
            if may_rest() && self.is_at_rest() {
                return self.reclaim_patiently().await;
            }
            ended.await;
        }
    }

    fn is_at_rest(&self) -> bool {
        self.lessees.is_zero() && self.adds.is_idle() && self.ends.is_idle()
    }

    /// Tells whoever measures, if anybody does.
    pub(crate) fn measure<T>(&self, tell: impl FnOnce(&Meter) -> T) -> Option<T> {
        self.meter.as_ref().map(tell)
    }

    /// Tells whoever wants to hear of errors. That it panics is its own affair, which the
    /// hook of panics tells of.
    pub(crate) fn report(&self, error: &Error) {
        if let Some(on_error) = &self.terms.on_error {
            drop(catch_unwind(AssertUnwindSafe(|| on_error(error))));
        }
    }

    fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.runtime.spawn(task));
    }

    fn timer(&self, delay: Duration) -> Option<requeue::Timer> {
        let clock = &self.terms.clock;
        clock.now().checked_add(delay).map(|moment| clock.timer(moment))
    }

    async fn pause(&self, delay: Duration) {
        if let Some(timer) = self.timer(delay) {
            timer.await;
        }
    }
}

/// A time in which calls fail.
#[derive(Debug, Default)]
struct Outage {
    since: Option<Instant>,
    pause: Option<Duration>,
}

impl Outage {
    /// A call has failed now: how long to pause before the next attempt.
    fn next_pause(&mut self, now: Instant) -> Duration {
        self.since.get_or_insert(now);
        let pause = self.pause.map_or(FIRST_PAUSE, |last| (last * 2).min(LONGEST_PAUSE));
        self.pause = Some(pause);
        pause
    }

    /// For how long calls have failed.
    fn lasts(&self, now: Instant) -> Duration {
        self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Whether the patience for what was asked for at `asked` ends before `next`.
    fn outlasts(
        &self,
        patience: Duration,
        asked: Instant,
        next: Option<Instant>,
    ) -> bool {
        let begun = self.since.map_or(asked, |since| since.max(asked));
        begun.checked_add(patience).is_some_and(|end| next.is_none_or(|next| next > end))
    }
}

impl<S: Store> Probed for Engine<S> {
    fn gauges(&self) -> Gauges {
        let (parked, now) = (self.getters.waiting(), self.terms.clock.now());
        self.measure(|meter| meter.gauges(parked, now)).unwrap_or_default()
    }
}

impl<S: Store> fmt::Debug for Engine<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("name", &self.terms.name).finish_non_exhaustive()
    }
}
