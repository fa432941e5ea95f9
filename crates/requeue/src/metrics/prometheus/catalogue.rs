//! Every metric of a queue: its name, its help text, and where its value comes from.
//!
//! `docs/METRICS.md` describes the same metrics for people; a test compares the two.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::family::{Kind, Labels, Value};
use super::histogram::{Bounds, Histogram};
use crate::metrics::Gauges;

/// What all queues of one name have counted.
#[derive(Debug)]
pub(super) struct Totals {
    pub(super) adds: AtomicU64,
    pub(super) retries: AtomicU64,
    pub(super) panics: AtomicU64,
    pub(super) waited: Histogram,
    pub(super) worked: Histogram,
}

impl Totals {
    pub(super) fn new(bounds: &Arc<Bounds>) -> Self {
        Self {
            adds: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            waited: Histogram::new(Arc::clone(bounds)),
            worked: Histogram::new(Arc::clone(bounds)),
        }
    }
}

/// The value of a gauge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Level {
    Count(usize),
    Seconds(Duration),
}

/// Where the value of a metric comes from, and with that its type. `T` is what is
/// counted, `G` what is read when scraped.
pub(super) enum Source<T, G> {
    Counter(fn(&T) -> &AtomicU64),
    /// One series for each value of the label `result`.
    ByResult(fn(&T) -> Vec<(&'static str, &AtomicU64)>),
    /// Nothing, if that is not known.
    Gauge(fn(&G) -> Option<Level>),
    Histogram(fn(&T) -> &Histogram),
}

/// One metric.
pub(super) struct Metric<T, G> {
    /// As Prometheus stores it: the name of a counter ends in `_total`.
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) source: Source<T, G>,
}

impl<T, G> Metric<T, G> {
    /// Reads the series of those who share `labels`; a gauge has none once they are gone.
    pub(super) fn read(
        &self,
        labels: &Labels,
        totals: &T,
        gauges: Option<&G>,
    ) -> Vec<(Labels, Value)> {
        let count = |count: &AtomicU64| Value::Counter(count.load(Ordering::Relaxed));
        let value = match self.source {
            Source::Counter(of) => Some(count(of(totals))),
            Source::Gauge(of) => gauges.and_then(of).map(Value::Gauge),
            Source::Histogram(of) => Some(Value::Histogram(of(totals).snapshot())),
            Source::ByResult(of) => {
                let results = of(totals).into_iter();
                let labelled = |result: &str| {
                    [&labels[..], &[("result", result.to_owned())]].concat()
                };
                return results.map(|(of, value)| (labelled(of), count(value))).collect();
            }
        };
        value.into_iter().map(|value| (labels.clone(), value)).collect()
    }

    pub(super) fn kind(&self) -> Kind {
        match self.source {
            Source::Counter(_) | Source::ByResult(_) => Kind::Counter,
            Source::Gauge(_) => Kind::Gauge,
            Source::Histogram(_) => Kind::Histogram,
        }
    }
}

/// Sorted by name. The names and help texts that begin with `workqueue_` are those of
/// Kubernetes (component-base), without the mark `[BETA]` that it puts before each text.
pub(super) const CATALOGUE: &[Metric<Totals, Gauges>] = &[
    Metric {
        name: "requeue_dead",
        help: "Keys of a store that failed for good.",
        source: Source::Gauge(|gauges| Some(Level::Count(gauges.told()?.dead))),
    },
    Metric {
        name: "requeue_delayed",
        help: "Keys that become ready at a later time.",
        source: Source::Gauge(|gauges| gauges.keys(gauges.delayed)),
    },
    Metric {
        name: "requeue_dirty",
        help: "Keys that are with a worker and were added again meanwhile.",
        source: Source::Gauge(|gauges| gauges.keys(gauges.dirty)),
    },
    Metric {
        name: "requeue_failing",
        help: "Keys of a store that failed and will be tried again.",
        source: Source::Gauge(|gauges| Some(Level::Count(gauges.told()?.failing))),
    },
    Metric {
        name: "requeue_oldest_ready_seconds",
        help: "How long in seconds the key of a store that is ready longest has been so.",
        source: Source::Gauge(|gauges| Some(Level::Seconds(gauges.told()?.oldest_ready))),
    },
    Metric {
        name: "requeue_panics_total",
        help: "Total number of keys whose worker panicked.",
        source: Source::Counter(|totals| &totals.panics),
    },
    Metric {
        name: "requeue_parked",
        help: "Workers that wait for a key.",
        source: Source::Gauge(|gauges| Some(Level::Count(gauges.parked))),
    },
    Metric {
        name: "requeue_paused",
        help: "Whether a store hands out nothing.",
        source: Source::Gauge(|gauges| {
            Some(Level::Count(usize::from(gauges.told()?.paused)))
        }),
    },
    Metric {
        name: "requeue_processing",
        help: "Keys that are with a worker.",
        source: Source::Gauge(|gauges| gauges.keys(gauges.processing)),
    },
    Metric {
        name: "requeue_ready",
        help: "Keys that can be handed out now.",
        source: Source::Gauge(|gauges| gauges.keys(gauges.ready)),
    },
    Metric {
        name: "workqueue_adds_total",
        help: "Total number of adds handled by workqueue",
        source: Source::Counter(|totals| &totals.adds),
    },
    Metric {
        name: "workqueue_depth",
        help: "Current depth of workqueue",
        source: Source::Gauge(|gauges| gauges.keys(gauges.ready + gauges.dirty)),
    },
    Metric {
        name: "workqueue_longest_running_processor_seconds",
        help: "How many seconds has the longest running processor for workqueue been running.",
        source: Source::Gauge(|gauges| Some(Level::Seconds(gauges.longest_running))),
    },
    Metric {
        name: "workqueue_queue_duration_seconds",
        help: "How long in seconds an item stays in workqueue before being requested.",
        source: Source::Histogram(|totals| &totals.waited),
    },
    Metric {
        name: "workqueue_retries_total",
        help: "Total number of retries handled by workqueue",
        source: Source::Counter(|totals| &totals.retries),
    },
    Metric {
        name: "workqueue_unfinished_work_seconds",
        help: "How many seconds of work has done that is in progress and hasn't been \
               observed by work_duration. Large values indicate stuck threads. One can \
               deduce the number of stuck threads by observing the rate at which this \
               increases.",
        source: Source::Gauge(|gauges| Some(Level::Seconds(gauges.unfinished))),
    },
    Metric {
        name: "workqueue_work_duration_seconds",
        help: "How long in seconds processing an item from workqueue takes.",
        source: Source::Histogram(|totals| &totals.worked),
    },
];
