//! What a queue on a store measures: what passes through this process, and how the store
//! said the whole queue stands.
//!
//! Nothing here asks the store. How long a key was ready before it was leased is what the
//! store said with the grant.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use requeue::metrics::{Gauge, GaugeValue, Gauges, Recorder};
use requeue::{Added, Counts, Finish};

use crate::sync::lock;
use crate::{Add, FinishRequest, Finished, Receipt, Stats, When};

/// Measures one queue.
pub(crate) struct Meter {
    recorder: Box<dyn Recorder>,
    running: Mutex<Running>,
    /// What the store told last; nothing if it could not.
    stats: Mutex<Option<Stats>>,
}

/// The keys that are with workers of this process.
#[derive(Debug, Default)]
struct Running {
    since: BTreeSet<Begun>,
    count: u64,
}

/// When a key was handed to a worker; unlike all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Begun {
    at: Instant,
    number: u64,
}

impl Meter {
    pub(crate) fn new(recorder: Box<dyn Recorder>) -> Self {
        Self { recorder, running: Mutex::default(), stats: Mutex::default() }
    }

    /// The store has answered to these adds.
    pub(crate) fn added(&self, adds: &[Add], receipts: &[Receipt]) {
        let delayed = adds.iter().filter(|add| add.when != When::Now);
        delayed.for_each(|_| self.recorder.delayed());
        let changes = receipts.iter().filter(|receipt| is_change(receipt.added));
        changes.for_each(|_| self.recorder.added());
    }

    /// A key that had been ready for so long was handed to a worker.
    pub(crate) fn began(&self, at: Instant, waited: Duration) -> Begun {
        self.recorder.got(waited);
        let mut running = lock(&self.running);
        running.count += 1;
        let begun = Begun { at, number: running.count };
        running.since.insert(begun);
        begun
    }

    /// The worker is done with it, whatever the store will say.
    pub(crate) fn ended(&self, begun: Begun, now: Instant) {
        lock(&self.running).since.remove(&begun);
        self.recorder.done(now.saturating_duration_since(begun.at));
    }

    /// The store has answered to these requests.
    pub(crate) fn finished(&self, requests: &[FinishRequest], answers: &[Finished]) {
        for (request, answer) in requests.iter().zip(answers) {
            let again = matches!(
                request.finish,
                Finish::Retry | Finish::RetryAfter(_) | Finish::RequeueAfter(_)
            );
            if again && !matches!(answer, Finished::LeaseLost | Finished::Busy) {
                self.recorder.delayed();
            }
        }
        let later = answers.iter().filter(|it| matches!(it, Finished::Delayed(_)));
        later.for_each(|_| self.recorder.added());
    }

    /// A lease was dropped by a panic.
    pub(crate) fn panicked(&self) {
        self.recorder.panicked();
    }

    /// The store told how the queue stands, or could not.
    pub(crate) fn told(&self, stats: Option<Stats>) {
        *lock(&self.stats) = stats;
    }

    pub(crate) fn gauges(&self, parked: usize, now: Instant) -> Gauges {
        let mut gauges = lock(&self.stats).map_or_else(unknown, gauges_of);
        let running = lock(&self.running);
        let ages =
            running.since.iter().map(|begun| now.saturating_duration_since(begun.at));
        gauges.unfinished = ages.clone().fold(Duration::ZERO, Duration::saturating_add);
        gauges.longest_running = ages.max().unwrap_or_default();
        gauges.parked = parked;
        gauges
    }
}

/// Whether an add counts: it changed something, for now or for later.
fn is_change(added: Added) -> bool {
    match added {
        Added::Duplicate => false,
        Added::Ready | Added::Dirty | Added::Delayed | _ => true,
    }
}

/// The numbers of keys are not known.
fn unknown() -> Gauges {
    let mut gauges = Gauges::default();
    gauges.shared = true;
    gauges
}

fn gauges_of(stats: Stats) -> Gauges {
    let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    let mut gauges = unknown();
    gauges.keys = Some(Counts {
        ready: count(stats.ready),
        delayed: count(stats.delayed),
        processing: count(stats.processing),
        dirty: count(stats.dirty),
    });
    gauges.extra = vec![
        Gauge {
            name: "requeue_dead",
            help: "Dead keys of a store: they failed for good.",
            value: GaugeValue::Count(count(stats.dead)),
        },
        Gauge {
            name: "requeue_failing",
            help: "Keys of a store that failed and will be retried.",
            value: GaugeValue::Count(count(stats.failing)),
        },
        Gauge {
            name: "requeue_oldest_ready_seconds",
            help: "Age of the oldest ready key of a store, in seconds.",
            value: GaugeValue::Seconds(stats.oldest_ready.unwrap_or_default()),
        },
        Gauge {
            name: "requeue_paused",
            help: "Whether a store is paused, so that it delivers no keys.",
            value: GaugeValue::Count(usize::from(stats.paused)),
        },
    ];
    gauges
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter").field("running", &self.running).finish_non_exhaustive()
    }
}
