//! Runs the conformance suite on the in-memory store.

use requeue_store::{EngineClock, MemoryStore};

async fn make(clock: EngineClock) -> MemoryStore {
    MemoryStore::with_clock(clock)
}

requeue_store::conformance_tests!(make);
