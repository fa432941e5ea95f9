//! The metrics as a collector in a registry of prometheus-client.
//!
//! A collector and not registered metrics: gauges are read when scraped, gone queues
//! disappear, and help texts stay as they are (registering appends a full stop).

use std::collections::HashMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeGaugeValue, GaugeValueEncoder, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;

use super::catalogue::{CATALOGUE, Level, Metric, Source, Value};
use super::histogram::Snapshot;
use super::{Queues, Sample};

impl Collector for Queues {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let samples = self.samples();
        let mut metrics = CATALOGUE.iter();
        metrics.try_for_each(|metric| encode_metric(&mut encoder, metric, &samples))
    }
}

/// Encodes a metric unless no queue has a value for it.
fn encode_metric(
    encoder: &mut DescriptorEncoder<'_>,
    metric: &Metric,
    samples: &[Sample],
) -> fmt::Result {
    let values = samples.iter().filter_map(|sample| Some((sample, sample.read(metric)?)));
    let mut values = values.peekable();
    if values.peek().is_none() {
        return Ok(());
    }
    let (family, metric_type) = (family_name(metric), metric_type(metric));
    let mut family = encoder.encode_descriptor(family, metric.help, None, metric_type)?;
    for (sample, value) in values {
        let labels = [("name", sample.name.as_str())];
        encode_value(family.encode_family(&labels)?, &value)?;
    }
    Ok(())
}

/// The encoder appends `_total` to the samples of a counter.
fn family_name(metric: &Metric) -> &'static str {
    match metric.source {
        Source::Counter(_) => metric.name.strip_suffix("_total").unwrap_or(metric.name),
        Source::Gauge(_) | Source::Histogram(_) => metric.name,
    }
}

fn metric_type(metric: &Metric) -> MetricType {
    match metric.source {
        Source::Counter(_) => MetricType::Counter,
        Source::Gauge(_) => MetricType::Gauge,
        Source::Histogram(_) => MetricType::Histogram,
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

impl EncodeGaugeValue for Level {
    fn encode(&self, encoder: &mut GaugeValueEncoder<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => EncodeGaugeValue::encode(count, encoder),
            Self::Seconds(seconds) => seconds.as_secs_f64().encode(encoder),
        }
    }
}
