//! Parsers for the values of flags: durations, rates, backoffs, exit codes, addresses.
//!
//! An error names the accepted values. clap adds the flag and the rejected value.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// A rejected value. Names what the flag accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expected(&'static str);

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}", self.0)
    }
}

impl std::error::Error for Expected {}

const DURATION: Expected =
    Expected("a duration such as 200ms, 5s, 1m30s or 2h; a bare number is seconds");

/// Parses a duration: numbers with units, in any order.
pub(crate) fn duration(text: &str) -> Result<Duration, Expected> {
    if let Some(seconds) = decimal(text) {
        return Duration::try_from_secs_f64(seconds).map_err(|_| DURATION);
    }
    let (mut total, mut rest) = (Duration::ZERO, text);
    while !rest.is_empty() {
        let (part, after) = leading_duration(rest).ok_or(DURATION)?;
        total = total.checked_add(part).ok_or(DURATION)?;
        rest = after;
    }
    if text.is_empty() { Err(DURATION) } else { Ok(total) }
}

const TIMEOUT: Expected = Expected(
    "a duration above 0 such as 200ms, 5s, 1m30s or 2h; a bare number is seconds",
);

/// Parses a duration above zero.
pub(crate) fn timeout(text: &str) -> Result<Duration, Expected> {
    at_least(Duration::from_nanos(1), text).ok_or(TIMEOUT)
}

const LEASE: Expected = Expected("a duration of at least 100ms, such as 30s or 2m");

/// Parses the length of a lease. A busy machine could not extend a shorter one in time.
pub(crate) fn lease(text: &str) -> Result<Duration, Expected> {
    at_least(Duration::from_millis(100), text).ok_or(LEASE)
}

const INTERVAL: Expected = Expected("a duration of at least 100ms, such as 1s or 500ms");

/// Parses the time between two updates.
pub(crate) fn interval(text: &str) -> Result<Duration, Expected> {
    at_least(Duration::from_millis(100), text).ok_or(INTERVAL)
}

fn at_least(least: Duration, text: &str) -> Option<Duration> {
    duration(text).ok().filter(|duration| *duration >= least)
}

/// Splits the first number and its unit off `text`.
fn leading_duration(text: &str) -> Option<(Duration, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, rest) = text.split_at(digits);
    let end = rest.find(|c: char| !c.is_alphabetic()).unwrap_or(rest.len());
    let (unit, after) = rest.split_at(end);
    let seconds = decimal(number)? * unit_seconds(unit)?;
    Some((Duration::try_from_secs_f64(seconds).ok()?, after))
}

fn unit_seconds(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return None,
    })
}

/// Parses a number without sign or exponent. `f64::from_str` would also accept `inf` and `nan`.
fn decimal(text: &str) -> Option<f64> {
    let plain = text.chars().all(|c| c.is_ascii_digit() || c == '.');
    if plain { text.parse().ok() } else { None }
}

const COUNT: Expected = Expected("a whole number above 0");

/// Parses a number above zero.
pub(crate) fn count<N: FromStr>(text: &str) -> Result<N, Expected> {
    text.parse().map_err(|_| COUNT)
}

const AMOUNT: Expected = Expected("a whole number");

/// Parses a number that may be zero.
pub(crate) fn amount<N: FromStr>(text: &str) -> Result<N, Expected> {
    text.parse().map_err(|_| AMOUNT)
}

const PRIORITY: Expected = Expected("a whole number from -128 to 127");

/// Parses a priority on a store.
pub(crate) fn priority(text: &str) -> Result<i32, Expected> {
    text.parse::<i8>().map(i32::from).map_err(|_| PRIORITY)
}

/// How many keys may fail for good before the run stops.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum MaxFailures {
    Keys(u64),
    Percent(f64),
}

/// A percentage of fewer keys is not meaningful.
const ENOUGH_KEYS: u64 = 10;

