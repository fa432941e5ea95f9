//! Metrics of queues and pools.
//!
//! A queue whose builder was given [`Metrics`] reports its events to a [`Recorder`], and its
//! gauges can be read through a [`Probe`]. With the feature `prometheus`, `Prometheus`
//! exposes them under the names that dashboards and alerts for Kubernetes use.

mod pool;
#[cfg(feature = "prometheus")]
mod prometheus;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::Counts;

pub use pool::{PoolRecorder, RunResult};
#[cfg(feature = "prometheus")]
#[cfg_attr(docsrs, doc(cfg(feature = "prometheus")))]
pub use prometheus::Prometheus;

/// Receives the metrics of queues and pools; client-go's `MetricsProvider`.
///
/// There is no global provider: a queue reports to the one that its builder was given. A
/// queue without metrics measures nothing and reads no clock for it.
///
/// # Examples
///
/// Counts the keys that are added to any queue:
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use requeue::metrics::{Metrics, Probe, Recorder};
///
/// #[derive(Clone, Default)]
/// struct Adds(Arc<AtomicU64>);
///
/// impl Metrics for Adds {
///     fn queue(&self, _name: &str, _probe: Probe) -> Box<dyn Recorder> {
///         Box::new(self.clone())
///     }
/// }
///
/// impl Recorder for Adds {
///     fn added(&self) {
///         self.0.fetch_add(1, Ordering::Relaxed);
///     }
/// }
///
/// let adds = Adds::default();
/// adds.added();
/// assert_eq!(adds.0.load(Ordering::Relaxed), 1);
/// ```
#[doc(alias = "MetricsProvider")]
pub trait Metrics: Send + Sync {
    /// Returns the recorder of a queue. Called once, when the queue is built.
    ///
    /// `probe` reads the gauges of the queue at any time.
    fn queue(&self, name: &str, probe: Probe) -> Box<dyn Recorder>;

    /// Returns the recorder of a [pool](crate::pool). Called once, when the pool starts.
    ///
    /// The default records nothing.
    fn pool(&self, name: &str) -> Box<dyn PoolRecorder> {
        let _ = name;
        Box::new(pool::NoRecorder)
    }
}

/// Receives the events of one queue.
///
/// Every method does nothing by default. The queue calls them after it has released its lock,
/// on the thread that caused the event. A panic is contained.
///
/// The recorder of a queue on a store receives the events of this process. The store says how
/// long a key has waited.
pub trait Recorder: Send + Sync {
    /// A key became ready, or dirty if it is being processed.
    fn added(&self) {}

    /// A key was delivered, `waited` after it was added.
    fn got(&self, waited: Duration) {
        let _ = waited;
    }

    /// A lease ended, `worked` after its key was delivered.
    fn done(&self, worked: Duration) {
        let _ = worked;
    }

    /// A key was added with a delay, even if it is zero.
    fn delayed(&self) {}

    /// The queue contained a panic of user code: a lease was dropped by a panic, or the retry
    /// policy, the order or the clock panicked.
    fn panicked(&self) {}
}

/// Counts the events of one queue in place of its [`Recorder`], with the queue's lock held.
///
/// So one thread at a time calls it, and it needs no atomic read-modify-write. It must not
/// call user code.
pub(crate) trait Tally: Send + Sync {
    fn added(&self);

    /// As [`Recorder::got`], in nanoseconds.
    fn got(&self, waited: u64);

    /// As [`Recorder::done`], in nanoseconds.
    fn done(&self, worked: u64);
}

/// Returns the tally of a queue of this name, if `metrics` is our own implementation.
pub(crate) fn tally_of<M: Metrics + 'static>(
    metrics: &M,
    name: &str,
) -> Option<Arc<dyn Tally>> {
    #[cfg(feature = "prometheus")]
    if let Some(prometheus) = (metrics as &dyn std::any::Any).downcast_ref::<Prometheus>()
    {
        return Some(prometheus.tally(name));
    }
    let _ = (metrics, name);
    None
}

/// The gauges of a queue at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gauges {
    /// The number of keys by state. `None` if it is not known at the moment.
    pub keys: Option<Counts>,
    /// Whether other processes share the keys. Queues of one name then count the same keys,
    /// and their numbers must not be added up.
    pub shared: bool,
    /// Getters of this process that wait for a key.
    pub parked: usize,
    /// How long the keys that this process works on have been leased, added up.
    pub unfinished: Duration,
    /// How long the longest of those leases has lasted.
    pub longest_running: Duration,
    /// Gauges that only some kinds of queues have. Of queues of one name, the highest value
    /// counts.
    pub extra: Vec<Gauge>,
}

/// One more gauge of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gauge {
    /// The name of the metric.
    pub name: &'static str,
    /// The help text of the metric.
    pub help: &'static str,
    /// The value now.
    pub value: GaugeValue,
}

/// The value of a gauge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GaugeValue {
    /// A number.
    Count(usize),
    /// A duration, written in seconds.
    Seconds(Duration),
}

/// Reads the gauges of one queue when its metrics are scraped.
///
/// A probe does not keep its queue alive.
#[derive(Clone)]
pub struct Probe(Weak<dyn Probed>);

/// A queue that a [`Probe`] can read.
///
/// Implement it for a queue that measures itself as [`Queue`](crate::Queue) does, such as
/// the one of the crate `requeue-store`.
pub trait Probed: Send + Sync {
    /// Returns the gauges now. A scrape calls it, so it must not wait for long.
    fn gauges(&self) -> Gauges;
}

impl Probe {
    /// Creates a probe of `queue`, for [`Metrics::queue`].
    pub fn new(queue: Weak<dyn Probed>) -> Self {
        Self(queue)
    }

    /// Returns whether the queue was dropped, so that [`read`](Probe::read) returns `None`.
    pub fn is_dropped(&self) -> bool {
        self.0.strong_count() == 0
    }

    /// Returns the gauges now, or `None` if the queue was dropped.
    ///
    /// Takes the queue's lock for a moment.
    pub fn read(&self) -> Option<Gauges> {
        self.0.upgrade().map(|queue| queue.gauges())
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Probe").field(&self.read()).finish()
    }
}
