//! The running command of each worker, for other threads to show or signal.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use requeue::{Clock, SystemClock};

use crate::command::Group;
use crate::input::Key;
use crate::report::RunningKey;

/// One slot per worker.
#[derive(Debug)]
pub(crate) struct Slots(Vec<Mutex<Option<RunningCommand>>>);

/// The command of a worker. It stays in its slot until just before its process is reaped, so
/// its process group cannot be reused meanwhile.
#[derive(Debug)]
pub(crate) struct RunningCommand {
    pub(crate) key: Key,
    pub(crate) attempt: u32,
    pub(crate) since: Instant,
    pub(crate) group: Group,
    /// The lease on the key is lost, and the command was terminated.
    pub(crate) lost: bool,
}

impl Slots {
    pub(crate) fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| Mutex::default()).collect())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    fn lock(&self, slot: usize) -> MutexGuard<'_, Option<RunningCommand>> {
        self.0[slot].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, slot: usize, command: RunningCommand) {
        *self.lock(slot) = Some(command);
    }

    /// Clears a slot. Returns whether the lease of its command was lost.
    pub(crate) fn clear(&self, slot: usize) -> bool {
        self.lock(slot).take().is_some_and(|command| command.lost)
    }

    /// Marks a command as lost and signals its group, if it is still running.
    pub(crate) fn lose(&self, slot: usize, group: Group, signal: impl Fn(Group)) {
        let mut slot = self.lock(slot);
        if let Some(command) = slot.as_mut().filter(|command| command.group == group) {
            command.lost = true;
            signal(group);
        }
    }

    /// Signals the groups of all running commands. None of them is reaped meanwhile.
    pub(crate) fn signal_all(&self, signal: impl Fn(Group)) {
        for slot in 0..self.0.len() {
            if let Some(command) = &*self.lock(slot) {
                signal(command.group);
            }
        }
    }

    /// Returns the running keys, longest running first.
    pub(crate) fn running(&self) -> Vec<RunningKey> {
        let now = SystemClock.now();
        let running_key = |slot| {
            self.lock(slot).as_ref().map(|command| RunningKey {
                key: command.key.clone(),
                attempt: command.attempt,
                since: now.saturating_duration_since(command.since),
            })
        };
        let mut running: Vec<_> = (0..self.0.len()).filter_map(running_key).collect();
        running.sort_by_key(|key| std::cmp::Reverse(key.since));
        running
    }
}
