//! The metrics of pools, under the names of controller-runtime.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use super::catalogue::{Metric, Source};
use super::family::{Family, Labels};
use super::histogram::{Bounds, Histogram};
use crate::metrics::{GaugeValue, PoolRecorder, RunResult};

/// All pools that report to one [`Prometheus`](super::Prometheus).
pub(super) struct Pools {
    bounds: Arc<Bounds>,
    by_name: Mutex<BTreeMap<String, Named>>,
}

/// The pools of one name.
#[derive(Clone)]
struct Named {
    totals: Arc<Totals>,
    /// One per pool. The pointer of a dropped pool dangles.
    workers: Vec<Weak<Workers>>,
}

/// The counters of all pools of one name.
#[derive(Debug)]
pub(super) struct Totals {
    success: AtomicU64,
    error: AtomicU64,
    requeue_after: AtomicU64,
    terminal: AtomicU64,
    panics: AtomicU64,
    timeouts: AtomicU64,
    dead: AtomicU64,
    time: Histogram,
}

/// The workers of one pool.
#[derive(Debug, Default)]
struct Workers {
    configured: AtomicUsize,
    active: AtomicUsize,
}

/// The workers of all pools of one name when they are scraped.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WorkerCounts {
    configured: usize,
    active: usize,
}

/// Counts the runs of one pool.
struct Events {
    totals: Arc<Totals>,
    workers: Arc<Workers>,
}

/// The bounds of controller-runtime, in seconds.
const BOUNDS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7,
    0.8, 0.9, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0,
    9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
];

impl Pools {
    pub(super) fn new() -> Self {
        Self { bounds: Arc::new(Bounds::new(BOUNDS)), by_name: Mutex::default() }
    }

    /// Adds a pool and returns the recorder of its runs.
    pub(super) fn join(&self, name: &str) -> Box<dyn PoolRecorder> {
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        let named = by_name.entry(name.to_owned()).or_insert_with(|| Named {
            totals: Arc::new(Totals::new(&self.bounds)),
            workers: Vec::new(),
        });
        let workers = Arc::new(Workers::default());
        named.workers.retain(|workers| workers.strong_count() > 0);
        named.workers.push(Arc::downgrade(&workers));
        Box::new(Events { totals: Arc::clone(&named.totals), workers })
    }

    /// Reads all metrics of all pools.
    pub(super) fn families(&self) -> impl Iterator<Item = Family> {
        let by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner).clone();
        POOL_CATALOGUE.iter().filter_map(move |metric| {
            let series = by_name.iter().flat_map(|(name, named)| {
                let labels: Labels = vec![(label_of(metric.name), name.clone())];
                metric.read(&labels, &named.totals, named.worker_counts().as_ref())
            });
            Family::new(metric, series.collect())
        })
    }
}

/// Returns the label for the name of the pool.
pub(super) fn label_of(metric: &str) -> &'static str {
    if metric.starts_with("controller_runtime_") { "controller" } else { "name" }
}

impl Named {
    /// Returns `None` after the last pool of that name is dropped.
    fn worker_counts(&self) -> Option<WorkerCounts> {
        let counts = self.workers.iter().filter_map(Weak::upgrade).map(|workers| {
            let configured = workers.configured.load(Ordering::Relaxed);
            WorkerCounts { configured, active: workers.active.load(Ordering::Relaxed) }
        });
        counts.reduce(|one, other| WorkerCounts {
            configured: one.configured.saturating_add(other.configured),
            active: one.active + other.active,
        })
    }
}

impl Totals {
    fn new(bounds: &Arc<Bounds>) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            success: zero(),
            error: zero(),
            requeue_after: zero(),
            terminal: zero(),
            panics: zero(),
            timeouts: zero(),
            dead: zero(),
            time: Histogram::new(Arc::clone(bounds)),
        }
    }

    /// Returns the counters of a result. Released keys have none: they were not processed.
    fn counters(&self, result: RunResult) -> [Option<&AtomicU64>; 2] {
        match result {
            RunResult::Succeeded => [Some(&self.success), None],
            RunResult::Requeued => [Some(&self.requeue_after), None],
            RunResult::Failed => [Some(&self.error), None],
            RunResult::Panicked => [Some(&self.error), Some(&self.panics)],
            RunResult::TimedOut => [Some(&self.error), Some(&self.timeouts)],
            RunResult::GaveUp => [Some(&self.error), Some(&self.terminal)],
            RunResult::Released => [None, None],
        }
    }
}

impl PoolRecorder for Events {
    fn workers(&self, workers: usize) {
        self.workers.configured.store(workers, Ordering::Relaxed);
    }

    fn started(&self) {
        self.workers.active.fetch_add(1, Ordering::Relaxed);
    }

    fn ended(&self, result: RunResult, took: Duration) {
        self.workers.active.fetch_sub(1, Ordering::Relaxed);
        for count in self.totals.counters(result).into_iter().flatten() {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.totals.time.observe(took);
    }

    fn overran(&self) {
        self.totals.timeouts.fetch_add(1, Ordering::Relaxed);
    }

    fn dead(&self) {
        self.totals.dead.fetch_add(1, Ordering::Relaxed);
    }
}

/// Sorted by name. Names, labels and bounds that start with `controller_runtime_` are those of
/// controller-runtime; the help texts are ours.
pub(super) const POOL_CATALOGUE: &[Metric<Totals, WorkerCounts>] = &[
    Metric {
        name: "controller_runtime_active_workers",
        help: "Workers that run a handler.",
        source: Source::Gauge(|workers| Some(GaugeValue::Count(workers.active))),
    },
    Metric {
        name: "controller_runtime_max_concurrent_reconciles",
        help: "Configured number of workers.",
        source: Source::Gauge(|workers| Some(GaugeValue::Count(workers.configured))),
    },
    Metric {
        name: "controller_runtime_reconcile_errors_total",
        help: "Total number of failed runs.",
        source: Source::Counter(|totals| &totals.error),
    },
    Metric {
        name: "controller_runtime_reconcile_panics_total",
        help: "Total number of runs whose handler panicked.",
        source: Source::Counter(|totals| &totals.panics),
    },
    Metric {
        name: "controller_runtime_reconcile_time_seconds",
        help: "Duration of a run, in seconds.",
        source: Source::Histogram(|totals| &totals.time),
    },
    Metric {
        name: "controller_runtime_reconcile_timeouts_total",
        help: "Total number of runs that exceeded their timeout.",
        source: Source::Counter(|totals| &totals.timeouts),
    },
    Metric {
        name: "controller_runtime_reconcile_total",
        help: "Total number of runs by result.",
        source: Source::ByResult(|totals| {
            vec![
                ("error", &totals.error),
                ("requeue_after", &totals.requeue_after),
                ("success", &totals.success),
            ]
        }),
    },
    Metric {
        name: "controller_runtime_terminal_reconcile_errors_total",
        help: "Total number of runs whose handler gave up.",
        source: Source::Counter(|totals| &totals.terminal),
    },
    Metric {
        name: "requeue_dead_total",
        help: "Total number of keys that were given up.",
        source: Source::Counter(|totals| &totals.dead),
    },
];
