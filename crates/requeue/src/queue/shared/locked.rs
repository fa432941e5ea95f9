//! Taking and releasing the queue's lock.
//!
//! A call that takes the lock first adds the keys whose delay has ended. It reads the clock
//! only if a key is delayed or the queue has metrics. Before it releases the lock, it restores
//! the invariants of `park`. Afterwards it wakes getters and calls the recorder.

use std::ops::{Deref, DerefMut};

use super::{Core, Shared};
use crate::contain::contain;
use crate::queue::delay::Progress;
use crate::queue::finish::drop_each;
use crate::queue::meter::Meter;
use crate::queue::nanos::Nanos;
use crate::queue::state::{Deferred, State};
use crate::sync::{MutexGuard, lock};

/// Exclusive access to the queue, until [`unlock`](Self::unlock).
pub(in crate::queue) struct Locked<'a, K> {
    core: MutexGuard<'a, Core<K>>,
    /// Declared after the guard, so dropped after it.
    unwinding: Unwinding<'a, K>,
    /// The time of this call, if the clock was read.
    pub(in crate::queue) now: Option<Nanos>,
}

/// Does the work of [`Locked::unlock`] if a panic skipped it. Calls that do not panic pay
/// nothing for it.
struct Unwinding<'a, K> {
    shared: &'a Shared<K>,
    armed: bool,
}

impl<'a, K> Unwinding<'a, K> {
    #[inline]
    fn new(shared: &'a Shared<K>) -> Self {
        Self { shared, armed: true }
    }
}

/// Which due keys become ready before a call acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::queue) enum CatchUp {
    /// All of them: the call depends on their order.
    Fully,
    /// A chunk at a time, until a key can be delivered.
    ToNextKey,
    /// None: the call does not depend on time.
    Not,
}

impl CatchUp {
    /// Returns at least `ToNextKey`, for a call that also takes a key.
    #[inline]
    pub(in crate::queue) fn or_to_next_key(self) -> Self {
        match self {
            Self::Not | Self::ToNextKey => Self::ToNextKey,
            Self::Fully => Self::Fully,
        }
    }
}

/// What happens if the clock panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClockPanic {
    /// The call panics and changes nothing.
    Propagates,
    /// The call must not fail: it uses the latest time that the queue has seen.
    IsContained,
}

