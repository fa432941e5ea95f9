//! Where workers take keys from: a queue in memory, or one on a store.

use requeue::{Counts, Lease, Queue};
use requeue_store::Error;

use crate::input::Key;
use crate::shared::{SharedKeys, StoredKey};

/// The queue of a run.
#[derive(Debug)]
pub(crate) enum Supply {
    Memory(Queue<Key>),
    Store(Box<SharedKeys>),
}

/// A key that a worker was handed.
#[derive(Debug)]
pub(crate) enum Held {
    Memory(Lease<Key>),
    Store(StoredKey),
}

impl Supply {
    /// Waits for a key; `None` if nothing more is handed out.
    pub(crate) fn take(&self) -> Result<Option<Held>, Error> {
        match self {
            Self::Memory(queue) => Ok(queue.get_blocking().map(Held::Memory)),
            Self::Store(keys) => Ok(keys.take()?.map(Held::Store)),
        }
    }

    /// Hands out nothing more: the keys that are lost with this process.
    pub(crate) fn close(&self) -> Vec<Key> {
        match self {
            Self::Memory(queue) => queue.close_now(),
            Self::Store(keys) => {
                keys.close();
                Vec::new()
            }
        }
    }

    /// Waits until no key is left anywhere, or until it is closed.
    pub(crate) fn wait_idle(&self) -> Result<(), Error> {
        match self {
            Self::Memory(queue) => {
                queue.wait_idle_blocking();
                Ok(())
            }
            Self::Store(keys) => keys.wait_idle(),
        }
    }

    /// How many keys there are, as far as that can be told at once.
    pub(crate) fn counts(&self) -> Counts {
        match self {
            Self::Memory(queue) => queue.counts(),
            Self::Store(keys) => keys.counts(),
        }
    }

    /// The queue on a store, if it is one.
    pub(crate) fn store(&self) -> Option<&SharedKeys> {
        match self {
            Self::Memory(_) => None,
            Self::Store(keys) => Some(keys),
        }
    }
}
