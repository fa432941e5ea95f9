//! The lock, and what happens around it: read the clock, call `state`, restore the
//! invariants of `park`, unlock, wake, measure.
//!
//! There is one lock. While it is held, nothing blocks, nothing is woken and no metric is
//! recorded. This user code runs under it, and no other:
//!
//! * `Eq` and `Clone` of the key,
//! * the order,
//! * `Clock::now`,
//! * a retry policy that is asked by the number of failures (`ByCount`).
//!
//! None of it may call the queue. It may panic: `state.rs` says what happens to the key.
//! Calls that must not fail (the end of a lease, closing) replace the reading of a clock
//! that panics by the latest time the queue has seen; other calls panic with it and change
//! nothing. Whatever panics, [`Locked`] restores the invariants and wakes getters.

mod locked;
mod policy;
mod returns;

use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::delay::Progress;
use super::hashing::Hashing;
use super::nanos::Nanos;
use super::offer::{Offer, Owned};
use super::options::{AddOptions, Added};
use super::park::Park;
use super::state::State;
use super::timing::News;
use crate::clock::AnyClock;
use crate::contain::contain;
use crate::metrics::{Gauges, Keeper, Probed, Recorder};
use crate::retry::{ByCount, RetryPolicy};
use crate::sync::{Mutex, lock};
use crate::wake::{Wakes, Watch};

pub(super) use self::locked::Locked;
use self::policy::Backoff;
pub(super) use self::returns::Return;

/// The state that handles, leases and getters of one queue share.
pub(super) struct Shared<K> {
    core: Mutex<Core<K>>,
    pub(super) name: String,
    pub(super) clock: AnyClock,
    /// When the queue was built. Times are nanoseconds since then.
    epoch: Instant,
    hashing: Hashing,
    retry: Box<dyn RetryPolicy<K>>,
    /// Whether the policy depends on the count only, so that the slots count failures.
    counted: bool,
    /// Whether such a policy counts failures at all.
    counts: bool,
    recorder: Option<Box<dyn Recorder>>,
}

/// What the lock guards.
pub(super) struct Core<K> {
    pub(super) state: State<K>,
    pub(super) park: Park,
    pub(super) watch: Watch,
}

/// The parts of a queue.
pub(super) struct Parts<K> {
    pub(super) state: State<K>,
    pub(super) name: String,
    pub(super) clock: AnyClock,
    pub(super) hashing: Hashing,
    pub(super) retry: Box<dyn RetryPolicy<K>>,
    pub(super) recorder: Option<Box<dyn Recorder>>,
}

/// How a lease ends. See the methods of [`Lease`](crate::Lease) with the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finish {
    /// Ends the lease; the failures of the key are kept.
    Done,
    /// Success: the failures of the key are forgotten.
    Succeed,
    /// Failure: the key is retried after a delay that the retry policy chooses.
    Retry,
    /// The key is added again after this delay; its failures are forgotten.
    RetryAfter(Duration),
}

impl<K> Core<K> {
    /// Whether nothing waits, so that no change needs a wake-up.
    #[inline]
    fn is_quiet(&self) -> bool {
        self.park.is_empty() && self.watch.is_empty()
    }

    /// Restores the invariants of `park` and of `watch` after any change of `state`.
    fn settle(&mut self) -> Wakes {
        let Self { state, park, watch } = self;
        let mut wakes = park.settle(state.deliverable(), state.next_deadline());
        if state.is_closed() {
            park.call_all(&mut wakes);
        }
        if !watch.is_empty() && state.is_at_rest() {
            watch.call_all(&mut wakes);
        }
        wakes
    }
}

/// How far a call moves time forward before it acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advance {
    /// All keys whose delay has ended become ready first: the call depends on their order.
    Fully,
    /// Chunks of them do, until a key can be delivered.
    ToNextKey,
    /// The call does not depend on time.
    Not,
}

impl Advance {
    /// At least to the next key: the call takes one as well.
    #[inline]
    pub(super) fn or_to_next_key(self) -> Self {
        match self {
            Self::Not | Self::ToNextKey => Self::ToNextKey,
            Self::Fully => Self::Fully,
        }
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

    /// Locks the queue and adds all keys whose delay has ended. The clock is read only if a
    /// key is delayed.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: a tenth of a worker's cycle")]
    pub(super) fn lock(&self) -> Locked<'_, K> {
        let locked = Locked::new(self);
        if locked.state.needs_time() { self.catch_up(locked, self.now()) } else { locked }
    }

