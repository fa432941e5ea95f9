//! Delayed keys and retries.

use std::hash::Hash;
use std::hint::black_box;
use std::time::Duration;

use requeue::Queue;
use requeue::retry::{Exponential, RetryPolicy, controller_default};

use super::{ASYNC, LEASE, finish};
use crate::cli::{Bench, bench};
use crate::keys::{MILLION, names, numbers};
use crate::measure::{Load, Sample};
use crate::scenario::{self, Delays};
use crate::system::runtime;

pub(super) fn benches() -> Vec<Bench> {
    vec![
        bench("delay.insert.u64", LEASE, |_| insert(&numbers(MILLION))),
        bench("delay.insert.str", LEASE, |_| insert(&names(MILLION))),
        bench("lateness.1k", LEASE, |load| lateness(Delays::few(load))),
        bench("lateness.100k", LEASE, |load| lateness(Delays::many(load))),
        bench("lateness.1k", ASYNC, |load| lateness_async(Delays::few(load))),
        bench("lateness.100k", ASYNC, |load| lateness_async(Delays::many(load))),
        bench("retry.first.u64", LEASE, |_| when(&numbers(MILLION), 1)),
        bench("retry.repeat.u64", LEASE, |_| when(&numbers(MILLION), 2)),
        bench("retry.forget.u64", LEASE, |_| forget(&numbers(MILLION))),
        bench("retry.first.str", LEASE, |_| when(&names(MILLION), 1)),
        bench("retry.repeat.str", LEASE, |_| when(&names(MILLION), 2)),
        bench("retry.limited.u64", LEASE, limited),
    ]
}

fn insert<K: Clone + Eq + Hash + Send + 'static>(keys: &[K]) -> Sample {
    let queue = Queue::new();
    scenario::insert(keys, |key, delay| {
        queue.add_after(key.clone(), delay).expect("open");
    })
}

fn lateness(delays: Delays) -> Sample {
    let queue = Queue::new();
    let due = delays.insert(|key, delay| {
        queue.add_after(key, delay).expect("open");
    });
    scenario::lateness(&due, || finish(queue.get_blocking()))
}

fn lateness_async(delays: Delays) -> Sample {
    let queue = Queue::new();
    let runtime = runtime();
    let due = delays.insert(|key, delay| {
        queue.add_after(key, delay).expect("open");
    });
    scenario::lateness(&due, || finish(runtime.block_on(queue.get())))
}

fn exponential<K: Clone + Eq + Hash + Send>() -> Exponential<K> {
    Exponential::new(Duration::from_millis(5), Duration::from_secs(1000))
}

/// Measures failure number `failure` of every key.
fn when<K: Clone + Eq + Hash + Send>(keys: &[K], failure: usize) -> Sample {
    let policy = exponential();
    let pass = || {
        scenario::pass(keys, |key| {
            black_box(policy.when(key));
        })
    };
    for _ in 1..failure {
        pass();
    }
    pass()
}

fn forget(keys: &[u64]) -> Sample {
    let policy = exponential();
    scenario::pass(keys, |key| {
        policy.when(key);
    });
    scenario::pass(keys, |key| policy.forget(key))
}

/// Measures a rate-limited add followed by a forget, with client-go's default policy.
fn limited(load: Load) -> Sample {
    let queue = Queue::builder().retry(controller_default()).build();
    scenario::pass(&numbers(load.ops(MILLION, 200_000)), |key| {
        queue.add_rate_limited(*key).expect("open");
        queue.forget(key);
    })
}
