//! kube-runtime's scheduler: a stream that deduplicates and delays.

use std::hash::Hash;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::stream::{self, Stream, StreamExt};
use kube_runtime::scheduler::{ScheduleRequest, scheduler};
use tokio::time::Instant;

use super::runtime;
use crate::cli::{Bench, bench};
use crate::keys::{MILLION, names, numbers};
use crate::measure::{Load, Sample, timed};
use crate::scenario::{self, Delays, Pace, long_delays};

const SYSTEM: &str = "kube-scheduler";

pub fn benches() -> Vec<Bench> {
    vec![
        bench("cycle.u64.1k", SYSTEM, |load| cycle(&numbers(1000), load.ops(500, 50))),
        bench("cycle.str.1k", SYSTEM, |load| cycle(&names(1000), load.ops(500, 50))),
        bench("dup.u64", SYSTEM, |load| duplicates(load.ops(1000, 100))),
        bench("throughput.1p1c", SYSTEM, |load| throughput(load.ops(MILLION, 200_000))),
        bench("latency.single", SYSTEM, |load| latency(load, scenario::single)),
        bench("latency.burst", SYSTEM, |load| latency(load, scenario::burst)),
        bench("delay.insert.u64", SYSTEM, |_| insert()),
        bench("lateness.1k", SYSTEM, |load| lateness(Delays::few(load))),
        bench("lateness.100k", SYSTEM, |load| lateness(Delays::many(load))),
    ]
}

type Requests<K> = UnboundedReceiver<ScheduleRequest<K>>;

fn channel<K>() -> (UnboundedSender<ScheduleRequest<K>>, Requests<K>) {
    unbounded()
}

fn after<K>(message: K, delay: Duration) -> ScheduleRequest<K> {
    ScheduleRequest { message, run_at: Instant::now() + delay }
}

fn send<K>(requests: &UnboundedSender<ScheduleRequest<K>>, key: K) {
    requests.unbounded_send(after(key, Duration::ZERO)).expect("open");
}

fn cycle<K: Clone + Eq + Hash>(keys: &[K], count: usize) -> Sample {
    let (requests, received) = channel();
    let runtime = runtime();
    let _context = runtime.enter();
    let mut stream = scheduler(received);
    scenario::cycle(keys, count, |key: &K| {
        send(&requests, key.clone());
        runtime.block_on(stream.next()).expect("open");
    })
}

/// Polls once: the scheduler accepts all pending requests and then waits.
fn accept_all<S: Stream + Unpin>(stream: &mut S) {
    let polled = stream.poll_next_unpin(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Pending), "nothing is due yet");
}

fn duplicates(times: usize) -> Sample {
    let (requests, received) = channel();
    let runtime = runtime();
    let _context = runtime.enter();
    let mut stream = scheduler(received);
    let keys = numbers(1000);
    let later = Duration::from_secs(3600);
    let mut add = |keys: &[u64]| {
        for &key in keys {
            requests.unbounded_send(after(key, later)).expect("open");
        }
        accept_all(&mut stream);
    };
    scenario::duplicates(&keys, (keys.len(), times), &mut add)
}

fn throughput(count: usize) -> Sample {
    let (requests, received) = channel();
    let received = Mutex::new(Some(received));
    let produce = |keys: &mut dyn Iterator<Item = u64>| {
        keys.for_each(|key| send(&requests, key));
    };
    let consume = || {
        let received = received.lock().unwrap().take().expect("one consumer");
        let runtime = runtime();
        let _context = runtime.enter();
        runtime.block_on(scheduler(received).take(count).count())
    };
    scenario::throughput((1, count), produce, consume)
}

fn latency(load: Load, pace: Pace) -> Sample {
    let (requests, received) = channel();
    let runtime = runtime();
    let mut stream = {
        let _context = runtime.enter();
        scheduler(received)
    };
    let receive = || runtime.block_on(stream.next()).expect("open");
    scenario::latency(load, pace, |key| send(&requests, key), receive)
}

fn insert() -> Sample {
    let runtime = runtime();
    let _context = runtime.enter();
    let delays = long_delays(MILLION).into_iter().zip(0_u64..);
    let requests: Vec<_> = delays.map(|(delay, key)| after(key, delay)).collect();
    let mut stream = scheduler(stream::iter(requests).chain(stream::pending()));
    timed(MILLION, || accept_all(&mut stream))
}

fn lateness(delays: Delays) -> Sample {
    let (requests, received) = channel();
    let runtime = runtime();
    let _context = runtime.enter();
    let mut stream = scheduler(received);
    let due = delays.insert(|key, delay| {
        requests.unbounded_send(after(key, delay)).expect("open");
    });
    scenario::lateness(&due, || runtime.block_on(stream.next()).expect("open"))
}
