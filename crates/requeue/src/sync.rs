//! The parts of std that a model checker replaces.
//!
//! `Arc` is std's everywhere: no order of events depends on its counters.

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

use std::sync::{PoisonError, TryLockError};

/// Locks `mutex`, also after a panic while it was held: callers change what it guards
/// only by steps that leave it whole.
#[inline(always)]
#[expect(clippy::inline_always, reason = "measured: a tenth of a worker's cycle")]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    let free = if MODEL { None } else { try_lock(mutex) };
    free.unwrap_or_else(|| lock_contended(mutex))
}

/// Whether a model checker runs this. It needs no patience, which would only add ways to
/// the same place.
const MODEL: bool = cfg!(any(requeue_loom, requeue_shuttle));

#[inline(always)]
#[expect(clippy::inline_always, reason = "measured: a tenth of a worker's cycle")]
fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Tries again for as long as a lock is usually held, then lets others run, and only then
/// sleeps. std's mutex goes to sleep much sooner, and from then on every unlock is a
/// system call for as long as threads meet at it.
#[cold]
fn lock_contended<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    for round in 0..ROUNDS {
        pause(round);
        if let Some(guard) = try_lock(mutex) {
            return guard;
        }
    }
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How often a lock is tried again before its thread sleeps. Each round that yields costs
/// a turn of the scheduler where other programs want the processor: not many of them.
const ROUNDS: u32 = if MODEL { 0 } else { 10 };

/// Rounds that spin, each twice as long as the one before: 63 pauses in all, which is a
/// microsecond or two. The other rounds yield.
const SPINS: u32 = 6;

fn pause(round: u32) {
    if round < SPINS {
        (0..1 << round).for_each(|_| std::hint::spin_loop());
    } else {
        thread::yield_now();
    }
}
