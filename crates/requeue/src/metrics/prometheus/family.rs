//! One metric with all its series, as both text formats write it.

use super::catalogue::{Level, Metric};
use super::histogram::Snapshot;

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// The value of one series.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Counter(u64),
    Gauge(Level),
    Histogram(Snapshot),
}

/// Names and values of the labels of one series.
pub(super) type Labels = Vec<(&'static str, String)>;

/// A metric and its series, of which there is at least one.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: Kind,
    pub(super) series: Vec<(Labels, Value)>,
}

impl Family {
    /// The family of `metric`, unless nobody has a value for it.
    pub(super) fn new<T, G>(
        metric: &Metric<T, G>,
        series: Vec<(Labels, Value)>,
    ) -> Option<Self> {
        let Metric { name, help, .. } = *metric;
        let family = Self { name, help, kind: metric.kind(), series };
        (!family.series.is_empty()).then_some(family)
    }
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}
