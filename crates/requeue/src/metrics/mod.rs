//! What a queue tells about itself.
//!
//! A queue whose builder was given [`Metrics`] reports its events to a [`Recorder`] and
//! lets its state be read through a [`Probe`]. With the feature `prometheus`,
//! `Prometheus` is the one that is ready-made: it exposes the names that the dashboards
//! and alerts for Kubernetes know.

mod pool;
#[cfg(feature = "prometheus")]
mod prometheus;

use std::fmt;
use std::sync::Weak;
use std::time::Duration;

pub use pool::{Ended, PoolRecorder};
#[cfg(feature = "prometheus")]
#[cfg_attr(docsrs, doc(cfg(feature = "prometheus")))]
pub use prometheus::Prometheus;

/// Where the metrics of queues go; client-go's `MetricsProvider`, one for each queue.
///
/// There is no global provider: a queue reports to the one its builder was given, and a
/// queue that was given none measures nothing and reads no clock.
///
/// # Examples
///
/// Counting the keys that were added to any queue:
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
    /// Called once, when a queue is built. What it returns hears of every event in that
    /// queue; `probe` reads the queue's gauges whenever they are asked for.
    fn queue(&self, name: &str, probe: Probe) -> Box<dyn Recorder>;

    /// Called once, when a [pool](crate::pool) is started. What it returns hears of every
    /// run in that pool; by default it is nobody.
    fn pool(&self, name: &str) -> Box<dyn PoolRecorder> {
        let _ = name;
        Box::new(pool::Nobody)
    }
}

/// Hears of the events in one queue.
///
/// Every method does nothing by default. They are called without the queue's lock, by
/// the thread that caused the event.
///
/// The queue calls those that end in `_many`, which stand for that many calls of the
/// others: implement them where many events can be recorded for the price of one.
///
/// A queue on a store, whose keys come from many processes, tells what passes through this
/// one. How long a key has waited is what the store says.
///
/// # A very busy queue does not time every key
///
/// Every key is timed, unless 64 keys in a row were added in less than a microsecond each.
/// From then on, and until they come more slowly, one key in two is timed, from its add to
/// its end, then one in four, and after 2000 keys one in 128. The others are counted, and
/// timed from their hand-out on unless hand-outs come as fast. A recorder hears of a key
/// that was not timed together with the next one that is, or before the gauges are read,
/// or when the queue is gone, and is told the time of the other key for it. So the number
/// of events is exact when the gauges have been read, and the times are estimates.
pub trait Recorder: Send + Sync {
    /// A key became ready, or dirty while it is processed.
    fn added(&self) {}

    /// A key was handed out, `waited` after it was added.
    fn got(&self, waited: Duration) {
        let _ = waited;
    }

    /// A key was finished, `worked` after it was handed out.
    fn done(&self, worked: Duration) {
        let _ = worked;
    }

    /// So many keys became ready or dirty; calls [`added`](Self::added) for each by
    /// default.
    fn added_many(&self, count: u64) {
        (0..count).for_each(|_| self.added());
    }

    /// So many keys were handed out, each of them `waited` after it was added; calls
    /// [`got`](Self::got) for each by default.
    fn got_many(&self, waited: Duration, count: u64) {
        (0..count).for_each(|_| self.got(waited));
    }

    /// So many keys were finished, each of them `worked` after it was handed out; calls
    /// [`done`](Self::done) for each by default.
    fn done_many(&self, worked: Duration, count: u64) {
        (0..count).for_each(|_| self.done(worked));
    }

    /// A key was added with a delay, be it zero.
    fn delayed(&self) {}

    /// User code panicked and the queue contained it: a lease was dropped by a panic, or the
    /// retry policy, the order or the clock panicked.
    fn panicked(&self) {}
}

/// The gauges of a queue at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gauges {
    /// Keys that can be handed out now.
    pub ready: usize,
    /// Keys that will be ready at a later time.
    pub delayed: usize,
    /// Keys that are with a worker.
    pub processing: usize,
    /// Keys that are with a worker and were added again meanwhile.
    pub dirty: usize,
    /// Workers that wait for a key.
    pub parked: usize,
    /// How long the keys that are with a worker have been there, added up.
    pub unfinished: Duration,
    /// How long the key that has been with a worker longest has been there.
    pub longest_running: Duration,
    /// Who keeps the keys, and with that whose numbers these are.
    pub keeper: Keeper,
}

/// Who keeps the keys of a queue.
///
/// The first four [`Gauges`] count keys, wherever their workers are. The others are of this
/// process alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Keeper {
    /// This process: the numbers are those of this moment.
    #[default]
    Memory,
    /// A store that was not asked yet how the queue stands, or could not tell: the numbers
    /// of keys are not known.
    SilentStore,
    /// A store: the numbers of keys are what it told last, of the whole queue.
    Store(Told),
}

/// What a store tells of a queue besides the numbers that every queue has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Told {
    /// Keys that have failed and will be tried again.
    pub failing: usize,
    /// Keys that failed for good.
    pub dead: usize,
    /// How long the key that is ready for the longest has been so; nothing if none is.
    pub oldest_ready: Duration,
    /// Nothing is handed out.
    pub paused: bool,
}

/// Reads the gauges of one queue, at the time of a scrape.
///
/// A probe does not keep its queue alive.
#[derive(Clone)]
pub struct Probe(Weak<dyn Probed>);

/// A queue, as far as a probe can see it.
///
/// For who writes a queue that measures itself as [`Queue`](crate::Queue) does; that of the
/// crate `requeue-store` is one.
pub trait Probed: Send + Sync {
    /// The gauges now. Called by scrapes, so it must not wait for long.
    fn gauges(&self) -> Gauges;
}

impl Probe {
    /// A probe of `queue`, to be given to [`Metrics::queue`].
    pub fn new(queue: Weak<dyn Probed>) -> Self {
        Self(queue)
    }

    /// Whether the queue is gone; [`read`](Probe::read) gives `None` from then on.
    pub fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }

    /// The gauges now; `None` once the queue is gone.
    ///
    /// Takes the queue's lock for a moment. Before it returns, the queue tells its recorder
    /// what it has counted and not told, so hold no lock for which the recorder waits.
    pub fn read(&self) -> Option<Gauges> {
        self.0.upgrade().map(|queue| queue.gauges())
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Probe").field(&self.read()).finish()
    }
}
