//! Numbers as PostgreSQL has them, which are all signed.

use std::time::Duration;

/// A number of this program as a `bigint`.
pub(crate) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A `bigint` as a number of this program: counts and tokens are not negative.
pub(crate) fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or_default()
}

/// An `integer` as a number of this program.
pub(crate) fn count(value: i32) -> u32 {
    u32::try_from(value).unwrap_or_default()
}

/// A length or a place as an `integer`.
pub(crate) fn number(value: usize) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

/// The time that so many microseconds are.
pub(crate) fn duration(micros: i64) -> Duration {
    Duration::from_micros(unsigned(micros))
}
