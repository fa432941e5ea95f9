//! The lock, and what happens around it: read the clock, call `state`, restore the
//! invariants of `park`, unlock, wake, measure.
//!
//! There is one lock. While it is held, nothing blocks, nothing is woken and no metric is
//! recorded. This user code runs under it, and no other:
//!
//! * `Eq` and `Clone` of the key, `Borrow` and `ToKey` of a borrowed one,
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

use super::finish::Finish;
use super::hashing::Hashing;
use super::meter::Meter;
use super::nanos::Nanos;
use super::offer::{Borrowed, Owned};
use super::options::{AddOptions, Added};
use super::park::Park;
use super::policy::{Backoff, Policy, default_delay};
use super::state::{State, Taken};
use crate::clock::AnyClock;
use crate::error::Closed;
use crate::key::ToKey;
use crate::metrics::{Gauges, Probed, Recorder};
use crate::sync::{Mutex, lock};
use crate::wake::{Wakes, Watch};

pub(super) use self::locked::CatchUp;

/// The state that handles, leases and getters of one queue share.
pub(super) struct Shared<K> {
    core: Mutex<Core<K>>,
    pub(super) name: String,
    pub(super) clock: AnyClock,
    /// When the queue was built. Times are nanoseconds since then.
    epoch: Instant,
    hashing: Hashing,
    pub(super) policy: Policy<K>,
    /// How a dropped lease ends.
    pub(super) on_drop: Finish,
    meter: Option<Meter>,
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
        if !watch.is_empty() && state.is_idle() {
            watch.call_all(&mut wakes);
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
            meter: parts.recorder.map(|recorder| Meter::new(recorder, &parts.clock)),
            clock: parts.clock,
            hashing: parts.hashing,
            policy: parts.policy,
            on_drop: parts.on_drop,
        }
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

    /// Runs `change` without ending delays or waking getters. It must not make a key ready or
    /// depend on the time.
    #[inline]
    pub(super) fn peek<R>(&self, change: impl FnOnce(&mut State<K>) -> R) -> R {
        change(&mut lock(&self.core).state)
    }

    /// As [`with`](Self::with), for a caller that has read the clock already.
    #[inline]
    fn with_at<R>(&self, now: Nanos, change: impl FnOnce(&mut State<K>) -> R) -> R {
        let mut locked = self.lock_at(now);
        let result = change(&mut locked.state);
        locked.unlock();
        result
    }

    #[inline]
    pub(super) fn record(&self, event: impl FnOnce(&dyn Recorder)) {
        if let Some(meter) = &self.meter {
            meter.record(event);
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
        let mut locked = self.lock_to_end(|_| CatchUp::Fully);
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
            // failure is counted. That is harmless, since the queue accepts no more keys.
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
        self.peek(|state| state.num_failures(hash, key))
    }
}

impl<K> Shared<K> {
    /// Returns how often a leased key has failed.
    pub(super) fn num_requeues_of(&self, taken: &Taken<K>) -> u32 {
        let by_slot = || self.peek(|state| state.num_failures_at(taken.slot));
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
        self.meter.is_some()
    }
}

impl<K: Send + Sync> Probed for Shared<K> {
    fn gauges(&self) -> Gauges {
        let locked = self.lock();
        let counts = locked.state.counts();
        let unfinished = locked.state.unfinished();
        let parked = locked.park.len();
        locked.unlock();
        Gauges {
            keys: Some(counts),
            shared: false,
            parked,
            unfinished: Duration::from_nanos(unfinished.total),
            longest_running: Duration::from_nanos(unfinished.longest),
            extra: Vec::new(),
        }
    }
}

/// Closes the queue when its last handle is dropped.
pub(super) struct Closer<K>(pub(super) Arc<Shared<K>>);

impl<K> Drop for Closer<K> {
    fn drop(&mut self) {
        self.0.close();
    }
}