impl MaxFailures {
    /// Returns whether `failed` of `done` keys are too many.
    #[expect(clippy::cast_precision_loss, reason = "a percentage")]
    pub(crate) fn is_reached(self, failed: u64, done: u64) -> bool {
        match self {
            Self::Keys(max) => failed >= max,
            Self::Percent(max) => {
                done >= ENOUGH_KEYS && failed as f64 * 100.0 >= max * done as f64
            }
        }
    }
}

const FAILURES: Expected =
    Expected("a whole number above 0, or a percentage such as 20%");

/// Parses a number of failed keys: `3` or `20%`.
pub(crate) fn max_failures(text: &str) -> Result<MaxFailures, Expected> {
    let parsed = match text.strip_suffix('%') {
        Some(number) => decimal(number)
            .filter(|it| *it > 0.0 && *it <= 100.0)
            .map(MaxFailures::Percent),
        None => text.parse().ok().filter(|it| *it > 0).map(MaxFailures::Keys),
    };
    parsed.ok_or(FAILURES)
}

/// A rate of events.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rate {
    Unlimited,
    /// Above zero and finite.
    PerSecond(f64),
}

const RATE: Expected = Expected(
    "a number above 0, optionally with a period: 10, 10/s, 600/m, 5/h; or unlimited",
);

/// Parses a rate: `10`, `10/s`, `600/m`, `1/30s`, `unlimited`.
pub(crate) fn rate(text: &str) -> Result<Rate, Expected> {
    if text == "unlimited" {
        return Ok(Rate::Unlimited);
    }
    let (events, period) = text.split_once('/').unwrap_or((text, "s"));
    let events = decimal(events).ok_or(RATE)?;
    let seconds = match unit_seconds(period) {
        Some(seconds) => seconds,
        None => duration(period).map_err(|_| RATE)?.as_secs_f64(),
    };
    let per_second = events / seconds;
    let positive = per_second.is_finite() && per_second > 0.0;
    if positive { Ok(Rate::PerSecond(per_second)) } else { Err(RATE) }
}

/// The delay after the first failure of a key, and the longest delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Backoff {
    pub(crate) base: Duration,
    pub(crate) max: Duration,
}

impl Backoff {
    /// Returns the delay after this many failures in a row.
    pub(crate) fn after(self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        self.base.saturating_mul(1 << doublings).min(self.max)
    }
}

const BACKOFF: Expected =
    Expected("BASE..MAX, two durations with BASE not longer than MAX, such as 200ms..5m");

/// Parses a backoff: `200ms..5m`, or one duration for a constant delay.
pub(crate) fn backoff(text: &str) -> Result<Backoff, Expected> {
    let (base, max) = text.split_once("..").unwrap_or((text, text));
    let base = duration(base).map_err(|_| BACKOFF)?;
    let max = duration(max).map_err(|_| BACKOFF)?;
    if base <= max { Ok(Backoff { base, max }) } else { Err(BACKOFF) }
}

/// The number of retries that a failing key gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MaxRetries {
    Unlimited,
    AtMost(u32),
}

const RETRIES: Expected = Expected("a whole number, 0 for none, or unlimited");

pub(crate) fn max_retries(text: &str) -> Result<MaxRetries, Expected> {
    match text {
        "unlimited" => Ok(MaxRetries::Unlimited),
        _ => text.parse().map(MaxRetries::AtMost).map_err(|_| RETRIES),
    }
}

/// A set of exit codes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Codes(Vec<RangeInclusive<u8>>);

impl Codes {
    pub(crate) fn contains(&self, code: u8) -> bool {
        self.0.iter().any(|range| range.contains(&code))
    }
}

const CODES: Expected =
    Expected("exit codes or ranges of exit codes from 0 to 255, such as 75 or 1,100-110");

/// Parses a list of codes and ranges: `1,75-78`.
pub(crate) fn codes(text: &str) -> Result<Codes, Expected> {
    let ranges: Result<_, Expected> = text.split(',').map(code_range).collect();
    ranges.map(Codes)
}

fn code_range(text: &str) -> Result<RangeInclusive<u8>, Expected> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.trim().parse::<u8>().map_err(|_| CODES);
    let (first, last) = (number(first)?, number(last)?);
    if first <= last { Ok(first..=last) } else { Err(CODES) }
}

