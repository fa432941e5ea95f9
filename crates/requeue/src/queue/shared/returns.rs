//! Leases that end: what the retry policy says, what happens to the key, and what is
//! reported after the lock is released.
//!
//! Ending a lease does not fail: a panic of user code is contained here or in `state.rs`.

use std::time::Duration;

use super::policy::Backoff;
use super::{Advance, Finish, Shared, nanos};
use crate::contain::contain;
use crate::queue::nanos::Nanos;
use crate::queue::state::{State, Taken};

/// A lease that ends.
pub(in crate::queue) struct Return<K> {
    pub(in crate::queue) slot: u32,
    /// The lease's own copy, to be dropped after the lock is released.
    pub(in crate::queue) key: K,
    pub(in crate::queue) priority: i32,
    pub(in crate::queue) finish: Finish,
    /// The delay that [`Shared::consult`] returned, if any.
    pub(in crate::queue) advice: Option<Duration>,
}

/// The end of a lease, without the key.
struct Ending {
    slot: u32,
    priority: i32,
    finish: Finish,
    advice: Option<Duration>,
}

impl<K> Return<K> {
    /// How far time moves forward before the lease ends. If the key becomes ready with that,
    /// all keys that are due go first, as in client-go.
    #[inline]
    pub(in crate::queue) fn advance(&self, state: &State<K>) -> Advance {
        let over = matches!(self.finish, Finish::Done | Finish::Succeed);
        if over && !state.done_needs_time(self.slot) {
            Advance::Not
        } else {
            Advance::Fully
        }
    }
}

impl<K> Taken<K> {
    /// Ends the lease of this key.
    #[inline]
    pub(in crate::queue) fn end(
        self,
        finish: Finish,
        advice: Option<Duration>,
    ) -> Return<K> {
        let Self { slot, key, priority } = self;
        Return { slot, key, priority, finish, advice }
    }
}

/// The rest of the work for an ended lease, done after the lock is released.
#[must_use = "tell the recorder"]
pub(in crate::queue) struct Returned<K> {
    /// Copies of the key that are no longer needed.
    keys: (K, Option<K>),
    /// The delay of a key that is retried.
    pub(in crate::queue) backoff: Option<Backoff>,
}

impl<K> Shared<K> {
    /// Returns whether nothing is left to do for an ended lease: no delay is reported, and
    /// dropping the key runs no code.
    fn is_silent(&self, returned: &Returned<K>) -> bool {
        let told = returned.backoff.is_some() && self.recorder.is_some();
        !told && !std::mem::needs_drop::<K>()
    }

    /// Ends the leases of many keys that are done, in one lock.
    #[inline]
    pub(in crate::queue) fn done_all(&self, taken: Vec<Taken<K>>, succeeded: bool) {
        let slots = taken.iter().map(|taken| taken.slot);
        let mut locked = self.lock_to_end(|_| Advance::Fully);
        let forgotten = locked.state.done_many(slots, succeeded);
        locked.unlock();
        if std::mem::needs_drop::<K>() {
            drop_each(forgotten);
            drop_each(taken);
        }
    }

    /// Ends many leases, in one lock.
    #[inline]
    pub(in crate::queue) fn finish_all(&self, back: impl Iterator<Item = Return<K>>) {
        let mut returned = Vec::new();
        let mut locked = self.lock_to_end(|_| Advance::Fully);
        for back in back {
            let now = locked.now;
            let one = self.give_back(&mut locked.state, back, now);
            if !self.is_silent(&one) {
                returned.push(one);
            }
        }
        locked.unlock();
        for one in returned {
            self.tell_returned(one);
        }
    }

    /// Ends a lease, with the lock held.
    ///
    /// The add comes before the done, as in client-go: a key that is retried at once is
    /// dirty when it is done, and so goes to the tail.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: a tenth of a worker's cycle")]
    pub(in crate::queue) fn give_back(
        &self,
        state: &mut State<K>,
        back: Return<K>,
        now: Option<Nanos>,
    ) -> Returned<K> {
        let Return { slot, key, priority, finish, advice } = back;
        let backoff = if finish == Finish::Done {
            None
        } else {
            self.plan(state, &Ending { slot, priority, finish, advice }, now)
        };
        let forgotten = state.done(slot);
        Returned { keys: (key, forgotten), backoff }
    }

    /// Counts or forgets failures, and adds the key again if its finish says so. Returns the
    /// delay.
    fn plan(
        &self,
        state: &mut State<K>,
        ending: &Ending,
        now: Option<Nanos>,
    ) -> Option<Backoff> {
        let backoff = self.settle_failures(state, ending, now)?;
        self.come_again(state, ending, backoff.delay, now);
        Some(backoff)
    }

    /// Counts or forgets failures. Returns the delay of a key that is added again.
    fn settle_failures(
        &self,
        state: &mut State<K>,
        ending: &Ending,
        now: Option<Nanos>,
    ) -> Option<Backoff> {
        match ending.finish {
            Finish::Done => None,
            Finish::Succeed => {
                state.clear_failures(ending.slot);
                None
            }
            Finish::RetryAfter(delay) => {
                state.clear_failures(ending.slot);
                Some(delay.into())
            }
            Finish::Retry => {
                let advice = ending.advice.map(Backoff::from);
                advice.or_else(|| Some(self.charge(state.failures(ending.slot), now)))
            }
        }
    }

    fn come_again(
        &self,
        state: &mut State<K>,
        ending: &Ending,
        delay: Duration,
        now: Option<Nanos>,
    ) {
        if delay.is_zero() && !state.is_closed() {
            state.add_slot(ending.slot, ending.priority);
            return;
        }
        let now = now.unwrap_or_else(|| self.now_under_lock(state));
        state.tell_time(now);
        state.delay_slot(ending.slot, now.saturating_add(nanos(delay)), ending.priority);
    }

    /// Reports an ended lease and drops its keys, after the lock is released.
    #[inline]
    pub(in crate::queue) fn tell_returned(&self, returned: Returned<K>) {
        let Returned { keys, backoff } = returned;
        if let Some(backoff) = backoff {
            self.tell_backoff(backoff);
        }
        if std::mem::needs_drop::<K>() {
            let (lent, forgotten) = keys;
            drop_contained(forgotten);
            drop_contained(lent);
        }
    }
}

/// Drops a key, which is user code.
#[inline]
fn drop_contained<T>(key: T) {
    contain(|| drop(key));
}

/// Drops keys one by one, so that a panic costs no other.
pub(super) fn drop_each<T>(keys: Vec<T>) {
    keys.into_iter().for_each(drop_contained);
}
