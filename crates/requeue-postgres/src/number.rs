//! Conversions to and from the signed integers of PostgreSQL.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Converts to `bigint`, saturating.
pub(crate) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Converts from `bigint`. Counts and tokens are never negative.
pub(crate) fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or_default()
}

/// Converts a count from `integer`.
pub(crate) fn count(value: i32) -> u32 {
    u32::try_from(value).unwrap_or_default()
}

/// Converts a length or an index to `integer`, saturating.
pub(crate) fn number(value: usize) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

/// Converts microseconds to a duration. A negative number is no time.
pub(crate) fn duration(micros: i64) -> Duration {
    Duration::from_micros(unsigned(micros))
}

/// Returns a random number below `limit`, which is not 0.
pub(crate) fn random(limit: usize) -> usize {
    let random = RandomState::new().hash_one(0_u8);
    usize::try_from(random % limit as u64).unwrap_or_default()
}

/// Converts a position in an SQL array, from 1, to an index.
pub(crate) fn index(position: i32) -> usize {
    usize::try_from(position - 1).unwrap_or_default()
}
