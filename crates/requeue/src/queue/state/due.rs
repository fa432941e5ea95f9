//! Keys whose delay is over, on their way to being added.

use super::State;
use crate::queue::timing::Nanos;

/// Keys whose delay is over.
pub(super) struct Due<'a, K> {
    pub(super) state: &'a mut State<K>,
    pub(super) now: Nanos,
}

impl<K> Due<'_, K> {
    pub(super) fn add_all(self) {
        let State { delays, due, .. } = &mut *self.state;
        delays.due(self.now, |slot| due.push_back(slot));
        while let Some(slot) = self.state.due.front().copied() {
            self.state.add_slot(slot, i32::MIN);
            self.state.due.pop_front();
        }
    }
}

/// Should the user's order panic, the keys that were not added are delayed again, to be
/// added by the next call.
impl<K> Drop for Due<'_, K> {
    fn drop(&mut self) {
        let State { delays, due, .. } = &mut *self.state;
        for slot in due.drain(..) {
            delays.replace(slot, self.now);
        }
    }
}
