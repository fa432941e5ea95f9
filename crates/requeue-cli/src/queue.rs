//! The queue of `requeue run`: in memory or in a store.

mod lease_count;
mod memory;
mod outage;
mod store;

pub(crate) use self::memory::MemoryQueue;
pub(crate) use self::store::{
    LossGuard, StoreLease, StoreOptions, StoreQueue, remaining, runtime,
};

use requeue::{Counts, Lease};
use requeue_store::Error;

use crate::input::Key;
use crate::report::chain;

/// The queue of `requeue run`.
#[derive(Debug)]
pub(crate) enum RunQueue {
    Memory(MemoryQueue),
    Store(Box<StoreQueue>),
}

/// A lease on a key of a [`RunQueue`].
#[derive(Debug)]
pub(crate) enum RunLease {
    Memory(Lease<Key>),
    Store(StoreLease),
}

impl RunQueue {
    /// Waits for a key. Returns `None` if the queue is closed.
    pub(crate) fn get(&self) -> Result<Option<RunLease>, Error> {
        match self {
            Self::Memory(queue) => Ok(queue.get().map(RunLease::Memory)),
            Self::Store(queue) => Ok(queue.get()?.map(RunLease::Store)),
        }
    }

    /// Stops delivering keys. Returns the keys that would be lost with this process.
    pub(crate) fn close(&self) -> Vec<Key> {
        match self {
            Self::Memory(queue) => queue.close(),
            Self::Store(queue) => {
                queue.close();
                Vec::new()
            }
        }
    }

    /// Waits until the queue has no keys left or is closed.
    pub(crate) fn wait_idle(&self) -> Result<(), Error> {
        match self {
            Self::Memory(queue) => {
                queue.wait_idle();
                Ok(())
            }
            Self::Store(queue) => queue.wait_idle(),
        }
    }

    /// Returns the number of keys in each state; for a store, as of a moment ago.
    pub(crate) fn counts(&self) -> Counts {
        match self {
            Self::Memory(queue) => queue.counts(),
            Self::Store(queue) => queue.counts(),
        }
    }

    /// Returns the queue if it is in a store.
    pub(crate) fn store(&self) -> Option<&StoreQueue> {
        match self {
            Self::Memory(_) => None,
            Self::Store(queue) => Some(queue),
        }
    }
}

impl RunLease {
    pub(crate) fn key(&self) -> &Key {
        match self {
            Self::Memory(lease) => lease.key(),
            Self::Store(lease) => lease.key(),
        }
    }

    /// Returns the number of failures since the last success.
    pub(crate) fn failures(&self) -> u32 {
        match self {
            Self::Memory(lease) => lease.num_requeues(),
            Self::Store(lease) => lease.failures(),
        }
    }

    /// Returns the lease if the key is in a store.
    pub(crate) fn store(&self) -> Option<&StoreLease> {
        match self {
            Self::Memory(_) => None,
            Self::Store(lease) => Some(lease),
        }
    }
}

/// Formats a store error that ends the run.
pub(crate) fn fatal(error: &Error) -> String {
    format!("store failed: {}", chain(error))
}