    /// As [`lock`](Self::lock), but adds only as many of those keys as a getter needs.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: a tenth of a worker's cycle")]
    pub(super) fn lock_to_take(&self) -> Locked<'_, K> {
        let locked = Locked::new(self);
        if locked.state.needs_time() { self.step(locked, self.now()) } else { locked }
    }

    /// Locks the queue for a call that does not depend on time.
    pub(super) fn lock_timeless(&self) -> Locked<'_, K> {
        Locked::new(self)
    }

    /// Locks the queue for a call that must not fail, such as the end of a lease, and moves
    /// time forward as far as `advance` says.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: a tenth of a worker's cycle")]
    pub(super) fn lock_to_end(
        &self,
        advance: impl FnOnce(&State<K>) -> Advance,
    ) -> Locked<'_, K> {
        let locked = Locked::new(self);
        if !locked.state.needs_time() {
            return locked;
        }
        match advance(&locked.state) {
            Advance::Not => locked,
            how @ (Advance::ToNextKey | Advance::Fully) => self.advance(locked, how),
        }
    }

    #[inline(never)]
    fn advance<'a>(
        &'a self,
        mut locked: Locked<'a, K>,
        advance: Advance,
    ) -> Locked<'a, K> {
        let now = self.now_under_lock(&mut locked.state);
        match advance {
            Advance::Fully => self.catch_up(locked, now),
            Advance::ToNextKey | Advance::Not => self.step(locked, now),
        }
    }

    /// Adds all keys whose delay has ended at `now`. Many are added in several lock scopes,
    /// so that other callers get their turn.
    #[inline(never)]
    fn catch_up<'a>(&'a self, locked: Locked<'a, K>, now: Nanos) -> Locked<'a, K> {
        self.advance_until(locked, now, |_| false)
    }

    /// Adds keys whose delay has ended at `now`, until one can be delivered.
    #[inline(never)]
    fn step<'a>(&'a self, locked: Locked<'a, K>, now: Nanos) -> Locked<'a, K> {
        self.advance_until(locked, now, |state| state.deliverable() > 0)
    }

    /// Moves time forward, a chunk per lock scope, until `enough` or all due keys are added.
    /// A chunk of work on the delays may end before it has reached the first due key.
    fn advance_until<'a>(
        &'a self,
        mut locked: Locked<'a, K>,
        now: Nanos,
        enough: impl Fn(&State<K>) -> bool,
    ) -> Locked<'a, K> {
        while locked.state.advance(now) == Progress::More && !enough(&locked.state) {
            locked.unlock();
            locked = Locked::new(self);
        }
        locked.now = Some(now);
        locked
    }

    /// Reads the clock for a call that must not fail. If it panics, the latest time seen
    /// counts.
    pub(super) fn now_under_lock(&self, state: &mut State<K>) -> Nanos {
        if self.clock.is_system() {
            return self.now();
        }
        contain(|| self.now()).unwrap_or_else(|| {
            state.note_panic();
            state.latest()
        })
    }

    /// Reports what happened to keys, after the lock is released.
    fn tell(&self, news: Option<&News>, panics: u32) {
        let Some(recorder) = &self.recorder else { return };
        if news.is_none() && panics == 0 {
            return;
        }
        contain(|| {
            if let Some(news) = news {
                news.tell(&**recorder);
            }
            (0..panics).for_each(|_| recorder.panicked());
        });
    }

    /// Runs `change` on the state under the lock.
    #[inline]
    pub(super) fn with<R>(&self, change: impl FnOnce(&mut State<K>) -> R) -> R {
        let mut locked = self.lock();
        let result = change(&mut locked.state);
        locked.unlock();
        result
    }

    /// As [`with`](Self::with), for a change that takes keys and adds none.
    #[inline]
    pub(super) fn with_next<R>(&self, change: impl FnOnce(&mut State<K>) -> R) -> R {
        let mut locked = self.lock_to_take();
        let result = change(&mut locked.state);
        locked.unlock();
        result
    }

    /// Runs `change` on the state, if it makes no key ready and does not depend on time.
    #[inline]
    pub(super) fn peek<R>(&self, change: impl FnOnce(&mut State<K>) -> R) -> R {
        change(&mut lock(&self.core).state)
    }

    /// As [`with`](Self::with), for a caller that has read the clock already.
    #[inline]
    fn with_at<R>(&self, now: Nanos, change: impl FnOnce(&mut State<K>) -> R) -> R {
        let mut locked = Locked::new(self);
        if locked.state.needs_time() {
            locked = self.catch_up(locked, now);
        } else {
            locked.state.tell_time(now);
        }
        let result = change(&mut locked.state);
        locked.unlock();
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

    /// Converts a moment to nanoseconds since the queue was built; saturates.
    pub(super) fn nanos(&self, moment: Instant) -> Nanos {
        nanos(moment.saturating_duration_since(self.epoch))
    }

    /// The moment `nanos` after the queue was built; `None` if it exceeds the range of
    /// `Instant`, and so never comes.
    pub(super) fn moment(&self, nanos: Nanos) -> Option<Instant> {
        self.epoch.checked_add(Duration::from_nanos(nanos))
    }

    /// Returns 32 bits of the key's hash. `Hash` is user code: not under the lock.
    #[inline]
    pub(super) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u32 {
        // The table uses the upper bits, and a user's hasher may have set only the lower
        // ones. The factor is 2^64 divided by the golden ratio.
        (self.hashing.hash(key).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32
    }

    pub(super) fn close(&self) {
        let mut locked = self.lock_to_end(|_| Advance::Fully);
        locked.state.close();
        locked.unlock();
    }

    /// Adds a key after `delay`, or at once if it is zero.
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

    /// Adds a key at `deadline`, or at once if that has passed.
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
    /// Replaces everything that is pending for a key by a delay.
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

/// A duration in nanoseconds; saturates after 584 years.
fn nanos(duration: Duration) -> Nanos {
    Nanos::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}

impl<K: Eq + Hash> Shared<K> {
    /// Adds a key with options.
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
            // A closed queue counts no failure. If it closes between here and the add, the
            // failure of a refused key is counted, which no later key can notice.
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

    /// Returns how often a key has failed.
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
        let mut locked = self.lock();
        let counts = locked.state.counts();
        let (unfinished, longest) = locked.state.running(now);
        locked.state.flush();
        let parked = locked.park.len();
        locked.unlock();
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

/// Reports the events that were counted and not reported yet.
impl<K> Drop for Shared<K> {
    fn drop(&mut self) {
        if self.recorder.is_none() {
            return;
        }
        let mut locked = Locked::new(self);
        locked.state.flush();
        locked.unlock();
    }
}

/// Closes the queue when its last handle is dropped.
pub(super) struct Closer<K>(pub(super) Arc<Shared<K>>);

impl<K> Drop for Closer<K> {
    fn drop(&mut self) {
        self.0.close();
    }
}
