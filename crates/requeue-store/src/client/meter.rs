//! The metrics of a queue: the keys that pass through this process, and the last stats of
//! the whole queue.
//!
//! Measuring never calls the store. A lease reports how long its key was ready.

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
    /// The last stats. `None` before the first call of `stats` and after a failed one.
    stats: Mutex<Option<Stats>>,
}

/// The keys that workers of this process hold.
#[derive(Debug, Default)]
struct Running {
    since: BTreeSet<RunStart>,
    count: u64,
}

/// The start of one run. The number makes it unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RunStart {
    at: Instant,
    number: u64,
}

impl Meter {
    pub(crate) fn new(recorder: Box<dyn Recorder>) -> Self {
        Self { recorder, running: Mutex::default(), stats: Mutex::default() }
    }

    /// Records an answered add.
    pub(crate) fn added(&self, add: &Add, receipt: &Receipt) {
        if add.when != When::Now {
            self.recorder.delayed();
        }
        if is_change(receipt.added) {
            self.recorder.added();
        }
    }

    /// Records that a worker received a key that was ready for `waited`.
    pub(crate) fn began(&self, at: Instant, waited: Duration) -> RunStart {
        self.recorder.got(waited);
        let mut running = lock(&self.running);
        running.count += 1;
        let begun = RunStart { at, number: running.count };
        running.since.insert(begun);
        begun
    }

    /// Records the end of a run, before the store has answered.
    pub(crate) fn ended(&self, begun: RunStart, now: Instant) {
        lock(&self.running).since.remove(&begun);
        self.recorder.done(now.saturating_duration_since(begun.at));
    }

    /// Records an answered finish.
    pub(crate) fn finished(&self, request: &FinishRequest, answer: &Finished) {
        let again = matches!(
            request.finish,
            Finish::Retry | Finish::RetryAfter(_) | Finish::RequeueAfter(_)
        );
        if again && *answer != Finished::LeaseLost {
            self.recorder.delayed();
        }
        if matches!(answer, Finished::Delayed(_)) {
            self.recorder.added();
        }
    }

    /// Records a lease that was dropped by a panic.
    pub(crate) fn panicked(&self) {
        self.recorder.panicked();
    }

    /// Sets the stats that the gauges show.
    pub(crate) fn set_stats(&self, stats: Option<Stats>) {
        *lock(&self.stats) = stats;
    }

    pub(crate) fn gauges(&self, parked: usize, now: Instant) -> Gauges {
        let mut gauges = lock(&self.stats).map_or_else(without_stats, with_stats);
        let running = lock(&self.running);
        let ages =
            running.since.iter().map(|begun| now.saturating_duration_since(begun.at));
        gauges.unfinished = ages.clone().fold(Duration::ZERO, Duration::saturating_add);
        gauges.longest_running = ages.max().unwrap_or_default();
        gauges.parked = parked;
        gauges
    }
}

/// Returns whether an add changed anything.
fn is_change(added: Added) -> bool {
    match added {
        Added::Duplicate => false,
        Added::Ready | Added::Dirty | Added::Delayed | _ => true,
    }
}

/// Returns the gauges before the first stats.
fn without_stats() -> Gauges {
    let mut gauges = Gauges::default();
    gauges.shared = true;
    gauges
}

fn with_stats(stats: Stats) -> Gauges {
    let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    let mut gauges = without_stats();
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
