//! The text format of Prometheus, version 0.0.4, as Go programs write it.
//!
//! Kubernetes writes this format, and `promtool check metrics` reads no other. The encoder of
//! prometheus-client writes `OpenMetrics`, which drops `_total` from the family of a counter
//! and spells a bound `1e-8`.

use std::fmt::{self, Display, Write};

use super::family::{Family, Labels, Value};
use super::histogram::Snapshot;
use crate::metrics::GaugeValue;

/// All metrics of all queues and pools.
pub(super) struct Text<'a>(pub(super) &'a [Family]);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|family| write_family(f, family))
    }
}

fn write_family(f: &mut fmt::Formatter<'_>, family: &Family) -> fmt::Result {
    let Family { name, help, kind, series } = family;
    writeln!(f, "# HELP {name} {help}")?;
    writeln!(f, "# TYPE {name} {}", kind.name())?;
    let mut series = series.iter();
    series.try_for_each(|(labels, value)| write_value(f, name, &Labelled(labels), value))
}

fn write_value(
    f: &mut fmt::Formatter<'_>,
    metric: &str,
    labels: &Labelled<'_>,
    value: &Value,
) -> fmt::Result {
    match value {
        Value::Counter(count) => writeln!(f, "{metric}{{{labels}}} {count}"),
        Value::Gauge(level) => writeln!(f, "{metric}{{{labels}}} {level}"),
        Value::Histogram(snapshot) => write_histogram(f, metric, labels, snapshot),
    }
}

fn write_histogram(
    f: &mut fmt::Formatter<'_>,
    metric: &str,
    labels: &Labelled<'_>,
    snapshot: &Snapshot,
) -> fmt::Result {
    for (bound, count) in snapshot.cumulative() {
        let le = GoFloat(bound);
        writeln!(f, "{metric}_bucket{{{labels},le=\"{le}\"}} {count}")?;
    }
    writeln!(f, "{metric}_sum{{{labels}}} {}", GoFloat(snapshot.sum))?;
    writeln!(f, "{metric}_count{{{labels}}} {}", snapshot.count())
}

/// The labels of a series, without the braces around them.
struct Labelled<'a>(&'a Labels);

impl Display for Labelled<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for (label, value) in self.0 {
            write!(f, "{comma}{label}=\"{}\"", Escaped(value))?;
            comma = ",";
        }
        Ok(())
    }
}

impl Display for GaugeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => count.fmt(f),
            Self::Seconds(seconds) => GoFloat(seconds.as_secs_f64()).fmt(f),
        }
    }
}

/// The value of a label, escaped for double quotes.
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
/// label value as in Kubernetes: an exponent below -4 or above 5 is written with a sign and
/// two digits.
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
