//! The lock, and what happens around it: read the clock, call `state`, restore the
//! invariants of `park`, unlock, wake, measure.
//!
//! There is one lock. While it is held, nothing blocks, nobody is woken, no metric is
//! recorded, and of the user's code only the key's `Eq` and `Clone` and the order run.

use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::hashing::Hashing;
use super::offer::{Offer, Owned};
use super::options::{AddOptions, Added};
use super::park::{Park, ParkedId, Spent, Wake, Wakes, Watch};
use super::slots::Loan;
use super::state::{Finished, State, Taken};
use super::timing::{Nanos, News};
use crate::clock::AnyClock;
use crate::metrics::{Gauges, Keeper, Probed, Recorder};
use crate::retry::{ByCount, RetryPolicy};
use crate::sync::{Mutex, MutexGuard, lock};

/// All that the handles, leases and getters of one queue share.
pub(super) struct Shared<K> {
    core: Mutex<Core<K>>,
    pub(super) name: String,
    pub(super) clock: AnyClock,
    /// When the queue was built: times are kept as nanoseconds since then.
    epoch: Instant,
    hashing: Hashing,
    retry: Box<dyn RetryPolicy<K>>,
    /// Whether the policy is by count, so that the slots count failures.
    counted: bool,
    recorder: Option<Box<dyn Recorder>>,
}

/// What the lock guards.
pub(super) struct Core<K> {
    pub(super) state: State<K>,
    pub(super) park: Park,
    pub(super) watch: Watch,
}

/// What a queue is made of, before it is shared.
pub(super) struct Parts<K> {
    pub(super) state: State<K>,
    pub(super) name: String,
    pub(super) clock: AnyClock,
    pub(super) hashing: Hashing,
    pub(super) retry: Box<dyn RetryPolicy<K>>,
    pub(super) recorder: Option<Box<dyn Recorder>>,
}

/// How a worker ends its work on a key; see the methods of [`Lease`](crate::Lease) of
/// the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finish {
    /// The work is over; failures of the key are still remembered.
    Done,
    /// The work is over and went well: failures of the key are forgotten.
    Succeed,
    /// The work failed: the key comes again after a delay that the retry policy chooses.
    Retry,
    /// The key comes again after this delay; its failures are forgotten.
    RetryAfter(Duration),
}

/// A key that a lease brings back.
pub(super) struct Return<K> {
    pub(super) slot: u32,
    pub(super) loan: Loan<K>,
    pub(super) priority: i32,
    pub(super) finish: Finish,
    /// What a policy that is not by count said, see [`Shared::consult`].
    pub(super) advice: Option<Duration>,
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
    pub(super) fn end(self, finish: Finish, advice: Option<Duration>) -> Return<K> {
        let Self { slot, loan, priority } = self;
        Return { slot, loan, priority, finish, advice }
    }
}

/// What is to be said once the lock is free.
#[must_use = "tell the recorder"]
pub(super) struct Returned<K> {
    finished: Finished<K>,
    /// How long a key that retries waits.
    pub(super) delay: Option<Duration>,
}

impl<K> Core<K> {
    /// Whether nobody waits for anything, so that no change concerns anybody.
    #[inline]
    fn is_quiet(&self) -> bool {
        self.park.is_empty() && self.watch.is_empty()
    }

    /// Parks a getter: until when, if it leads.
    pub(super) fn park(
        &mut self,
        id: &mut Option<ParkedId>,
        wake: Wake,
    ) -> (Option<Nanos>, Spent) {
        let (parked, spent) = self.park.park(*id, wake);
        *id = Some(parked);
        (self.park.lead(parked, self.state.next_deadline()), spent)
    }

    /// Restores the invariants of `park` and of `watch` after any change of `state`.
    pub(super) fn settle(&mut self) -> Wakes {
        let mut wakes = self.park.settle(self.state.ready(), self.state.next_deadline());
        if !self.watch.is_empty() && self.state.is_at_rest() {
            self.watch.call_all(&mut wakes);
        }
        wakes
    }
}

impl<K> Shared<K> {
    pub(super) fn new(parts: Parts<K>) -> Self {
        let core =
            Core { state: parts.state, park: Park::default(), watch: Watch::default() };
        Self {
            core: Mutex::new(core),
            name: parts.name,
            epoch: parts.clock.now(),
            clock: parts.clock,
            hashing: parts.hashing,
            counted: parts.retry.by_count().is_some(),
            retry: parts.retry,
            recorder: parts.recorder,
        }
    }

