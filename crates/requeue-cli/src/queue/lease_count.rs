//! The number of keys leased from a store, for threads that wait for it to change.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Counts the leases that this process holds.
#[derive(Debug, Default)]
pub(crate) struct LeaseCount {
    state: Mutex<CountState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct CountState {
    held: usize,
    closed: bool,
}

impl LeaseCount {
    fn lock(&self) -> MutexGuard<'_, CountState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a lease until the returned guard is dropped.
    pub(crate) fn add(self: &Arc<Self>) -> CountedLease {
        self.change(|state| state.held += 1);
        CountedLease(Arc::clone(self))
    }

    /// Wakes all waiters, because no more leases will be counted.
    pub(crate) fn close(&self) {
        self.change(|state| state.closed = true);
    }

    fn change(&self, change: impl FnOnce(&mut CountState)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Waits until no lease is held or the count is closed. Returns whether it is closed.
    pub(crate) fn wait_none(&self) -> bool {
        let busy = |state: &mut CountState| state.held > 0 && !state.closed;
        let waited = self.changed.wait_while(self.lock(), busy);
        waited.unwrap_or_else(PoisonError::into_inner).closed
    }

    /// Waits until a lease is held, the count is closed, or `timeout` has passed.
    pub(crate) fn wait_some(&self, timeout: Duration) {
        let idle = |state: &mut CountState| state.held == 0 && !state.closed;
        drop(self.changed.wait_timeout_while(self.lock(), timeout, idle));
    }

    /// Waits until anything changes or `timeout` has passed.
    pub(crate) fn wait_change(&self, timeout: Duration) {
        drop(self.changed.wait_timeout(self.lock(), timeout));
    }
}

/// Counts as one lease until it is dropped.
#[derive(Debug)]
pub(crate) struct CountedLease(Arc<LeaseCount>);

impl Drop for CountedLease {
    fn drop(&mut self) {
        self.0.change(|state| state.held -= 1);
    }
}
