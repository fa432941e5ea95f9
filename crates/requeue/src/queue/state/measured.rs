//! Events for the metrics. Nothing happens here if the queue is not measured.

use super::State;
use crate::queue::nanos::Nanos;
use crate::queue::timing::{News, Timing};

impl<K> State<K> {
    /// Takes note of the time of a call, if it was read.
    #[inline]
    pub(in crate::queue) fn tell_time(&mut self, now: Nanos) {
        self.latest = self.latest.max(now);
        self.note(|timing| {
            timing.tell_time(now);
            true
        });
    }

    /// Returns how long keys have been leased: the sum, and the longest.
    pub(in crate::queue) fn running(&mut self, now: Nanos) -> (Nanos, Nanos) {
        let Some(timing) = &mut self.timing else { return (0, 0) };
        timing.running(self.processing, now)
    }

    /// Whether there may be something to report when the lock is released.
    #[inline]
    pub(in crate::queue) fn has_news(&self) -> bool {
        self.has_news
    }

    /// Takes what is to be reported after the lock is released, if the queue is measured.
    /// `clock` is read if the time is not known and an event is timed.
    pub(in crate::queue) fn take_news(
        &mut self,
        clock: impl FnOnce() -> Nanos,
    ) -> Option<News> {
        self.has_news = false;
        Some(self.timing.as_mut()?.take_news(clock))
    }

    /// Keeps keys to be dropped after the lock is released.
    pub(super) fn discard(&mut self, keys: impl Iterator<Item = K>) {
        self.discarded.extend(keys);
        self.has_news = true;
    }

    /// Takes the keys to be dropped after the lock is released.
    pub(in crate::queue) fn take_discarded(&mut self) -> Vec<K> {
        std::mem::take(&mut self.discarded)
    }

    /// Takes the number of contained panics that have not been reported.
    pub(in crate::queue) fn take_panics(&mut self) -> u32 {
        std::mem::take(&mut self.panics)
    }

    /// Turns all events that were counted and not reported into news.
    pub(in crate::queue) fn flush(&mut self) {
        self.note(|timing| {
            timing.flush();
            true
        });
    }

    #[inline]
    pub(super) fn note_add(&mut self, slot: u32) {
        self.note(|timing| timing.add(slot));
    }

    /// A getter found no key.
    #[cold]
    pub(super) fn note_pause(&mut self) {
        if let Some(timing) = &mut self.timing {
            timing.pause();
        }
    }

    /// Passes an event to `timing`, which returns whether there is something to report.
    #[inline]
    pub(super) fn note(&mut self, something: impl FnOnce(&mut Timing) -> bool) {
        if let Some(timing) = &mut self.timing {
            if something(timing) {
                self.has_news = true;
            }
        }
    }
}
