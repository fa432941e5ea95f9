//! The one way to lock.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks. What a panic leaves behind a lock of this crate is sound: no code of users runs
/// inside, and each change is whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
