//! Read your own writes: a key waits until the caches have seen what its last run wrote.
//!
//! The events of one kind come in the order of their resource versions. So a cache has seen
//! a write once it has seen any event of that kind with the same or a later version.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::feed::Monitor;

/// How long a key waits for an event. It never comes if the watch does not select the object.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(30);

/// The writes that the caches have not seen.
#[derive(Debug)]
pub(super) struct Writes<Q> {
    keys: Mutex<HashMap<Q, Pending>>,
    /// The number of keys, to be read by every event without the lock.
    count: AtomicUsize,
}

#[derive(Debug)]
struct Pending {
    writes: Vec<Write>,
    /// Whether a run of the key was put off.
    deferred: bool,
}

#[derive(Debug)]
struct Write {
    monitor: Arc<Monitor>,
    version: u64,
    deadline: Instant,
}

impl Write {
    fn is_open(&self, now: Instant) -> bool {
        self.monitor.version() < self.version && now < self.deadline
    }
}

impl<Q> Default for Writes<Q> {
    fn default() -> Self {
        Self { keys: Mutex::default(), count: AtomicUsize::new(0) }
    }
}

impl<Q: Clone + Eq + Hash> Writes<Q> {
    fn lock(&self) -> MutexGuard<'_, HashMap<Q, Pending>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a write, unless the cache has seen it.
    pub(super) fn add(
        &self,
        key: &Q,
        monitor: &Arc<Monitor>,
        version: u64,
        now: Instant,
    ) {
        let Some(deadline) = now.checked_add(MAX_WAIT) else { return };
        let write = Write { monitor: Arc::clone(monitor), version, deadline };
        if !write.is_open(now) {
            return;
        }
        let mut keys = self.lock();
        let pending = keys
            .entry(key.clone())
            .or_insert_with(|| Pending { writes: Vec::new(), deferred: false });
        pending.writes.push(write);
        self.count.store(keys.len(), Ordering::Release);
    }

    /// Returns whether a key can run. If not, it is released later.
    ///
    /// Under the same lock as [`released`](Self::released), so that no event is missed in
    /// between.
    pub(super) fn may_run(&self, key: &Q, now: Instant) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return true;
        }
        let mut keys = self.lock();
        let Some(pending) = keys.get_mut(key) else { return true };
        pending.writes.retain(|write| write.is_open(now));
        pending.deferred = !pending.writes.is_empty();
        let may_run = !pending.deferred;
        if may_run {
            keys.remove(key);
            self.count.store(keys.len(), Ordering::Release);
        }
        may_run
    }

    /// Returns the keys whose runs were put off and can now happen.
    ///
    /// Call it after a cache has advanced.
    pub(super) fn released(&self, now: Instant) -> Vec<Q> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut keys = self.lock();
        let mut released = Vec::new();
        keys.retain(|key, pending| {
            pending.writes.retain(|write| write.is_open(now));
            if pending.writes.is_empty() && pending.deferred {
                released.push(key.clone());
            }
            !pending.writes.is_empty()
        });
        self.count.store(keys.len(), Ordering::Release);
        released
    }
}

#[cfg(test)]
mod tests {
    use requeue::testing::FakeClock;

    use super::*;

    #[test]
    fn key_waits_until_the_cache_has_advanced() {
        let (writes, monitor) = (Writes::default(), Monitor::new("Thing"));
        let now = FakeClock::new().now();
        monitor.advance(Some(4));
        writes.add(&"seen", &monitor, 4, now);
        writes.add(&"a", &monitor, 5, now);
        assert!(writes.may_run(&"seen", now) && writes.may_run(&"other", now));
        assert!(!writes.may_run(&"a", now));
        assert!(writes.released(now).is_empty());
        monitor.advance(Some(6));
        assert_eq!(writes.released(now), ["a"]);
        assert!(writes.may_run(&"a", now));
    }

    #[test]
    fn write_that_is_never_seen_expires() {
        let (writes, monitor) = (Writes::default(), Monitor::new("Thing"));
        let now = FakeClock::new().now();
        writes.add(&"a", &monitor, 5, now);
        assert!(!writes.may_run(&"a", now));
        assert!(writes.may_run(&"a", now + MAX_WAIT));
    }

    #[test]
    fn key_that_did_not_run_meanwhile_is_not_released() {
        let (writes, monitor) = (Writes::default(), Monitor::new("Thing"));
        let now = FakeClock::new().now();
        writes.add(&"a", &monitor, 5, now);
        monitor.advance(Some(5));
        assert!(writes.released(now).is_empty());
    }
}
