//! What the handles of one queue share, and the tasks behind them.
//!
//! Four kinds of tasks, each there only while it has something to do: one sends adds, one
//! sends ends of leases, one fetches keys for those who wait, and one, the heartbeat,
//! extends what is held. They are told nothing by timers that a call would have to wait
//! for.

use std::fmt;
use std::future::Future;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use requeue::Clock;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::batch::Batcher;
use crate::getters::Getters;
use crate::held::HeldLeases;
use crate::lease::RawLease;
use crate::{
    Add, Backoff, End, Error, ErrorKind, Finished, Owner, Receipt, Reply, Store,
};

mod beat;
mod fetch;
mod send;

/// The pauses between attempts of a call that fails: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

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
}

/// What the handles of a queue, its leases and its tasks share.
pub(crate) struct Engine<S: Store> {
    pub(crate) store: S,
    pub(crate) terms: Terms,
    pub(crate) held: HeldLeases,
    runtime: Handle,
    adds: Batcher<Add, Receipt>,
    ends: Batcher<End, Finished>,
    getters: Getters<RawLease<S>>,
    beating: AtomicBool,
    /// The answer to a lease was lost, and what it granted was not brought back yet.
    in_doubt: AtomicBool,
    closed: AtomicBool,
    closing: Notify,
}

impl<S: Store> Engine<S> {
    pub(crate) fn new(store: S, terms: Terms, runtime: Handle) -> Arc<Self> {
        Arc::new(Self {
            store,
            terms,
            runtime,
            held: HeldLeases::default(),
            adds: Batcher::new(),
            ends: Batcher::new(),
            getters: Getters::new(),
            beating: AtomicBool::new(false),
            in_doubt: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
        })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Adds nothing and hands out nothing any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.getters.close();
        self.closing.notify_waiters();
    }

    /// Whether nothing is held and nothing is on its way.
    pub(crate) fn is_settled(&self) -> bool {
        self.held.is_empty() && self.adds.is_idle() && self.ends.is_idle()
    }

    pub(crate) fn report(&self, error: &Error) {
        if let Some(on_error) = &self.terms.on_error {
            on_error(error);
        }
    }

    fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.runtime.spawn(task));
    }

    fn timer(&self, delay: Duration) -> Option<requeue::Timer> {
        let clock = &self.terms.clock;
        clock.now().checked_add(delay).map(|moment| clock.timer(moment))
    }

    /// Calls until it succeeds, fails for good, or has failed for long enough: the answer,
    /// and whether an earlier attempt may have been carried out.
    async fn patiently<'a, T>(
        &'a self,
        call: impl Fn() -> Reply<'a, T>,
    ) -> (Result<T, Error>, bool) {
        let give_up = self.terms.clock.now().checked_add(self.terms.patience);
        let (mut pause, mut in_doubt) = (FIRST_PAUSE, false);
        loop {
            let answer = call().await;
            let Some(error) = answer.as_ref().err().filter(|error| error.is_transient())
            else {
                return (answer, in_doubt);
            };
            let next = self.terms.clock.now().checked_add(pause);
            if next.is_none() || next > give_up {
                return (answer, in_doubt);
            }
            in_doubt |= error.kind() == ErrorKind::Unknown;
            self.report(error);
            self.pause(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn pause(&self, delay: Duration) {
        if let Some(timer) = self.timer(delay) {
            timer.await;
        }
    }
}

impl<S: Store> fmt::Debug for Engine<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("name", &self.terms.name).finish_non_exhaustive()
    }
}