const ADDRESS: Expected =
    Expected("a port, or an address and a port, such as 9090, :9090 or 127.0.0.1:9090");

/// Parses an address to listen on. A port alone means localhost.
pub(crate) fn address(text: &str) -> Result<SocketAddr, Expected> {
    let port = text.strip_prefix(':').unwrap_or(text);
    if let Ok(port) = port.parse() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    let text = text.replacen("localhost", "127.0.0.1", 1);
    text.parse().map_err(|_| ADDRESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_and_can_be_combined() {
        let ms = Duration::from_millis;
        let read = ["200ms", "5s", "5", "0.25", "1m30s", "2h", "1.5s", "10us"];
        let wanted =
            [ms(200), ms(5000), ms(5000), ms(250), ms(90_000), ms(7_200_000), ms(1500)];
        for (text, wanted) in read.iter().zip(wanted) {
            assert_eq!(duration(text), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn invalid_durations_are_rejected() {
        for text in [
            "",
            "s",
            "5x",
            "-1s",
            "1e3",
            "inf",
            "nan",
            "..",
            "5s,",
            "9".repeat(40).as_str(),
        ] {
            assert_eq!(duration(text), Err(DURATION), "{text}");
        }
    }

    #[test]
    fn rates_are_per_second_by_default() {
        assert_eq!(rate("10"), Ok(Rate::PerSecond(10.0)));
        assert_eq!(rate("10/s"), Ok(Rate::PerSecond(10.0)));
        assert_eq!(rate("600/m"), Ok(Rate::PerSecond(10.0)));
        assert_eq!(rate("1/2s"), Ok(Rate::PerSecond(0.5)));
        assert_eq!(rate("unlimited"), Ok(Rate::Unlimited));
        for text in ["", "0", "-1", "inf", "10/", "1/0s", "ten"] {
            assert_eq!(rate(text), Err(RATE), "{text}");
        }
    }

    #[test]
    fn failures_are_counted_or_a_percentage() {
        let is_reached = |text: &str, failed, done| {
            max_failures(text).unwrap().is_reached(failed, done)
        };
        assert!(is_reached("3", 3, 3) && !is_reached("3", 2, 100));
        assert!(is_reached("20%", 2, 10) && !is_reached("20%", 2, 11));
        assert!(!is_reached("20%", 9, 9), "too few keys");
        for text in ["", "0", "-1", "0%", "101%", "x%", "%"] {
            assert_eq!(max_failures(text), Err(FAILURES), "{text}");
        }
    }

    #[test]
    fn backoffs_are_ranges_or_constant() {
        let [base, max] = [Duration::from_millis(200), Duration::from_secs(300)];
        assert_eq!(backoff("200ms..5m"), Ok(Backoff { base, max }));
        assert_eq!(backoff("200ms"), Ok(Backoff { base, max: base }));
        let after = |failures| backoff("200ms..5m").unwrap().after(failures);
        assert_eq!([1, 2, 4].map(after), [base, base * 2, base * 8]);
        assert_eq!(after(u32::MAX), max);
        for text in ["5m..200ms", "..", "1s..", "..1s", "x"] {
            assert_eq!(backoff(text), Err(BACKOFF), "{text}");
        }
    }

    #[test]
    fn exit_codes_are_numbers_and_ranges() {
        let list = codes("1,75-78").unwrap();
        let inside: Vec<u8> = (0..=255).filter(|code| list.contains(*code)).collect();
        assert_eq!(inside, [1, 75, 76, 77, 78]);
        for text in ["", "256", "5-1", "a", "1,", "-1"] {
            assert_eq!(codes(text), Err(CODES), "{text}");
        }
    }

    #[test]
    fn port_alone_means_localhost() {
        let local = SocketAddr::from(([127, 0, 0, 1], 9090));
        for text in ["9090", ":9090", "127.0.0.1:9090", "localhost:9090"] {
            assert_eq!(address(text), Ok(local), "{text}");
        }
        for text in ["", "99999", "host", "1.2.3.4"] {
            assert_eq!(address(text), Err(ADDRESS), "{text}");
        }
    }
}
