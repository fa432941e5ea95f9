//! What threads wait on: how many keys of a store are held here, and whether more will be.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The keys that are held here.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    state: Mutex<DeskState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct DeskState {
    held: usize,
    closed: bool,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, DeskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that no more keys will be held.
    pub(crate) fn close(&self) {
        self.change(|state| state.closed = true);
    }

    fn change(&self, change: impl FnOnce(&mut DeskState)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Waits until nothing is held here, or it is closed: whether it is.
    pub(crate) fn wait_free(&self) -> bool {
        let busy = |state: &mut DeskState| state.held > 0 && !state.closed;
        let waited = self.changed.wait_while(self.lock(), busy);
        waited.unwrap_or_else(PoisonError::into_inner).closed
    }

    /// Waits for `time`, or until anything changes here.
    pub(crate) fn wait_news(&self, time: Duration) {
        drop(self.changed.wait_timeout(self.lock(), time));
    }

    /// Waits for `time`, or until something is held here or it is closed.
    pub(crate) fn wait_busy(&self, time: Duration) {
        let free = |state: &mut DeskState| state.held == 0 && !state.closed;
        drop(self.changed.wait_timeout_while(self.lock(), time, free));
    }
}

/// That a key is held here.
#[derive(Debug)]
pub(crate) struct Stay(Arc<Desk>);

impl Stay {
    pub(crate) fn at(desk: &Arc<Desk>) -> Self {
        desk.change(|state| state.held += 1);
        Self(Arc::clone(desk))
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.0.change(|state| state.held -= 1);
    }
}
