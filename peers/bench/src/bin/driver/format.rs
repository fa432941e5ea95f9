//! Figures as text.

use crate::catalog::Figure;
use crate::results::Spread;

/// Formats with two or three significant digits.
pub fn short(value: f64) -> String {
    match value {
        v if v < 0.095 => format!("{v:.2}"),
        v if v < 9.95 => format!("{v:.1}"),
        v if v < 9_999.5 => format!("{v:.0}"),
        v => format!("{},{:03.0}", (v / 1000.0).floor(), v % 1000.0),
    }
}

/// Formats a figure in the unit of its group.
pub fn figure(kind: Figure, value: f64) -> String {
    match kind {
        Figure::Latency => short(value / 1000.0),
        Figure::Cpu | Figure::Wall | Figure::Memory => short(value),
    }
}

/// Formats a ratio with its range, such as `3.91 (3.72–4.10)`.
pub fn ratio(spread: Spread) -> String {
    let Spread { median, low, high } = spread;
    if low == high {
        return digits(median);
    }
    format!("{} ({}–{})", digits(median), digits(low), digits(high))
}

/// Formats with three significant digits, so that a ratio just below its aim does not look
/// equal to it.
fn digits(value: f64) -> String {
    match value {
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}
