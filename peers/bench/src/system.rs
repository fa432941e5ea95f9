//! The measured systems.
//!
//! Channels do not deduplicate. They show an upper bound.

mod channels;
mod delay_queue;
mod kube;
mod limiters;
mod requeue;

use crate::cli::Bench;

/// Returns all benchmarks except those of memory, which need a counting allocator.
pub fn all() -> Vec<Bench> {
    let mut benches = Vec::new();
    benches.extend(channels::benches());
    benches.extend(delay_queue::benches());
    benches.extend(kube::benches());
    benches.extend(limiters::benches());
    benches.extend(requeue::benches());
    benches
}

/// Returns a runtime for the systems that need tokio.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime without I/O always starts")
}
