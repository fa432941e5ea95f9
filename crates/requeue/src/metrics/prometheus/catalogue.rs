//! Every metric of a queue: its name, its help text, and where its value comes from.
//!
//! A test compares this list with `docs/METRICS.md`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::family::{Kind, Labels, Value};
use super::histogram::{Bounds, Histogram, add_alone};
use crate::Counts;
use crate::metrics::{GaugeValue, Gauges, Tally};

/// Counters and histograms of one queue, or of several with one name.
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

    /// Adds other totals with the same bounds.
    pub(super) fn merge(&self, other: &Self) {
        for (count, more) in [
            (&self.adds, &other.adds),
            (&self.retries, &other.retries),
            (&self.panics, &other.panics),
        ] {
            count.fetch_add(more.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.waited.merge(&other.waited);
        self.worked.merge(&other.worked);
    }
}

impl Tally for Totals {
    fn added(&self) {
        add_alone(&self.adds, 1);
    }

    fn got(&self, waited: u64) {
        self.waited.observe_alone(waited);
    }

    fn done(&self, worked: u64) {
        self.worked.observe_alone(worked);
    }
}

/// Where the value of a metric comes from, which also determines its type. `T` holds the
/// counters, `G` the gauges read by a scrape.
pub(super) enum Source<T, G> {
    Counter(fn(&T) -> &AtomicU64),
    /// One series per value of the label `result`.
    ByResult(fn(&T) -> Vec<(&'static str, &AtomicU64)>),
    /// `None` while the value is unknown.
    Gauge(fn(&G) -> Option<GaugeValue>),
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
    /// Reads the series with these labels. A gauge has none after the last queue is dropped.
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

/// A number of keys, if it is known.
fn keys(gauges: &Gauges, number: fn(Counts) -> usize) -> Option<GaugeValue> {
    gauges.keys.map(|keys| GaugeValue::Count(number(keys)))
}

/// Sorted by name. Names and help texts that start with `workqueue_` are those of Kubernetes
/// (component-base), without the mark `[BETA]` in front of each text.
pub(super) const CATALOGUE: &[Metric<Totals, Gauges>] = &[
    Metric {
        name: "requeue_delayed",
        help: "Keys that become ready when their delay ends.",
        source: Source::Gauge(|gauges| keys(gauges, |keys| keys.delayed)),
    },
    Metric {
        name: "requeue_dirty",
        help: "Keys that were added again while they are being processed.",
        source: Source::Gauge(|gauges| keys(gauges, |keys| keys.dirty)),
    },
    Metric {
        name: "requeue_panics_total",
        help: "Total number of contained panics of user code.",
        source: Source::Counter(|totals| &totals.panics),
    },
    Metric {
        name: "requeue_parked",
        help: "Getters that wait for a key.",
        source: Source::Gauge(|gauges| Some(GaugeValue::Count(gauges.parked))),
    },
    Metric {
        name: "requeue_processing",
        help: "Keys that are being processed.",
        source: Source::Gauge(|gauges| keys(gauges, |keys| keys.processing)),
    },
    Metric {
        name: "requeue_ready",
        help: "Keys that can be delivered now.",
        source: Source::Gauge(|gauges| keys(gauges, |keys| keys.ready)),
    },
    Metric {
        name: "workqueue_adds_total",
        help: "Total number of adds handled by workqueue",
        source: Source::Counter(|totals| &totals.adds),
    },
    Metric {
        name: "workqueue_depth",
        help: "Current depth of workqueue",
        source: Source::Gauge(|gauges| keys(gauges, |keys| keys.ready + keys.dirty)),
    },
    Metric {
        name: "workqueue_longest_running_processor_seconds",
        help: "How many seconds has the longest running processor for workqueue been running.",
        source: Source::Gauge(|gauges| Some(GaugeValue::Seconds(gauges.longest_running))),
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
        source: Source::Gauge(|gauges| Some(GaugeValue::Seconds(gauges.unfinished))),
    },
    Metric {
        name: "workqueue_work_duration_seconds",
        help: "How long in seconds processing an item from workqueue takes.",
        source: Source::Histogram(|totals| &totals.worked),
    },
];
