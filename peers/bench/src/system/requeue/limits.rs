//! Limiters and pacers.

use std::hint::black_box;
use std::time::Duration;

use requeue::rate::{Keyed, Limit, Limiter, Pacer};

use super::LEASE;
use crate::cli::{Bench, bench};
use crate::keys::MILLION;
use crate::measure::{Load, Sample};
use crate::scenario::{calls, keyed};

pub(super) fn benches() -> Vec<Bench> {
    vec![
        bench("limit.allow.1t", LEASE, |load| allow(load, 1, &granting())),
        bench("limit.allow.2t", LEASE, |load| allow(load, 2, &granting())),
        bench("limit.deny.1t", LEASE, |load| allow(load, 1, &refusing())),
        bench("limit.deny.2t", LEASE, |load| allow(load, 2, &refusing())),
        bench("limit.reserve.1t", LEASE, |load| reserve(load, 1)),
        bench("limit.reserve.2t", LEASE, |load| reserve(load, 2)),
        bench("pacer.take.1t", LEASE, |load| take(load, 1)),
        bench("pacer.take.2t", LEASE, |load| take(load, 2)),
        bench("keyed.1k", LEASE, |load| allow_keyed(load, 1000)),
        bench("keyed.1M", LEASE, |load| allow_keyed(load, MILLION as u64)),
    ]
}

/// Returns a limiter that always grants.
fn granting() -> Limiter {
    Limiter::new(Limit::per_second(1e9), i32::MAX as u32)
}

/// Returns a limiter without tokens.
fn refusing() -> Limiter {
    let limiter = Limiter::new(Limit::every(Duration::from_secs(3600)), 1);
    limiter.allow();
    limiter
}

fn allow(load: Load, threads: usize, limiter: &Limiter) -> Sample {
    calls(load, threads, || {
        black_box(limiter.allow());
    })
}

fn reserve(load: Load, threads: usize) -> Sample {
    let limiter = granting();
    calls(load, threads, || drop(black_box(limiter.reserve())))
}

fn take(load: Load, threads: usize) -> Sample {
    let pacer = Pacer::new(1_000_000_000);
    calls(load, threads, || {
        black_box(pacer.take_blocking());
    })
}

fn allow_keyed(load: Load, keys: u64) -> Sample {
    // Deep buckets that fill slowly, because full buckets are forgotten.
    let limiter = Keyed::new(Limit::per_second(1.0), i32::MAX as u32);
    keyed(load, keys, |key| {
        black_box(limiter.allow(&key));
    })
}
