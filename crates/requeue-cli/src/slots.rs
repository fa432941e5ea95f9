//! Which worker runs what, for those who must see or end it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use requeue::{Clock, SystemClock};

use crate::command::Group;
use crate::input::Key;
use crate::report::RunningKey;

/// One place for each worker.
#[derive(Debug)]
pub(crate) struct Slots(Vec<Mutex<Option<Running>>>);

/// What a worker runs. It stands here for as long as the process is not reaped, so the
/// group is that of this run and of no other.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) key: Key,
    pub(crate) attempt: u32,
    pub(crate) since: Instant,
    pub(crate) group: Group,
    /// The lease of the key was lost, and the run is ended for that.
    pub(crate) lost: bool,
}

impl Slots {
    pub(crate) fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| Mutex::default()).collect())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    fn lock(&self, slot: usize) -> MutexGuard<'_, Option<Running>> {
        self.0[slot].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn occupy(&self, slot: usize, running: Running) {
        *self.lock(slot) = Some(running);
    }

    pub(crate) fn leave(&self, slot: usize) {
        *self.lock(slot) = None;
    }

    /// Whether the lease of what runs there was lost.
    pub(crate) fn is_lost(&self, slot: usize) -> bool {
        self.lock(slot).as_ref().is_some_and(|running| running.lost)
    }

    /// Does something to the group of a run whose lease is lost, if it is still there.
    pub(crate) fn lose(&self, slot: usize, group: Group, act: impl Fn(Group)) {
        let mut place = self.lock(slot);
        if let Some(running) = place.as_mut().filter(|running| running.group == group) {
            running.lost = true;
            act(group);
        }
    }

    /// Does something to every group. None of them is reaped meanwhile.
    pub(crate) fn each(&self, act: impl Fn(Group)) {
        for slot in 0..self.0.len() {
            if let Some(running) = &*self.lock(slot) {
                act(running.group);
            }
        }
    }

    /// What runs, longest first.
    pub(crate) fn running(&self) -> Vec<RunningKey> {
        let now = SystemClock.now();
        let look = |slot| {
            self.lock(slot).as_ref().map(|running| RunningKey {
                key: running.key.clone(),
                attempt: running.attempt,
                since: now.saturating_duration_since(running.since),
            })
        };
        let mut running: Vec<_> = (0..self.0.len()).filter_map(look).collect();
        running.sort_by_key(|key| std::cmp::Reverse(key.since));
        running
    }
}
