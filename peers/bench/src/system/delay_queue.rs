//! tokio-util's `DelayQueue`: timers without deduplication.

use futures::StreamExt;
use tokio_util::time::DelayQueue;

use super::runtime;
use crate::cli::{Bench, bench};
use crate::keys::{MILLION, numbers};
use crate::measure::{Load, Sample};
use crate::scenario::{self, Delays};

const SYSTEM: &str = "tokio-delay-queue";

pub fn benches() -> Vec<Bench> {
    vec![
        bench("delay.insert.u64", SYSTEM, |_| insert()),
        bench("lateness.1k", SYSTEM, |load| lateness(Delays::few(load))),
        bench("lateness.100k", SYSTEM, |load: Load| lateness(Delays::many(load))),
    ]
}

fn insert() -> Sample {
    runtime().block_on(async {
        let mut queue = DelayQueue::new();
        scenario::insert(&numbers(MILLION), |&key, delay| {
            queue.insert(key, delay);
        })
    })
}

fn lateness(delays: Delays) -> Sample {
    let runtime = runtime();
    let mut queue = DelayQueue::new();
    let due = {
        let _context = runtime.enter();
        delays.insert(|key, delay| {
            queue.insert(key, delay);
        })
    };
    scenario::lateness(&due, || {
        runtime.block_on(queue.next()).expect("a key is left").into_inner()
    })
}