impl<K> Shared<K> {
    /// Locks the queue and adds all keys whose delay has ended.
    #[inline(always)]
    pub(in crate::queue) fn lock(&self) -> Locked<'_, K> {
        self.lock_and_catch_up(None, |_| CatchUp::Fully, ClockPanic::Propagates)
    }

    /// As [`lock`](Self::lock), for a caller that has read the clock already.
    #[inline(always)]
    pub(in crate::queue) fn lock_at(&self, now: Nanos) -> Locked<'_, K> {
        let mut locked =
            self.lock_and_catch_up(Some(now), |_| CatchUp::Fully, ClockPanic::Propagates);
        locked.state.observe_time(now);
        locked
    }

    /// As [`lock`](Self::lock), but adds only as many of those keys as a getter needs.
    #[inline(always)]
    pub(in crate::queue) fn lock_to_take(&self) -> Locked<'_, K> {
        self.lock_and_catch_up(None, |_| CatchUp::ToNextKey, ClockPanic::Propagates)
    }

    /// Locks the queue for a call that must not fail, such as the end of a lease, and ends
    /// delays as far as `catch_up` says.
    #[inline(always)]
    pub(in crate::queue) fn lock_to_end(
        &self,
        catch_up: impl FnOnce(&State<K>) -> CatchUp,
    ) -> Locked<'_, K> {
        self.lock_and_catch_up(None, catch_up, ClockPanic::IsContained)
    }

    /// Locks the queue for a call that does not depend on time.
    pub(in crate::queue) fn lock_timeless(&self) -> Locked<'_, K> {
        Locked { core: lock(&self.core), unwinding: Unwinding::new(self), now: None }
    }

    #[inline(always)]
    fn lock_and_catch_up(
        &self,
        known: Option<Nanos>,
        catch_up: impl FnOnce(&State<K>) -> CatchUp,
        clock_panic: ClockPanic,
    ) -> Locked<'_, K> {
        let (mut core, mut now) = (lock(&self.core), known);
        if core.state.needs_time() {
            self.start_timing(&mut core.state, &mut now);
            if known.map_or(core.state.ends_delays(), |now| core.state.is_due(now)) {
                let catch_up = catch_up(&core.state);
                (core, now) = self.catch_up(core, now, catch_up, clock_panic);
            }
        }
        Locked { core, unwinding: Unwinding::new(self), now }
    }

    /// Adds keys whose delay has ended. Many keys are added in several lock scopes, a chunk in
    /// each, so that other callers get their turn.
    #[inline(never)]
    fn catch_up<'a>(
        &'a self,
        core: MutexGuard<'a, Core<K>>,
        mut now: Option<Nanos>,
        catch_up: CatchUp,
        clock_panic: ClockPanic,
    ) -> (MutexGuard<'a, Core<K>>, Option<Nanos>) {
        let mut unwinding = Unwinding::new(self);
        // Declared after the other guard, so dropped before it.
        let mut core = core;
        if catch_up != CatchUp::Not {
            let time = now.unwrap_or_else(|| match clock_panic {
                ClockPanic::Propagates => self.now(),
                ClockPanic::IsContained => self.now_under_lock(&mut core.state),
            });
            now = Some(time);
            while end_delays(&mut core.state, time, catch_up) == Progress::More {
                self.unlock(core);
                core = lock(&self.core);
                self.start_timing(&mut core.state, &mut now);
            }
        }
        unwinding.armed = false;
        (core, now)
    }

    /// Reads the time of a lock scope, if the queue has metrics. All events of the scope are
    /// timed by this one reading.
    #[inline]
    fn start_timing(&self, state: &mut State<K>, now: &mut Option<Nanos>) {
        if let Some(meter) = &self.meter {
            self.time_scope(meter, state, now);
        }
    }

    fn time_scope(&self, meter: &Meter, state: &mut State<K>, now: &mut Option<Nanos>) {
        let time = meter.now().or_else(|| {
            *now = now.or_else(|| contain(|| self.now()));
            now.inspect(|now| state.observe_time(*now))
        });
        if let Some(time) = time {
            state.start_timing(time);
        }
    }

    /// Reads the clock for a call that must not fail. If the clock panics, returns the latest
    /// time seen.
    pub(in crate::queue) fn now_under_lock(&self, state: &mut State<K>) -> Nanos {
        if self.clock.is_system() {
            return self.now();
        }
        contain(|| self.now()).unwrap_or_else(|| {
            state.note_panic();
            state.latest()
        })
    }
}

/// Adds a chunk of the keys whose delay has ended. A chunk may add no key although more are
/// due: moving entries of the wheel is part of its work.
fn end_delays<K>(state: &mut State<K>, now: Nanos, catch_up: CatchUp) -> Progress {
    let progress = state.end_delays(now);
    let enough = catch_up == CatchUp::ToNextKey && state.deliverable() > 0;
    if enough { Progress::Done } else { progress }
}

impl<K> Locked<'_, K> {
    /// Restores the invariants of `park`, unlocks, wakes getters and reports to the recorder,
    /// in this order.
    #[inline(always)]
    pub(in crate::queue) fn unlock(self) {
        let Self { core, mut unwinding, .. } = self;
        unwinding.armed = false;
        unwinding.shared.unlock(core);
    }
}

impl<K> Shared<K> {
    #[inline(always)]
    fn unlock(&self, core: MutexGuard<'_, Core<K>>) {
        if !core.is_quiet() || core.state.has_deferred() {
            self.unlock_and_notify(core);
        }
    }

    #[inline(never)]
    fn unlock_and_notify(&self, mut core: MutexGuard<'_, Core<K>>) {
        let deferred = core.state.take_deferred();
        if core.is_quiet() {
            drop(core);
        } else {
            let wakes = core.settle();
            drop(core);
            wakes.wake();
        }
        if let Some(deferred) = deferred {
            self.run_deferred(deferred);
        }
    }

    fn run_deferred(&self, deferred: Deferred<K>) {
        let Deferred { events, panics, discarded } = deferred;
        self.record(|recorder| {
            for event in events {
                event.record(recorder);
            }
            (0..panics).for_each(|_| recorder.panicked());
        });
        drop_each(discarded);
    }
}

impl<K> Drop for Unwinding<'_, K> {
    #[inline(always)]
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
