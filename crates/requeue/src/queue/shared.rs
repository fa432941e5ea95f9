//! The lock, and what happens around it: read the clock, call `state`, restore the
//! invariants of `park`, unlock, wake, measure.
//!
//! There is one lock. While it is held, nothing blocks, nobody is woken, no metric is
//! recorded, and of the user's code only the key's `Eq` and `Clone` and the order run.

mod policy;
mod returns;

use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::hashing::Hashing;
use super::offer::{Offer, Owned};
use super::options::{AddOptions, Added};
use super::park::{Park, ParkedId, Spent, Wake, Wakes, Watch};
use super::state::State;
use super::timing::{Nanos, News};
use crate::clock::AnyClock;
use crate::metrics::{Gauges, Keeper, Probed, Recorder};
use crate::retry::{ByCount, RetryPolicy};
use crate::sync::{Mutex, MutexGuard, lock};

use self::policy::Backoff;
pub(super) use self::returns::Return;

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
    /// Whether failures that the policy was asked about by count are counted at all.
    counts: bool,
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
        let by_count = parts.retry.by_count();
        Self {
            core: Mutex::new(core),
            name: parts.name,
            epoch: parts.clock.now(),
            clock: parts.clock,
            hashing: parts.hashing,
            counted: by_count.is_some(),
            counts: by_count.is_none_or(ByCount::counts),
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
        if !self.counted {
            // A closed queue charges nobody. One that closes between here and the add
            // has charged for a key that it refuses, which no later key can notice.
            if self.peek(|state| state.is_closed()) {
                return Added::Closed;
            }
            let delay = shorter(self.when(&key));
            return self.add_after(hash, Owned::new(key), delay, priority);
        }
        let mut offer = Owned::new(key);
        let now = self.now();
        let mut backoff = Backoff::from(Duration::ZERO);
        let when = |retries: &mut u32| {
            backoff = self.charge(retries, Some(now));
            now.saturating_add(nanos(shorter(backoff.delay)))
        };
        let added = self.with_at(now, |state| {
            state.add_failed(hash, &mut offer, when, now, priority)
        });
        if added.is_accepted() {
            self.tell_backoff(backoff);
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
