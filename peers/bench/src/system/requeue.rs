//! requeue, with different worker loops.
//!
//! | system | worker loop |
//! |---|---|
//! | `requeue` | `get_blocking`, then `done` on the lease |
//! | `requeue-next` | `next_blocking` on the previous lease |
//! | `requeue-batch64` | `add_all` and `get_many_blocking`, 64 keys at a time |
//! | `requeue-async` | `next` on a tokio runtime |
//! | `requeue-metrics` | as `requeue`, with Prometheus metrics |
//!
//! Strings are added by reference.

mod delays;
mod limits;
mod loops;
mod queues;

use requeue::Lease;

use crate::cli::Bench;

const LEASE: &str = "requeue";
const NEXT: &str = "requeue-next";
const BATCH64: &str = "requeue-batch64";
const ASYNC: &str = "requeue-async";
const METRICS: &str = "requeue-metrics";

pub fn benches() -> Vec<Bench> {
    let mut benches = queues::benches();
    benches.extend(loops::benches());
    benches.extend(delays::benches());
    benches.extend(limits::benches());
    benches
}

/// Finishes a lease and returns its key. A dropped lease would be retried.
fn finish(lease: Option<Lease<u64>>) -> u64 {
    let lease = lease.expect("the queue is open");
    let key = *lease;
    lease.done();
    key
}
