//! Work that waits until the lock is released: reports to the recorder, and drops of keys.

use super::State;
use crate::queue::nanos::Nanos;
use crate::queue::timing::{Event, Timing, Unfinished};

/// What a lock scope leaves to be done after it.
#[must_use = "run it after the lock is released"]
pub(in crate::queue) struct Deferred<K> {
    pub(in crate::queue) events: Vec<Event>,
    /// Contained panics of user code.
    pub(in crate::queue) panics: u32,
    /// Clones of keys that were not leased after all.
    pub(in crate::queue) discarded: Vec<K>,
}

impl<K> Default for Deferred<K> {
    fn default() -> Self {
        Self { events: Vec::new(), panics: 0, discarded: Vec::new() }
    }
}

impl<K> State<K> {
    /// Sets the time at which the events of this lock scope are recorded.
    #[inline]
    pub(in crate::queue) fn start_timing(&mut self, now: Nanos) {
        if let Some(timing) = &mut self.timing {
            timing.start(now);
        }
    }

    /// Returns how long keys have been leased.
    pub(in crate::queue) fn unfinished(&self) -> Unfinished {
        let timing = self.timing.as_ref();
        timing.map(|timing| timing.unfinished(self.processing)).unwrap_or_default()
    }

    /// Returns whether something is left to be done after the lock is released.
    #[inline]
    pub(in crate::queue) fn has_deferred(&self) -> bool {
        self.has_deferred
    }

    pub(in crate::queue) fn take_deferred(&mut self) -> Option<Deferred<K>> {
        if !std::mem::take(&mut self.has_deferred) {
            return None;
        }
        Some(Deferred {
            events: self
                .timing
                .as_mut()
                .map(|timing| timing.take_events())
                .unwrap_or_default(),
            panics: std::mem::take(&mut self.panics),
            discarded: std::mem::take(&mut self.discarded),
        })
    }

    /// Counts a contained panic of user code.
    pub(in crate::queue) fn note_panic(&mut self) {
        self.panics += 1;
        self.has_deferred = true;
    }

    /// Keeps keys to be dropped after the lock is released.
    pub(super) fn discard(&mut self, keys: impl Iterator<Item = K>) {
        self.discarded.extend(keys);
        self.has_deferred = true;
    }

    /// Records an event, if the queue has metrics.
    #[inline]
    pub(super) fn time(&mut self, event: impl FnOnce(&mut Timing)) {
        if let Some(timing) = &mut self.timing {
            event(timing);
            self.has_deferred |= timing.has_events();
        }
    }
}