    /// Locks the queue and adds the keys whose delay is over. The time is read only if
    /// something hangs on it.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: a tenth of a worker's cycle")]
    pub(super) fn lock(&self) -> (MutexGuard<'_, Core<K>>, Option<Nanos>) {
        self.lock_if(|_| true)
    }

    /// The same for a change on which, unless `in_order`, no order of keys hangs, so that
    /// keys whose delay is over can wait for the next call.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: a tenth of a worker's cycle")]
    pub(super) fn lock_if(
        &self,
        in_order: impl FnOnce(&State<K>) -> bool,
    ) -> (MutexGuard<'_, Core<K>>, Option<Nanos>) {
        let mut core = lock(&self.core);
        if !core.state.needs_time() || !in_order(&core.state) {
            return (core, None);
        }
        let now = self.advance(&mut core.state);
        (core, Some(now))
    }

    /// Reads the clock and adds the keys whose delay is over.
    #[inline(never)]
    fn advance(&self, state: &mut State<K>) -> Nanos {
        let now = self.now();
        state.advance(now);
        now
    }

    /// Unlocks the queue, then wakes whom the changes concern.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: a tenth of a worker's cycle")]
    pub(super) fn unlock(&self, core: MutexGuard<'_, Core<K>>) {
        if core.is_quiet() && !core.state.is_stirred() {
            return;
        }
        self.unlock_and_tell(core);
    }

    #[inline(never)]
    fn unlock_and_tell(&self, mut core: MutexGuard<'_, Core<K>>) {
        let news = core.state.take_news(|| self.now());
        if core.is_quiet() {
            drop(core);
        } else {
            let wakes = core.settle();
            drop(core);
            wakes.wake();
        }
        self.tell(news.as_ref());
    }

    /// Says what happened to keys: without the lock.
    #[inline]
    fn tell(&self, news: Option<&News>) {
        if let (Some(recorder), Some(news)) = (&self.recorder, news) {
            news.tell(&**recorder);
        }
    }

    /// Runs `change` on the state, and does all that belongs around it.
    #[inline]
    pub(super) fn with<R>(&self, change: impl FnOnce(&mut State<K>) -> R) -> R {
        let (mut core, _) = self.lock();
        let result = change(&mut core.state);
        self.unlock(core);
        result
    }

    /// Runs `change` on the state, if it is one that makes no key ready and hangs on no
    /// time.
    #[inline]
    pub(super) fn peek<R>(&self, change: impl FnOnce(&mut State<K>) -> R) -> R {
        change(&mut lock(&self.core).state)
    }

    /// The same as `with`, for a caller that has read the time already.
    #[inline]
    fn with_at<R>(&self, now: Nanos, change: impl FnOnce(&mut State<K>) -> R) -> R {
        let mut core = lock(&self.core);
        core.state.advance(now);
        let result = change(&mut core.state);
        self.unlock(core);
        result
    }

    #[inline]
    pub(super) fn record(&self, event: impl FnOnce(&dyn Recorder)) {
        if let Some(recorder) = &self.recorder {
            event(&**recorder);
        }
    }

    pub(super) fn now(&self) -> Nanos {
        self.nanos(self.clock.now())
    }

    /// A moment on the queue's own scale; the far future saturates.
    pub(super) fn nanos(&self, moment: Instant) -> Nanos {
        nanos(moment.saturating_duration_since(self.epoch))
    }

    /// The moment that `nanos` stands for; `None` if it is beyond what an `Instant` can
    /// hold, and so never comes.
    pub(super) fn moment(&self, nanos: Nanos) -> Option<Instant> {
        self.epoch.checked_add(Duration::from_nanos(nanos))
    }

