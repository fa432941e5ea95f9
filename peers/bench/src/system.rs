//! Which things are measured: one file for each kind, one row for each scenario.
//!
//! Channels do not deduplicate: they are upper bounds, not peers.

mod channels;
mod delay_queue;
mod kube;
mod limiters;
mod requeue;

use crate::cli::Bench;

/// Everything but memory, which needs an allocator that counts.
pub fn all() -> Vec<Bench> {
    let mut benches = Vec::new();
    benches.extend(channels::benches());
    benches.extend(delay_queue::benches());
    benches.extend(kube::benches());
    benches.extend(limiters::benches());
    benches.extend(requeue::benches());
    benches
}

/// A runtime for the systems that need tokio's.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime without I/O starts anywhere")
}
