//! How a queue is made.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::{Arc, Weak};

use super::Queue;
use super::hashing::Hashing;
use super::line::Line;
use super::order::{Fifo, Order};
use super::shared::{Parts, Shared};
use super::state::{Rules, State};
use crate::clock::{AnyClock, Clock};
use crate::metrics::{Metrics, Probe, Recorder};
use crate::retry::{QueueDefault, RetryPolicy};

/// Makes a [`Queue`]; from [`Queue::builder`].
///
/// Everything is optional. A queue that is built from nothing is first in, first out,
/// measures nothing, and retries a key after 5 ms doubling up to 1000 s.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use requeue::Queue;
/// use requeue::retry::{Bucket, Exponential, RetryPolicy};
/// use requeue::rate::{Limit, Limiter};
///
/// let per_key = Exponential::new(Duration::from_millis(5), Duration::from_secs(1000));
/// let overall = Bucket::new(Limiter::new(Limit::per_second(10.0), 100));
/// let queue = Queue::<String>::builder()
///     .name("deployments")
///     .retry(per_key.and(overall))
///     .build();
/// assert_eq!(queue.name(), "deployments");
/// ```
#[doc(alias = "TypedQueueConfig")]
#[doc(alias = "TypedDelayingQueueConfig")]
#[doc(alias = "TypedRateLimitingQueueConfig")]
#[doc(alias = "QueueConfig")]
#[doc(alias = "DelayingQueueConfig")]
#[doc(alias = "RateLimitingQueueConfig")]
#[doc(alias = "Opts")]
#[must_use = "a builder does nothing until it builds"]
pub struct Builder<K> {
    name: String,
    clock: AnyClock,
    hashing: Hashing,
    retry: Box<dyn RetryPolicy<K>>,
    line: Line<K>,
    metrics: Option<Attach<K>>,
    absorb: bool,
    capacity: usize,
    max_tracked: usize,
}

/// Tells a metrics provider of the queue, which is not built yet.
type Attach<K> = Box<dyn FnOnce(&str, &Weak<Shared<K>>) -> Box<dyn Recorder> + Send>;

/// Failures of this many keys that are neither ready, delayed nor processing are
/// remembered; each takes as much memory as a ready key.
const MAX_TRACKED: usize = 100_000;

impl<K> Builder<K> {
    pub(super) fn new() -> Self {
        Self {
            name: String::new(),
            clock: AnyClock::default(),
            hashing: Hashing::default(),
            retry: Box::new(QueueDefault::default()),
            line: Line::Fifo(Fifo::new()),
            metrics: None,
            absorb: false,
            capacity: 0,
            max_tracked: MAX_TRACKED,
        }
    }

    /// Names the queue; metrics carry the name.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Takes the time from `clock` instead of the system.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = AnyClock::new(clock);
        self
    }

    /// Chooses how long a key that failed waits. The default is
    /// [`Exponential`](crate::retry::Exponential) from 5 ms to 1000 s.
    ///
    /// Give each queue a policy of its own: shared ones mix up the failures of equal keys.
    pub fn retry(mut self, policy: impl RetryPolicy<K> + 'static) -> Self {
        self.retry = Box::new(policy);
        self
    }

    /// Chooses in which order ready keys are handed out. The default is [`Fifo`].
    ///
    /// The order runs with the queue's lock held. It must not panic once it has taken a
    /// key in, and must hand out each key that it was given: the queue passes over
    /// tickets that are not ready, and cannot find keys that an order has lost.
    pub fn order(mut self, order: impl Order<K> + 'static) -> Self {
        self.line = Line::other(Box::new(order));
        self
    }

    /// Reports to `metrics`. Nothing is measured by default.
    pub fn metrics(mut self, metrics: impl Metrics + 'static) -> Self
    where
        K: Send + Sync + 'static,
    {
        self.metrics = Some(Box::new(move |name, queue| {
            let queue: Weak<Shared<K>> = Weak::clone(queue);
            metrics.queue(name, Probe::new(queue))
        }));
        self
    }

    /// Whether adding a key takes along a delay that it has.
    ///
    /// By default it does not, as in client-go: a delayed key that is added is ready now,
    /// and once more when its delay is over. With `true`, as in controller-runtime, it is
    /// ready once, and a delay for a key that is already ready, or dirty, is dropped.
    pub fn absorb_delays(mut self, absorb: bool) -> Self {
        self.absorb = absorb;
        self
    }

    /// Makes room for this many keys, so that growing to them does not allocate.
    ///
    /// Room beyond 1024 keys is given back when the queue has run empty.
    pub fn capacity(mut self, keys: usize) -> Self {
        self.capacity = keys;
        self
    }

    /// Remembers the failures of at most this many keys that the queue holds for nothing
    /// else; the one that rested longest is forgotten first. The default is 100,000.
    ///
    /// Keys that are ready, delayed or processing do not count, nor does a policy that
    /// keeps its own tally.
    pub fn max_tracked(mut self, keys: usize) -> Self {
        self.max_tracked = keys;
        self
    }

    /// Hashes keys with `hasher`.
    ///
    /// The default is foldhash with a seed for each queue: fast, and enough against keys
    /// that collide by chance. For keys that an attacker chooses, give it
    /// [`std::hash::RandomState`].
    pub fn hasher(mut self, hasher: impl BuildHasher + Send + Sync + 'static) -> Self {
        self.hashing = Hashing::new(hasher);
        self
    }

    /// Makes the queue.
    pub fn build(self) -> Queue<K> {
        let rules = Rules {
            line: self.line,
            absorb: self.absorb,
            capacity: self.capacity,
            max_resting: self.max_tracked,
            timed: self.metrics.is_some(),
        };
        let shared = Arc::new_cyclic(|queue| {
            let recorder = self.metrics.map(|attach| attach(&self.name, queue));
            Shared::new(Parts {
                state: State::new(rules),
                name: self.name,
                clock: self.clock,
                hashing: self.hashing,
                retry: self.retry,
                recorder,
            })
        });
        Queue::from_shared(shared)
    }
}

impl<K> Default for Builder<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> fmt::Debug for Builder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.name)
            .field("clock", &self.clock)
            .field("absorb_delays", &self.absorb)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}
