//! Prometheus' own text format, version 0.0.4, as Go programs write it.
//!
//! The text encoder of prometheus-client writes `OpenMetrics`, where the family of a
//! counter is named without `_total` and a bound is spelt `1e-8`. `promtool check metrics`
//! reads this format only, and Kubernetes writes it.

use std::fmt::{self, Display, Write};

use super::Sample;
use super::catalogue::{CATALOGUE, Level, Metric, Value};
use super::histogram::Snapshot;

/// All metrics of all queues.
pub(super) struct Text<'a>(pub(super) &'a [Sample]);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        CATALOGUE.iter().try_for_each(|metric| write_metric(f, metric, self.0))
    }
}

/// Writes a metric unless no queue has a value for it.
fn write_metric(
    f: &mut fmt::Formatter<'_>,
    metric: &Metric,
    samples: &[Sample],
) -> fmt::Result {
    let mut header = Some(metric);
    for sample in samples {
        let Some(value) = sample.read(metric) else { continue };
        if let Some(Metric { name, help, .. }) = header.take() {
            writeln!(f, "# HELP {name} {help}")?;
            writeln!(f, "# TYPE {name} {}", metric.type_name())?;
        }
        write_value(f, metric.name, &Escaped(&sample.name), &value)?;
    }
    Ok(())
}

fn write_value(
    f: &mut fmt::Formatter<'_>,
    metric: &str,
    queue: &Escaped<'_>,
    value: &Value,
) -> fmt::Result {
    match value {
        Value::Counter(count) => writeln!(f, "{metric}{{name=\"{queue}\"}} {count}"),
        Value::Gauge(level) => writeln!(f, "{metric}{{name=\"{queue}\"}} {level}"),
        Value::Histogram(snapshot) => write_histogram(f, metric, queue, snapshot),
    }
}

fn write_histogram(
    f: &mut fmt::Formatter<'_>,
    metric: &str,
    queue: &Escaped<'_>,
    snapshot: &Snapshot,
) -> fmt::Result {
    for (bound, count) in snapshot.cumulative() {
        let le = GoFloat(bound);
        writeln!(f, "{metric}_bucket{{name=\"{queue}\",le=\"{le}\"}} {count}")?;
    }
    writeln!(f, "{metric}_sum{{name=\"{queue}\"}} {}", GoFloat(snapshot.sum))?;
    writeln!(f, "{metric}_count{{name=\"{queue}\"}} {}", snapshot.count())
}

impl Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => count.fmt(f),
            Self::Seconds(seconds) => GoFloat(seconds.as_secs_f64()).fmt(f),
        }
    }
}

/// A label's value, fit to stand between double quotes.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|letter| match letter {
            '\\' => f.write_str("\\\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str("\\n"),
            other => f.write_char(other),
        })
    }
}

/// A number in the spelling of Go's `strconv` with format `g`, so that a bound is the same
/// label value as in Kubernetes: an exponent below -4 or above 5 is written out, with a
/// sign and two digits.
pub(super) struct GoFloat(pub(super) f64);

impl Display for GoFloat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_infinite() {
            return f.write_str(if self.0 > 0.0 { "+Inf" } else { "-Inf" });
        }
        let scientific = format!("{:e}", self.0);
        let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        if (-4..6).contains(&exponent) {
            return write!(f, "{}", self.0);
        }
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(f, "{digits}e{sign}{:02}", exponent.abs())
    }
}
