//! What those who measure learn of the keys; nothing happens here if nobody does.

use super::State;
use crate::queue::timing::{Nanos, News, Timing};

impl<K> State<K> {
    /// Says what time it is, if that is known anyway: for those who measure.
    #[inline]
    pub(in crate::queue) fn tell_time(&mut self, now: Nanos) {
        self.note(|timing| {
            timing.tell_time(now);
            true
        });
    }

    /// How long the keys with a worker have been there: added up, and the longest.
    pub(in crate::queue) fn running(&mut self, now: Nanos) -> (Nanos, Nanos) {
        let Some(timing) = &mut self.timing else { return (0, 0) };
        timing.running(self.processing, now)
    }

    /// Whether there may be news to be taken before the lock is given back.
    #[inline]
    pub(in crate::queue) fn is_stirred(&self) -> bool {
        self.stirred
    }

    /// Takes what is to be told without the lock, if somebody measures. `clock` is asked
    /// if the time is not known and something hangs on it.
    pub(in crate::queue) fn take_news(
        &mut self,
        clock: impl FnOnce() -> Nanos,
    ) -> Option<News> {
        self.stirred = false;
        Some(self.timing.as_mut()?.take_news(clock))
    }

    /// Makes news of all that was counted and not told.
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

    /// Nobody found a key.
    #[cold]
    pub(super) fn note_pause(&mut self) {
        if let Some(timing) = &mut self.timing {
            timing.pause();
        }
    }

    /// Has `timing` hear of something, which says whether that stirs it.
    #[inline]
    pub(super) fn note(&mut self, something: impl FnOnce(&mut Timing) -> bool) {
        if let Some(timing) = &mut self.timing {
            if something(timing) {
                self.stirred = true;
            }
        }
    }
}
