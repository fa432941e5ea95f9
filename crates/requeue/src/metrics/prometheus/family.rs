//! One metric with all its series, for both text formats.

use super::catalogue::Metric;
use super::histogram::Snapshot;
use crate::metrics::{Gauge, GaugeValue};

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
    Gauge(GaugeValue),
    Histogram(Snapshot),
}

/// The labels of one series: names and values.
pub(super) type Labels = Vec<(&'static str, String)>;

/// A metric and its series.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: Kind,
    pub(super) series: Vec<(Labels, Value)>,
}

impl Family {
    /// Creates the family of `metric`, unless it has no series.
    pub(super) fn new<T, G>(
        metric: &Metric<T, G>,
        series: Vec<(Labels, Value)>,
    ) -> Option<Self> {
        let Metric { name, help, .. } = *metric;
        let family = Self { name, help, kind: metric.kind(), series };
        (!family.series.is_empty()).then_some(family)
    }
}

impl Family {
    /// Creates the family of a gauge that only some queues have, without series.
    pub(super) fn of(gauge: &Gauge) -> Self {
        let Gauge { name, help, .. } = *gauge;
        Self { name, help, kind: Kind::Gauge, series: Vec::new() }
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
