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

use std::borrow::Borrow;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::delay::Progress;
use super::finish::Finish;
use super::hashing::Hashing;
use super::nanos::Nanos;
use super::offer::{Borrowed, Owned};
use super::options::{AddOptions, Added};
use super::park::Park;
use super::policy::{Backoff, Policy, default_delay};
use super::state::{State, Taken};
use super::timing::News;
use crate::clock::AnyClock;
use crate::contain::contain;
use crate::error::Closed;
use crate::key::ToKey;
use crate::metrics::{Gauges, Keeper, Probed, Recorder};
use crate::sync::{Mutex, lock};
use crate::wake::{Wakes, Watch};

pub(super) use self::locked::Locked;

/// The state that handles, leases and getters of one queue share.
pub(super) struct Shared<K> {
    core: Mutex<Core<K>>,
    pub(super) name: String,
    pub(super) clock: AnyClock,
    /// When the queue was built. Times are nanoseconds since then.
    epoch: Instant,
    hashing: Hashing,
    pub(super) policy: Policy<K>,
    /// How a lease ends that is dropped.
    pub(super) on_drop: Finish,
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
    pub(super) policy: Policy<K>,
    pub(super) on_drop: Finish,
    pub(super) recorder: Option<Box<dyn Recorder>>,
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
        Self {
            core: Mutex::new(core),
            name: parts.name,
            epoch: parts.clock.now(),
            clock: parts.clock,
            hashing: parts.hashing,
            policy: parts.policy,
            on_drop: parts.on_drop,
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
        key: K,
        delay: Duration,
        priority: i32,
    ) -> Result<Added, Closed<K>>
    where
        K: Eq + Hash,
    {
        let hash = self.hash(&key);
        let now = self.now();
        self.add_at(hash, key, now.saturating_add(nanos(delay)), priority, now)
    }

    /// Adds a key at `deadline`, or at once if that has passed.
    pub(super) fn add_at(
        &self,
        hash: u32,
        key: K,
        deadline: Nanos,
        priority: i32,
        now: Nanos,
    ) -> Result<Added, Closed<K>>
    where
        K: Eq,
    {
        let mut offer = Owned::new(key);
        let added = self.with_at(now, |state| {
            if deadline <= now {
                state.add(hash, &mut offer, priority)
            } else {
                state.add_at(hash, &mut offer, deadline, priority)
            }
        });
        self.answer_delayed(added, offer)
    }

    fn answer_delayed(
        &self,
        added: Option<Added>,
        offer: Owned<K>,
    ) -> Result<Added, Closed<K>> {
        if added.is_some() {
            self.record(|recorder| recorder.delayed());
        }
        answer(added, offer)
    }
}

/// The result of an add: `added` is `None` if the queue is closed, and the key is then still
/// in its offer.
#[inline]
fn answer<K>(added: Option<Added>, offer: Owned<K>) -> Result<Added, Closed<K>> {
    added.ok_or_else(|| Closed::new(offer.into_key()))
}

/// A duration in nanoseconds; saturates after 584 years.
pub(super) fn nanos(duration: Duration) -> Nanos {
    Nanos::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}

impl<K: Eq + Hash> Shared<K> {
    /// Adds a key, now.
    #[inline]
    pub(super) fn add(&self, key: K, priority: i32) -> Result<Added, Closed<K>> {
        let hash = self.hash(&key);
        let mut offer = Owned::new(key);
        let added = self.with(|state| state.add(hash, &mut offer, priority));
        answer(added, offer)
    }

    /// Adds a borrowed key, now.
    #[inline]
    pub(super) fn add_ref<Q>(&self, key: &Q) -> Result<Added, Closed>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        let hash = self.hash(key);
        let mut offer = Borrowed::new(key);
        let added = self.with(|state| state.add(hash, &mut offer, 0));
        added.ok_or(Closed::new(()))
    }

    /// Adds a key with options.
    pub(super) fn add_with(
        &self,
        key: K,
        options: AddOptions,
    ) -> Result<Added, Closed<K>> {
        let priority = options.priority.unwrap_or(0);
        match options.after {
            after if options.rate_limited => self.add_rate_limited(key, after, priority),
            Some(delay) => self.add_after(key, delay, priority),
            None => self.add(key, priority),
        }
    }

    /// Counts a failure and adds the key after the delay of the policy, or after `after` if
    /// that is shorter.
    fn add_rate_limited(
        &self,
        key: K,
        after: Option<Duration>,
        priority: i32,
    ) -> Result<Added, Closed<K>> {
        let shorter = |delay: Duration| after.map_or(delay, |after| after.min(delay));
        if !self.policy.is_by_count() {
            // A closed queue counts no failure. If it closes between here and the add, the
            // failure of a refused key is counted, which no later key can notice.
            if self.peek(|state| state.is_closed()) {
                return Err(Closed::new(key));
            }
            let delay = shorter(self.when(&key));
            return self.add_after(key, delay, priority);
        }
        let hash = self.hash(&key);
        let mut offer = Owned::new(key);
        let now = self.now();
        let mut backoff = Backoff { delay: Duration::ZERO, panicked: false };
        let when = |failures: &mut u32| {
            backoff = self.policy.count(failures);
            now.saturating_add(nanos(shorter(backoff.delay)))
        };
        let added = self.with_at(now, |state| {
            state.add_failed(hash, &mut offer, when, now, priority)
        });
        if added.is_some() {
            self.report_backoff(backoff);
        }
        answer(added, offer)
    }

    /// Asks a policy that counts by itself for the delay of a failed key.
    fn when(&self, key: &K) -> Duration {
        let advice = self.policy.when(key);
        if advice.panicked {
            self.record(|recorder| recorder.panicked());
        }
        advice.delay.unwrap_or_else(|| default_delay(0))
    }

    /// Replaces everything that is pending for a key by a delay.
    pub(super) fn postpone(&self, key: K, delay: Duration) -> Result<Added, Closed<K>> {
        let hash = self.hash(&key);
        let mut offer = Owned::new(key);
        let now = self.now();
        let deadline = now.saturating_add(nanos(delay));
        let added = self.with_at(now, |state| state.postpone(hash, &mut offer, deadline));
        self.answer_delayed(added, offer)
    }

    /// Forgets the failures of a key.
    pub(super) fn forget<Q>(&self, key: &Q)
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        if !self.policy.is_by_count() {
            return self.policy.forget(&key.to_key());
        }
        let hash = self.hash(key);
        let forgotten = self.peek(|state| state.forget(hash, key));
        drop(forgotten);
    }

    /// Returns how often a key has failed.
    pub(super) fn num_requeues<Q>(&self, key: &Q) -> u32
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        if !self.policy.is_by_count() {
            return self.policy.num_requeues(&key.to_key());
        }
        let hash = self.hash(key);
        self.peek(|state| state.num_retries(hash, key))
    }
}

impl<K> Shared<K> {
    /// Returns how often a leased key has failed.
    pub(super) fn num_requeues_of(&self, taken: &Taken<K>) -> u32 {
        let by_slot = || self.peek(|state| state.retries(taken.slot));
        if self.policy.is_by_count() {
            return by_slot();
        }
        self.policy.try_num_requeues(&taken.key).unwrap_or_else(|| {
            self.record(|recorder| recorder.panicked());
            by_slot()
        })
    }

    /// Reports a lease or batch that is dropped by a panic of its thread.
    pub(super) fn record_unwinding(&self) {
        if std::thread::panicking() {
            self.record(|recorder| recorder.panicked());
        }
    }

    pub(super) fn is_measured(&self) -> bool {
        self.recorder.is_some()
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
