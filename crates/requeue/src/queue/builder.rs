//! The builder of a queue.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::{Arc, Weak};

use super::Queue;
use super::finish::Finish;
use super::hashing::Hashing;
use super::line::Line;
use super::order::{Fifo, Order};
use super::policy::Policy;
use super::shared::{Parts, Shared};
use super::state::{Rules, State};
use super::timing::Timing;
use crate::clock::{AnyClock, Clock};
use crate::metrics::{Metrics, Probe, Recorder, Tally, tally_of};
use crate::retry::{QueueDefault, RetryPolicy};

/// Builds a [`Queue`]; from [`Queue::builder`].
///
/// Everything is optional. By default, a queue is first in, first out, records no metrics,
/// and retries a key after 5 ms, doubling up to 1000 s.
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
    on_drop: Finish,
    capacity: usize,
    max_tracked: usize,
}

/// Attaches the metrics provider when the queue is built.
type Attach<K> = Box<dyn FnOnce(&str, &Weak<Shared<K>>) -> Attached + Send>;

/// The metrics of one queue.
type Attached = (Box<dyn Recorder>, Option<Arc<dyn Tally>>);

/// How many keys are kept only for their failures. Each takes as much memory as a ready key.
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
            on_drop: Finish::Retry,
            capacity: 0,
            max_tracked: MAX_TRACKED,
        }
    }

    /// Sets the name of the queue, which is a label of its metrics.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the clock. The default is the system clock.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = AnyClock::new(clock);
        self
    }

    /// Sets the retry policy, which chooses the delay of a failed key. The default is
    /// [`Exponential`](crate::retry::Exponential) from 5 ms to 1000 s.
    ///
    /// Do not share a policy between queues: it would mix up the failures of equal keys.
    pub fn retry(mut self, policy: impl RetryPolicy<K> + 'static) -> Self {
        self.retry = Box::new(policy);
        self
    }

    /// Sets the order in which ready keys are delivered. The default is [`Fifo`].
    ///
    /// The order runs with the queue's lock held. [`Order`] says what it must promise, and
    /// what happens if it breaks its promise or panics.
    pub fn order(mut self, order: impl Order<K> + 'static) -> Self {
        self.line = Line::other(Box::new(order));
        self
    }

    /// Sets the metrics provider. By default nothing is measured.
    pub fn metrics(mut self, metrics: impl Metrics + 'static) -> Self
    where
        K: Send + Sync + 'static,
    {
        self.metrics = Some(Box::new(move |name, queue| {
            let queue: Weak<Shared<K>> = Weak::clone(queue);
            (metrics.queue(name, Probe::new(queue)), tally_of(&metrics, name))
        }));
        self
    }

    /// Sets whether adding a key cancels its delay.
    ///
    /// By default it does not, as in client-go: a delayed key that is added becomes ready
    /// now, and once more when its delay ends. With `true`, as in controller-runtime, it
    /// becomes ready once, and a delay for a ready or dirty key is ignored.
    pub fn absorb_delays(mut self, absorb: bool) -> Self {
        self.absorb = absorb;
        self
    }

    /// Sets how a dropped lease ends. The default is [`Finish::Retry`].
    ///
    /// A lease is dropped by a panic, a `?`, an aborted task or a timeout. With the default,
    /// that is a failure: it counts, and the key runs again after its backoff.
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue::{Finish, Queue};
    ///
    /// let queue = Queue::builder().on_drop(Finish::Release).build();
    /// queue.add("key")?;
    /// drop(queue.try_get()?);
    /// assert_eq!((queue.len(), queue.num_requeues(&"key")), (1, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_drop(mut self, finish: Finish) -> Self {
        self.on_drop = finish;
        self
    }

    /// Reserves memory for this many keys.
    ///
    /// Memory beyond 1024 keys is freed when the queue becomes empty.
    pub fn capacity(mut self, keys: usize) -> Self {
        self.capacity = keys;
        self
    }

    /// Limits how many keys are kept only for their failures. The oldest are forgotten first.
    /// The default is 100,000.
    ///
    /// Ready, delayed and processing keys do not count. A policy that counts failures itself
    /// is not limited.
    pub fn max_tracked(mut self, keys: usize) -> Self {
        self.max_tracked = keys;
        self
    }

    /// Hashes keys with `hasher`.
    ///
    /// The default is foldhash with a seed per queue, which is fast and sufficient for keys
    /// that collide by chance. Use [`std::hash::RandomState`] for keys that an attacker can
    /// choose.
    pub fn hasher(mut self, hasher: impl BuildHasher + Send + Sync + 'static) -> Self {
        self.hashing = Hashing::new(hasher);
        self
    }

    /// Builds the queue.
    pub fn build(self) -> Queue<K> {
        let shared = Arc::new_cyclic(|queue| {
            let attached = self.metrics.map(|attach| attach(&self.name, queue));
            let (recorder, tally) = attached.unzip();
            let rules = Rules {
                line: self.line,
                absorb: self.absorb,
                capacity: self.capacity,
                max_tracked: self.max_tracked,
                timing: tally.map(Timing::new),
            };
            Shared::new(Parts {
                state: State::new(rules),
                name: self.name,
                clock: self.clock,
                hashing: self.hashing,
                policy: Policy::new(self.retry),
                on_drop: self.on_drop,
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
