//! Metrics for Prometheus, under the names of Kubernetes.

mod catalogue;
mod family;
mod gauges;
mod histogram;
mod openmetrics;
mod pools;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::registry::Registry;

use super::{Gauges, Metrics, PoolRecorder, Probe, Recorder};
use catalogue::{CATALOGUE, Totals};
use family::Family;
use gauges::together;
use histogram::Bounds;
use pools::Pools;
use text::Text;

/// Exposes the metrics of queues and pools to Prometheus.
///
/// The seven metrics whose names begin with `workqueue_` have the names, types, label
/// (`name`), help texts and bucket bounds of Kubernetes, so that existing dashboards and
/// alerts work. Those of [pools](crate::pool) have the names of controller-runtime, and
/// further ones begin with `requeue_`. `docs/METRICS.md` lists them all.
///
/// A clone reports to the same place: give one to the builder of every queue. Counters
/// and histograms are kept up to date by the queues. Gauges are computed when scraped, so
/// they are never stale.
///
/// # Two ways to scrape
///
/// [`register`](Prometheus::register) puts the metrics into a registry of prometheus-client
/// beside your own, whose encoder writes `OpenMetrics`. [`encode`](Prometheus::encode) writes
/// the older text format of Prometheus, exactly as Kubernetes does, and needs no registry.
/// Prometheus stores the same names, types and values from both; only the bounds of
/// buckets are spelt differently (`le="1e-8"` and `le="1e-08"`).
///
/// # Queues of the same name
///
/// They share their series: counters and histograms count for all of them, gauges are
/// added up, and the longest running worker is the longest of all. A queue that is gone no
/// longer counts in the gauges; once the last one of a name is gone, its gauges disappear.
/// Its counters stay, so that what a short-lived queue did is seen by the next scrape. So
/// do not make up a new name for every queue in a program that makes queues all the time.
///
/// # Queues on a store
///
/// Those of the crate `requeue-store` take the same call of their builder. Their counters
/// are of this process, their numbers of keys of the whole queue, as the store told them
/// last: ask it (`SharedQueue::stats`) before you scrape. Add up the counters of processes
/// that work on one queue, and take the highest of the numbers of keys.
///
/// # Examples
///
/// ```
/// use prometheus_client::registry::Registry;
/// use requeue::metrics::Prometheus;
///
/// let mut registry = Registry::default();
/// let prometheus = Prometheus::register(&mut registry);
/// // For each queue: `.name("deployments").metrics(prometheus.clone())` on its builder.
/// let mut text = String::new();
/// prometheus_client::encoding::text::encode(&mut text, &registry)?;
/// assert_eq!(text, "# EOF\n", "no queue, no metrics");
/// # drop(prometheus);
/// # Ok::<(), std::fmt::Error>(())
/// ```
#[derive(Clone)]
#[doc(alias = "SetProvider")]
pub struct Prometheus {
    reports: Arc<Reports>,
}

/// All that reports to one [`Prometheus`].
struct Reports {
    queues: Queues,
    pools: Pools,
}

/// All queues that report to one [`Prometheus`].
struct Queues {
    bounds: Arc<Bounds>,
    /// Never held while a probe is read: that takes the lock of a queue.
    by_name: Mutex<BTreeMap<String, Named>>,
}

/// The queues of one name.
#[derive(Clone)]
struct Named {
    totals: Arc<Totals>,
    probes: Vec<Probe>,
}

/// The queues of one name at the moment of a scrape.
struct Sample {
    name: String,
    totals: Arc<Totals>,
    /// `None` once every queue of that name is gone.
    gauges: Option<Gauges>,
}

/// Counts the events of one queue.
struct Events(Arc<Totals>);

impl Prometheus {
    /// The bounds of Kubernetes' buckets, in seconds.
    ///
    /// Two of them are a last digit away from a power of ten: repeated multiplication by
    /// ten makes them so.
    pub const KUBERNETES_BOUNDS: [f64; 10] = [
        1e-8,
        1e-7,
        1e-6,
        9.999_999_999_999_999e-6,
        9.999_999_999_999_999e-5,
        0.001,
        0.01,
        0.1,
        1.0,
        10.0,
    ];

    /// The media type of what [`encode`](Prometheus::encode) writes.
    pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

    /// An adapter that is in no registry, with Kubernetes' buckets.
    pub fn new() -> Self {
        Self::with_bounds(Self::KUBERNETES_BOUNDS)
    }

