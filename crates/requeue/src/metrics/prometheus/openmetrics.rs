//! The metrics as a collector in a registry of prometheus-client.
//!
//! A collector, not registered metrics: it reads gauges when scraped and drops the series of
//! dropped queues, and the registry does not append a full stop to its help texts.

use std::collections::HashMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeGaugeValue, GaugeValueEncoder, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;

use super::Reports;
use super::family::{Family, Kind, Value};
use super::histogram::Snapshot;
use crate::metrics::GaugeValue;

impl Collector for Reports {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let families = self.families();
        families.iter().try_for_each(|family| encode_family(&mut encoder, family))
    }
}

fn encode_family(encoder: &mut DescriptorEncoder<'_>, family: &Family) -> fmt::Result {
    let (name, metric_type) = (family_name(family), metric_type(family));
    let mut encoder = encoder.encode_descriptor(name, family.help, None, metric_type)?;
    for (labels, value) in &family.series {
        encode_value(encoder.encode_family(labels)?, value)?;
    }
    Ok(())
}

/// The encoder appends `_total` to the samples of a counter.
fn family_name(family: &Family) -> &'static str {
    match family.kind {
        Kind::Counter => family.name.strip_suffix("_total").unwrap_or(family.name),
        Kind::Gauge | Kind::Histogram => family.name,
    }
}

fn metric_type(family: &Family) -> MetricType {
    match family.kind {
        Kind::Counter => MetricType::Counter,
        Kind::Gauge => MetricType::Gauge,
        Kind::Histogram => MetricType::Histogram,
    }
}

fn encode_value(mut encoder: MetricEncoder<'_>, value: &Value) -> fmt::Result {
    match value {
        Value::Counter(count) => {
            encoder.encode_counter(count, None::<&Exemplar<NoLabelSet, f64>>)
        }
        Value::Gauge(level) => encoder.encode_gauge(level),
        Value::Histogram(snapshot) => encode_histogram(encoder, snapshot),
    }
}

fn encode_histogram(mut encoder: MetricEncoder<'_>, snapshot: &Snapshot) -> fmt::Result {
    let exemplars = None::<&HashMap<usize, Exemplar<NoLabelSet, f64>>>;
    encoder.encode_histogram(snapshot.sum, snapshot.count(), &snapshot.buckets, exemplars)
}

impl EncodeGaugeValue for GaugeValue {
    fn encode(&self, encoder: &mut GaugeValueEncoder<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => EncodeGaugeValue::encode(count, encoder),
            Self::Seconds(seconds) => seconds.as_secs_f64().encode(encoder),
        }
    }
}