    /// 32 bits of the key's hash. Runs the user's `Hash`, so never under the lock.
    #[inline]
    pub(super) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u32 {
        // The table goes by the upper bits: a hasher of the user's may have set the lower
        // ones only. The factor is the golden ratio's, scaled to 64 bits.
        (self.hashing.hash(key).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32
    }

    pub(super) fn close(&self) {
        let (mut core, _) = self.lock();
        core.state.close();
        let mut wakes = core.settle();
        core.park.call_all(&mut wakes);
        core.watch.call_all(&mut wakes);
        let news = core.state.take_news(|| self.now());
        drop(core);
        wakes.wake();
        self.tell(news.as_ref());
    }

    /// Adds a key after `delay`; none at all is an immediate add.
    pub(super) fn add_after(
        &self,
        hash: u32,
        offer: impl Offer<K>,
        delay: Duration,
        priority: i32,
    ) -> Added {
        let now = self.now();
        self.add_at(hash, offer, now.saturating_add(nanos(delay)), priority, now)
    }

    /// Adds a key at a moment; one that has come is an immediate add.
    pub(super) fn add_at(
        &self,
        hash: u32,
        mut offer: impl Offer<K>,
        deadline: Nanos,
        priority: i32,
        now: Nanos,
    ) -> Added {
        let added = self.with_at(now, |state| {
            if deadline <= now {
                state.add(hash, &mut offer, priority)
            } else {
                state.add_at(hash, &mut offer, deadline, priority)
            }
        });
        if added.is_accepted() {
            self.record(|recorder| recorder.delayed());
        }
        added
    }
}

impl<K> Shared<K> {
    /// Replaces what is planned for a key by a delay.
    pub(super) fn postpone(
        &self,
        hash: u32,
        mut offer: impl Offer<K>,
        delay: Duration,
    ) -> Added {
        let now = self.now();
        let deadline = now.saturating_add(nanos(delay));
        let added = self.with_at(now, |state| state.postpone(hash, &mut offer, deadline));
        if added.is_accepted() {
            self.record(|recorder| recorder.delayed());
        }
        added
    }
}

/// Counts a failure, if `policy` counts any, and says how long it makes the key wait.
fn charge(policy: &dyn ByCount, retries: &mut u32) -> Duration {
    let before = *retries;
    if policy.counts() {
        *retries = before.saturating_add(1);
    }
    policy.delay(before)
}

/// A duration in nanoseconds; five centuries and more saturate.
fn nanos(duration: Duration) -> Nanos {
    Nanos::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}

impl<K: Eq + Hash> Shared<K> {
    /// Adds a key as its options say.
    pub(super) fn add_with(&self, key: K, options: AddOptions) -> Added {
        let hash = self.hash(&key);
        let priority = options.priority.unwrap_or(0);
        if !options.rate_limited {
            let Some(delay) = options.after else {
                let mut offer = Owned::new(key);
                return self.with(|state| state.add(hash, &mut offer, priority));
            };
            return self.add_after(hash, Owned::new(key), delay, priority);
        }
        self.add_rate_limited(hash, key, options.after, priority)
    }

    fn add_rate_limited(
        &self,
        hash: u32,
        key: K,
        after: Option<Duration>,
        priority: i32,
    ) -> Added {
        let shorter = |delay: Duration| after.map_or(delay, |after| after.min(delay));
        let Some(policy) = self.retry.by_count() else {
            // A closed queue charges nobody. One that closes between here and the add
            // has charged for a key that it refuses, which no later key can notice.
            if self.peek(|state| state.is_closed()) {
                return Added::Closed;
            }
            let delay = shorter(self.retry.when(&key));
            return self.add_after(hash, Owned::new(key), delay, priority);
        };
        let mut offer = Owned::new(key);
        let now = self.now();
        let when = |retries: &mut u32| {
            now.saturating_add(nanos(shorter(charge(policy, retries))))
        };
        let added = self.with_at(now, |state| {
            state.add_failed(hash, &mut offer, when, now, priority)
        });
        if added.is_accepted() {
            self.record(|recorder| recorder.delayed());
        }
        added
    }

    /// Forgets the failures of a key.
    pub(super) fn forget(&self, key: &K) {
        if !self.counted {
            return self.retry.forget(key);
        }
        let hash = self.hash(key);
        let forgotten = self.peek(|state| state.forget(hash, key));
        drop(forgotten);
    }

    /// How often a key failed.
    pub(super) fn num_requeues(&self, key: &K) -> u32 {
        match self.retry.by_count() {
            None => self.retry.num_requeues(key),
            Some(policy) if !policy.counts() => 0,
            Some(_) => {
                let hash = self.hash(key);
                self.peek(|state| state.num_retries(hash, key))
            }
        }
    }
}

impl<K> Shared<K> {
    /// Asks a policy that is not by count about a key that a worker brings back: how long
    /// it waits, if it comes again. The policy is the user's: this is done without the
    /// lock, and while the lease still stands, which then ends even if the policy panics.
    #[inline]
    pub(super) fn consult(&self, key: &K, finish: Finish) -> Option<Duration> {
        if self.counted { None } else { self.consult_policy(key, finish) }
    }

    /// Whether the end of a lease is a matter for the user's policy.
    pub(super) fn asks_policy(&self, finish: Finish) -> bool {
        !self.counted && finish != Finish::Done
    }

    /// Whether nothing is to be done for a key that was taken back, once the lock is free:
    /// nobody hears of a delay, and dropping the key runs no code.
    fn is_silent(&self, returned: &Returned<K>) -> bool {
        let told = returned.delay.is_some() && self.recorder.is_some();
        !told && !std::mem::needs_drop::<K>()
    }

