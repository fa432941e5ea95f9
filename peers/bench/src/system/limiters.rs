//! governor, ratelimit and leaky-bucket, and the primitives that every limiter needs.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use governor::clock::{Clock, DefaultClock, MonotonicClock};
use governor::{Quota, RateLimiter};
use ratelimit::Ratelimiter;

use super::runtime;
use crate::cli::{Bench, bench};
use crate::keys::MILLION;
use crate::measure::{Load, Sample};
use crate::scenario::{calls, keyed};

pub fn benches() -> Vec<Bench> {
    vec![
        bench("primitive.now", "rust-std", |load| {
            calls(load, 1, || {
                black_box(Instant::now());
            })
        }),
        bench("primitive.lock", "rust-std", |load| {
            let lock = Mutex::new(());
            calls(load, 1, || drop(lock.lock()))
        }),
        bench("limit.allow.1t", "governor", |load| {
            governor(load, 1, granting(), DefaultClock::default())
        }),
        bench("limit.allow.1t", "governor-std", |load| {
            governor(load, 1, granting(), MonotonicClock)
        }),
        bench("limit.allow.2t", "governor", |load| {
            governor(load, 2, granting(), DefaultClock::default())
        }),
        bench("limit.allow.2t", "governor-std", |load| {
            governor(load, 2, granting(), MonotonicClock)
        }),
        bench("limit.deny.1t", "governor", |load| {
            governor(load, 1, refusing(), DefaultClock::default())
        }),
        bench("limit.deny.1t", "governor-std", |load| {
            governor(load, 1, refusing(), MonotonicClock)
        }),
        bench("limit.deny.2t", "governor", |load| {
            governor(load, 2, refusing(), DefaultClock::default())
        }),
        bench("limit.deny.2t", "governor-std", |load| {
            governor(load, 2, refusing(), MonotonicClock)
        }),
        bench("keyed.1k", "governor", |load| governor_keyed(load, 1000)),
        bench("keyed.1M", "governor", |load| governor_keyed(load, MILLION as u64)),
        bench("limit.allow.1t", "ratelimit", |load| ratelimit(load, 1, u64::MAX / 4)),
        bench("limit.allow.2t", "ratelimit", |load| ratelimit(load, 2, u64::MAX / 4)),
        bench("limit.deny.1t", "ratelimit", |load| ratelimit(load, 1, 0)),
        bench("limit.deny.2t", "ratelimit", |load| ratelimit(load, 2, 0)),
        bench("limit.allow.1t", "leaky-bucket", |load| leaky(load, 1, usize::MAX / 4)),
        bench("limit.allow.2t", "leaky-bucket", |load| leaky(load, 2, usize::MAX / 4)),
        bench("limit.deny.1t", "leaky-bucket", |load| leaky(load, 1, 0)),
        bench("limit.deny.2t", "leaky-bucket", |load| leaky(load, 2, 0)),
    ]
}

/// Returns a quota that always grants: a billion per second.
fn granting() -> Quota {
    let billion = NonZeroU32::new(1_000_000_000).expect("not zero");
    Quota::per_second(billion).allow_burst(NonZeroU32::MAX)
}

/// Returns a quota of one permit per hour, which `governor` uses up first.
fn refusing() -> Quota {
    Quota::with_period(Duration::from_secs(3600)).expect("not zero")
}

/// Returns a quota that always grants and refills slowly.
fn slow_granting() -> Quota {
    Quota::per_second(NonZeroU32::MIN).allow_burst(NonZeroU32::MAX)
}

/// Measures governor with its default clock, the processor's counter, or with the system's
/// clock, which requeue uses too.
fn governor(
    load: Load,
    threads: usize,
    quota: Quota,
    clock: impl Clock + Sync,
) -> Sample {
    let limiter = RateLimiter::direct_with_clock(quota, clock);
    let _ = limiter.check();
    calls(load, threads, || {
        let _ = black_box(limiter.check());
    })
}

fn governor_keyed(load: Load, keys: u64) -> Sample {
    let limiter = RateLimiter::keyed(slow_granting());
    keyed(load, keys, |key| {
        let _ = black_box(limiter.check_key(&key));
    })
}

fn ratelimit(load: Load, threads: usize, tokens: u64) -> Sample {
    let hour = Duration::from_secs(3600);
    let builder = Ratelimiter::builder(1).period(hour).max_tokens(tokens.max(1));
    let limiter = builder.initial_available(tokens).build().expect("valid");
    calls(load, threads, || {
        let _ = black_box(limiter.try_wait());
    })
}

fn leaky(load: Load, threads: usize, tokens: usize) -> Sample {
    let runtime = runtime();
    let _context = runtime.enter();
    let limiter = leaky_bucket::RateLimiter::builder()
        .initial(tokens)
        .max(tokens.max(1))
        .interval(Duration::from_secs(3600))
        .build();
    calls(load, threads, || {
        black_box(limiter.try_acquire(1));
    })
}
