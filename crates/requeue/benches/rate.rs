//! The cost of one call of a limiter or a pacer, on one thread.
//!
//! `clock` is the cost of reading the time, which every call includes.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use requeue::rate::{Limit, Limiter, Pacer};
use requeue::{Clock, SystemClock};

/// Never empty and never full.
fn generous() -> Limiter {
    Limiter::new(Limit::per_second(1e6), 2_000_000_000)
}

/// Empty for the next hour.
fn exhausted() -> Limiter {
    Limiter::new(Limit::every(Duration::from_secs(3600)), 1).with_tokens(0)
}

fn limiter(c: &mut Criterion) {
    let mut group = c.benchmark_group("limiter");
    group.bench_function("clock", |b| b.iter(|| SystemClock.now()));

    let limiter = generous();
    group.bench_function("allow", |b| b.iter(|| limiter.allow()));
    group.bench_function("reserve", |b| b.iter(|| black_box(limiter.reserve()).is_ok()));

    let limiter = Limiter::new(Limit::per_second(1e9), 1000);
    group.bench_function("allow, full", |b| b.iter(|| limiter.allow()));

    let limiter = exhausted();
    group.bench_function("denied", |b| b.iter(|| limiter.allow()));
    group.finish();
}

fn pacer(c: &mut Criterion) {
    let mut group = c.benchmark_group("pacer");
    // Fast enough that no take waits.
    let pacer = Pacer::new(1_000_000_000);
    group.bench_function("take", |b| b.iter(|| pacer.take_blocking()));

    let pacer = Pacer::builder(1).per(Duration::from_secs(3600)).build();
    pacer.take_blocking();
    group.bench_function("refused", |b| b.iter(|| pacer.try_take()));
    group.finish();
}

criterion_group!(benches, limiter, pacer);
criterion_main!(benches);