    /// Takes many keys back that are done, in one lock.
    #[inline]
    pub(super) fn done_all(&self, taken: Vec<Taken<K>>, succeeded: bool) {
        let forgotten = self.with(|state| state.done_many(taken, succeeded));
        drop(forgotten);
    }

    /// Takes many keys back, in one lock.
    #[inline]
    pub(super) fn finish_all(&self, back: impl Iterator<Item = Return<K>>) {
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

    /// The same for a lease that is dropped while its thread panics. A policy that panics
    /// as well gives no advice: the key is done then, and does not come again.
    pub(super) fn consult_while_panicking(&self, key: &K) -> Option<Duration> {
        let consult = AssertUnwindSafe(|| self.consult(key, Finish::Retry));
        catch_unwind(consult).unwrap_or_default()
    }

    fn consult_policy(&self, key: &K, finish: Finish) -> Option<Duration> {
        match finish {
            Finish::Done => None,
            Finish::Retry => Some(self.retry.when(key)),
            Finish::Succeed | Finish::RetryAfter(_) => {
                self.retry.forget(key);
                None
            }
        }
    }

    /// Takes a key back, with the lock held.
    ///
    /// The add comes before the done, as in client-go: a key that is to come again at
    /// once is dirty when it is done, and so goes to the tail.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: a tenth of a worker's cycle")]
    pub(super) fn give_back(
        &self,
        state: &mut State<K>,
        back: Return<K>,
        now: Option<Nanos>,
    ) -> Returned<K> {
        let Return { slot, loan, priority, finish, advice } = back;
        let delay = if finish == Finish::Done {
            None
        } else {
            self.plan(state, &Ending { slot, priority, finish, advice }, now)
        };
        let finished = state.done(slot, loan);
        Returned { finished, delay }
    }

    /// Counts or forgets failures, and has the key come again if it shall: after which
    /// delay.
    fn plan(
        &self,
        state: &mut State<K>,
        ending: &Ending,
        now: Option<Nanos>,
    ) -> Option<Duration> {
        let delay = self.settle_failures(state, ending)?;
        self.come_again(state, ending, delay, now);
        Some(delay)
    }

    /// Counts or forgets failures, and says after which delay the key comes again.
    fn settle_failures(&self, state: &mut State<K>, ending: &Ending) -> Option<Duration> {
        match ending.finish {
            Finish::Done => None,
            Finish::Succeed => {
                state.pardon(ending.slot);
                None
            }
            Finish::RetryAfter(delay) => {
                state.pardon(ending.slot);
                Some(delay)
            }
            Finish::Retry => ending.advice.or_else(|| {
                Some(charge(self.retry.by_count()?, state.failures(ending.slot)))
            }),
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

    /// How often a key that is with a worker failed.
    pub(super) fn num_requeues_of(&self, slot: u32, key: &K) -> u32 {
        match self.retry.by_count() {
            None => self.retry.num_requeues(key),
            Some(_) => self.peek(|state| state.retries(slot)),
        }
    }

    /// Says what became of a key that was taken back, and drops it: without the lock.
    #[inline]
    pub(super) fn tell_returned(&self, returned: Returned<K>) {
        let Returned { finished, delay } = returned;
        if delay.is_some() {
            self.record(|recorder| recorder.delayed());
        }
        drop(finished);
    }
}

impl<K: Send + Sync> Probed for Shared<K> {
    fn gauges(&self) -> Gauges {
        let now = self.now();
        let (mut core, _) = self.lock();
        let counts = core.state.counts();
        let (unfinished, longest) = core.state.running(now);
        core.state.flush();
        let parked = core.park.len();
        self.unlock(core);
        Gauges {
            ready: counts.ready,
            delayed: counts.delayed,
            processing: counts.processing,
            dirty: counts.dirty,
            parked,
            unfinished: Duration::from_nanos(unfinished),
            longest_running: Duration::from_nanos(longest),
            keeper: Keeper::Memory,
        }
    }
}

/// The queue is gone for good: what was counted and not told is told now.
impl<K> Drop for Shared<K> {
    fn drop(&mut self) {
        if self.recorder.is_none() {
            return;
        }
        let mut core = lock(&self.core);
        core.state.flush();
        self.unlock(core);
    }
}

/// What handles have beyond the queue itself: the last one to go closes it.
pub(super) struct Closer<K>(pub(super) Arc<Shared<K>>);

impl<K> Drop for Closer<K> {
    fn drop(&mut self) {
        self.0.close();
    }
}
