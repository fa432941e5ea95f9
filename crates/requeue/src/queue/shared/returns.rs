//! Keys that leases bring back: what their policy says, what becomes of them, and what is
//! to be told once the lock is free.

use std::time::Duration;

use super::policy::Backoff;
use super::{Finish, Shared, nanos};
use crate::queue::slots::Loan;
use crate::queue::state::{Finished, State, Taken};
use crate::queue::timing::Nanos;

/// A key that a lease brings back.
pub(in crate::queue) struct Return<K> {
    pub(in crate::queue) slot: u32,
    pub(in crate::queue) loan: Loan<K>,
    pub(in crate::queue) priority: i32,
    pub(in crate::queue) finish: Finish,
    /// What a policy that is not by count said, if it did; see [`Shared::consult`].
    pub(in crate::queue) advice: Option<Duration>,
}

/// How the lease of a key ends, without the key.
struct Ending {
    slot: u32,
    priority: i32,
    finish: Finish,
    advice: Option<Duration>,
}

impl<K> Taken<K> {
    /// Ends the lease of this key.
    #[inline]
    pub(in crate::queue) fn end(
        self,
        finish: Finish,
        advice: Option<Duration>,
    ) -> Return<K> {
        let Self { slot, loan, priority } = self;
        Return { slot, loan, priority, finish, advice }
    }
}

/// What is to be said once the lock is free.
#[must_use = "tell the recorder"]
pub(in crate::queue) struct Returned<K> {
    finished: Finished<K>,
    /// How long a key that comes again waits.
    pub(in crate::queue) backoff: Option<Backoff>,
}

impl<K> Shared<K> {
    /// Whether nothing is to be done for a key that was taken back, once the lock is free:
    /// nobody hears of a delay, and dropping the key runs no code.
    fn is_silent(&self, returned: &Returned<K>) -> bool {
        let told = returned.backoff.is_some() && self.recorder.is_some();
        !told && !std::mem::needs_drop::<K>()
    }

    /// Takes many keys back that are done, in one lock.
    #[inline]
    pub(in crate::queue) fn done_all(&self, taken: Vec<Taken<K>>, succeeded: bool) {
        let forgotten = self.with(|state| state.done_many(taken, succeeded));
        drop(forgotten);
    }

    /// Takes many keys back, in one lock.
    #[inline]
    pub(in crate::queue) fn finish_all(&self, back: impl Iterator<Item = Return<K>>) {
        let (mut core, now) = self.lock();
        let mut returned = Vec::new();
        for back in back {
            let one = self.give_back(&mut core.state, back, now);
            if !self.is_silent(&one) {
                returned.push(one);
            }
        }
        self.unlock(core);
        for one in returned {
            self.tell_returned(one);
        }
    }

    /// Takes a key back, with the lock held.
    ///
    /// The add comes before the done, as in client-go: a key that is to come again at
    /// once is dirty when it is done, and so goes to the tail.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: a tenth of a worker's cycle")]
    pub(in crate::queue) fn give_back(
        &self,
        state: &mut State<K>,
        back: Return<K>,
        now: Option<Nanos>,
    ) -> Returned<K> {
        let Return { slot, loan, priority, finish, advice } = back;
        let backoff = if finish == Finish::Done {
            None
        } else {
            self.plan(state, &Ending { slot, priority, finish, advice }, now)
        };
        let finished = state.done(slot, loan);
        Returned { finished, backoff }
    }

    /// Counts or forgets failures, and has the key come again if it shall: after which
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

    /// Counts or forgets failures, and says after which delay the key comes again.
    fn settle_failures(
        &self,
        state: &mut State<K>,
        ending: &Ending,
        now: Option<Nanos>,
    ) -> Option<Backoff> {
        match ending.finish {
            Finish::Done => None,
            Finish::Succeed => {
                state.pardon(ending.slot);
                None
            }
            Finish::RetryAfter(delay) => {
                state.pardon(ending.slot);
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
        let now = now.unwrap_or_else(|| self.now());
        state.tell_time(now);
        state.delay_slot(ending.slot, now.saturating_add(nanos(delay)), ending.priority);
    }

    /// Says what became of a key that was taken back, and drops it: without the lock.
    #[inline]
    pub(in crate::queue) fn tell_returned(&self, returned: Returned<K>) {
        let Returned { finished, backoff } = returned;
        if let Some(backoff) = backoff {
            self.tell_backoff(backoff);
        }
        drop(finished);
    }
}
