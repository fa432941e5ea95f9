//! The keys and delays that all systems use.

use std::time::Duration;

pub const MILLION: usize = 1_000_000;

pub fn numbers(count: usize) -> Vec<u64> {
    (0..count as u64).collect()
}

/// Returns strings of 33 bytes that look like the namespace and name of a pod.
pub fn names(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("namespace-{:02}/pod-name-{i:011}", i % 100)).collect()
}

/// Returns `count` pseudo-random durations from `low` to `low + width`, always the same.
pub fn random_delays(count: usize, low: Duration, width: Duration) -> Vec<Duration> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        low + Duration::from_nanos(state % width.as_nanos() as u64)
    };
    (0..count).map(|_| next()).collect()
}