    /// An adapter that is in no registry, with buckets of your own.
    ///
    /// Bounds are upper bounds in seconds, in any order. What is negative or no finite
    /// number is left out, and a last bucket takes all that is above the highest bound.
    /// Choose your own when keys wait or work for longer than ten seconds, where
    /// Kubernetes' bounds end.
    ///
    /// # Examples
    ///
    /// The bounds of controller-runtime, which go on to 1000 seconds:
    ///
    /// ```
    /// use requeue::metrics::Prometheus;
    ///
    /// let bounds = Prometheus::KUBERNETES_BOUNDS.into_iter().chain([100.0, 1000.0]);
    /// let prometheus = Prometheus::with_bounds(bounds);
    /// assert_eq!(prometheus.encode(), "", "no queue, no metrics");
    /// ```
    pub fn with_bounds(bounds: impl IntoIterator<Item = f64>) -> Self {
        let bounds = Arc::new(Bounds::new(bounds));
        let queues = Queues { bounds, by_name: Mutex::default() };
        Self { reports: Arc::new(Reports { queues, pools: Pools::new() }) }
    }

    /// Makes an adapter with Kubernetes' buckets and puts it into `registry`.
    ///
    /// A prefix or labels of the registry apply to these metrics too; with a prefix the
    /// names are no longer those of Kubernetes.
    pub fn register(registry: &mut Registry) -> Self {
        let prometheus = Self::new();
        prometheus.register_in(registry);
        prometheus
    }

    /// Puts this adapter into `registry`, once.
    pub fn register_in(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(Arc::clone(&self.reports)));
    }

    /// Writes all metrics in the text format of Prometheus, version 0.0.4.
    ///
    /// Serve it with [`Prometheus::CONTENT_TYPE`]. Where a registry is served already, use
    /// [`register`](Prometheus::register) and leave the writing to its encoder.
    pub fn encode(&self) -> String {
        Text(&self.reports.families()).to_string()
    }
}

impl Reports {
    /// Reads everything, sorted by name.
    fn families(&self) -> Vec<Family> {
        let families = self.queues.families().chain(self.pools.families());
        let mut families: Vec<_> = families.collect();
        families.sort_by_key(|family| family.name);
        families
    }
}

impl Queues {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Named>> {
        // Nothing that can panic stands between two changes that belong together.
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a queue; what counts its events comes back.
    fn join(&self, name: &str, probe: Probe) -> Arc<Totals> {
        let mut by_name = self.lock();
        let named = by_name.entry(name.to_owned()).or_insert_with(|| Named {
            totals: Arc::new(Totals::new(&self.bounds)),
            probes: Vec::new(),
        });
        named.probes.retain(|probe| !probe.is_gone()); // even if nobody ever scrapes
        named.probes.push(probe);
        Arc::clone(&named.totals)
    }

    /// Reads all metrics of all queues; each queue is looked at once.
    fn families(&self) -> impl Iterator<Item = Family> {
        let by_name = self.lock().clone();
        let samples: Vec<_> =
            by_name.into_iter().map(|(name, named)| named.read(name)).collect();
        CATALOGUE.iter().filter_map(move |metric| {
            let series = samples.iter().flat_map(|sample| {
                let labels = vec![("name", sample.name.clone())];
                metric.read(&labels, &sample.totals, sample.gauges.as_ref())
            });
            Family::new(metric, series.collect())
        })
    }
}

impl Named {
    fn read(self, name: String) -> Sample {
        // Before the totals are read: a queue that is looked at tells what it has counted.
        let gauges = self.probes.iter().filter_map(Probe::read).reduce(together);
        Sample { name, totals: self.totals, gauges }
    }
}

impl Metrics for Prometheus {
    fn queue(&self, name: &str, probe: Probe) -> Box<dyn Recorder> {
        Box::new(Events(self.reports.queues.join(name, probe)))
    }

    fn pool(&self, name: &str) -> Box<dyn PoolRecorder> {
        self.reports.pools.join(name)
    }
}

impl Recorder for Events {
    fn added(&self) {
        self.0.adds.fetch_add(1, Ordering::Relaxed);
    }

    fn got(&self, waited: Duration) {
        self.0.waited.observe(waited);
    }

    fn done(&self, worked: Duration) {
        self.0.worked.observe(worked);
    }

    fn added_many(&self, count: u64) {
        self.0.adds.fetch_add(count, Ordering::Relaxed);
    }

    fn got_many(&self, waited: Duration, count: u64) {
        self.0.waited.observe_many(waited, count);
    }

    fn done_many(&self, worked: Duration, count: u64) {
        self.0.worked.observe_many(worked, count);
    }

    fn delayed(&self) {
        self.0.retries.fetch_add(1, Ordering::Relaxed);
    }

    fn panicked(&self) {
        self.0.panics.fetch_add(1, Ordering::Relaxed);
    }
}

impl Default for Prometheus {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Prometheus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reports.fmt(f)
    }
}

impl fmt::Debug for Reports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.queues.lock().len();
        f.debug_struct("Prometheus").field("names", &names).finish_non_exhaustive()
    }
}
