//! The parts of std that a model checker replaces.
//!
//! `Arc` stays std's everywhere: no order of events hangs on its counters.

#[cfg(requeue_loom)]
pub(crate) use loom::{
    sync::{Mutex, MutexGuard},
    thread,
};
#[cfg(requeue_shuttle)]
pub(crate) use shuttle::{
    sync::{Mutex, MutexGuard},
    thread,
};
#[cfg(not(any(requeue_loom, requeue_shuttle)))]
pub(crate) use std::{
    sync::{Mutex, MutexGuard},
    thread,
};

use std::sync::PoisonError;

/// Locks `mutex`, also after a panic while it was held: callers change what it guards
/// only by steps that leave it whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
