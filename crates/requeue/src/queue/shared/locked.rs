//! The queue's lock, held.

use std::ops::{Deref, DerefMut};

use super::{Core, Shared};
use crate::contain::contain;
use crate::queue::finish::drop_each;
use crate::queue::nanos::Nanos;
use crate::sync::{MutexGuard, lock};

/// Exclusive access to the queue, until [`unlock`](Self::unlock).
pub(in crate::queue) struct Locked<'a, K> {
    core: MutexGuard<'a, Core<K>>,
    /// Declared after the guard, so dropped after it.
    unwinding: Unwinding<'a, K>,
    /// The time of this call, if the clock was read.
    pub(in crate::queue) now: Option<Nanos>,
}

/// Makes up for [`Locked::unlock`] if a panic has skipped it. Nothing of it is left in the
/// code of calls that do not panic.
struct Unwinding<'a, K> {
    shared: &'a Shared<K>,
    armed: bool,
}

impl<'a, K> Locked<'a, K> {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: a tenth of a worker's cycle")]
    pub(super) fn new(shared: &'a Shared<K>) -> Self {
        let unwinding = Unwinding { shared, armed: true };
        Self { core: lock(&shared.core), unwinding, now: None }
    }

    /// Restores the invariants of `park`, unlocks, wakes getters and reports to the recorder,
    /// in this order.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: a tenth of a worker's cycle")]
    pub(in crate::queue) fn unlock(self) {
        let Self { core, mut unwinding, .. } = self;
        unwinding.armed = false;
        if !core.is_quiet() || core.state.has_news() {
            unwinding.shared.unlock_and_notify(core);
        }
    }
}

impl<K> Shared<K> {
    #[inline(never)]
    fn unlock_and_notify(&self, mut core: MutexGuard<'_, Core<K>>) {
        let latest = core.state.latest();
        let news = core.state.take_news(|| self.now_or(latest));
        let (panics, discarded) = (core.state.take_panics(), core.state.take_discarded());
        if core.is_quiet() {
            drop(core);
        } else {
            let wakes = core.settle();
            drop(core);
            wakes.wake();
        }
        self.tell(news.as_ref(), panics);
        drop_each(discarded);
    }

    /// Reads the clock; if it panics, `latest` counts.
    fn now_or(&self, latest: Nanos) -> Nanos {
        if self.clock.is_system() {
            return self.now();
        }
        contain(|| self.now()).unwrap_or(latest)
    }
}

impl<K> Drop for Unwinding<'_, K> {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: a tenth of a worker's cycle")]
    fn drop(&mut self) {
        if self.armed {
            self.shared.unlock_and_notify(lock(&self.shared.core));
        }
    }
}

impl<K> Deref for Locked<'_, K> {
    type Target = Core<K>;

    #[inline]
    fn deref(&self) -> &Core<K> {
        &self.core
    }
}

impl<K> DerefMut for Locked<'_, K> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Core<K> {
        &mut self.core
    }
}
