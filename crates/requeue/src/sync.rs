//! The parts of std that a model checker replaces.
//!
//! `Arc` is always std's: no order of events depends on its counters.

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

/// Locks `mutex`, also after a panic while it was held: each step that callers take under the
/// lock leaves the data consistent.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
