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

use super::{Gauges, Metrics, PoolRecorder, Probe, Recorder, Tally};
use catalogue::{CATALOGUE, Totals};
use family::{Family, Labels, Value};
use gauges::merge;
use histogram::Bounds;
use pools::Pools;
use text::Text;

/// Exposes the metrics of queues and pools to Prometheus.
///
/// The seven metrics that start with `workqueue_` have the names, types, label (`name`), help
/// texts and bucket bounds of Kubernetes, so existing dashboards and alerts work. Those of
/// [pools](crate::pool) have the names of controller-runtime. All others start with
/// `requeue_`. `docs/METRICS.md` lists them all.
///
/// Clones share their metrics: give one to the builder of every queue. Queues update
/// counters and histograms as events happen. Gauges are computed by each scrape.
///
/// # Two ways to scrape
///
/// [`register`](Prometheus::register) adds the metrics to a registry of prometheus-client,
/// whose encoder writes `OpenMetrics`. [`encode`](Prometheus::encode) needs no registry and
/// writes the older text format, exactly as Kubernetes does. Prometheus stores the same
/// names, types and values from both; only bucket bounds are spelt differently (`le="1e-8"`
/// and `le="1e-08"`).
///
/// # Queues of the same name
///
/// They share their series: counters and histograms count for all of them, gauges are added
/// up, and the longest running worker is the longest of all. The gauges of a name disappear
/// when its last queue is dropped. Its counters stay, so that the next scrape sees the work
/// of a short-lived queue. For the same reason, a program that keeps creating queues should
/// not give each of them a new name.
///
/// # Queues on a store
///
/// Queues of the crate `requeue-store` use the same builder method. Their counters are those
/// of this process. Their numbers of keys are those of the whole queue when the store was
/// last asked: call `SharedQueue::stats` before a scrape. Across processes that work on one
/// queue, add up the counters and take the highest number of keys.
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

/// The queues and pools that report to one [`Prometheus`].
struct Reports {
    queues: Queues,
    pools: Pools,
}

/// The queues that report to one [`Prometheus`].
struct Queues {
    bounds: Arc<Bounds>,
    /// Not held while a probe is read, which takes the lock of a queue.
    by_name: Mutex<BTreeMap<String, Named>>,
}

/// The queues of one name.
struct Named {
    /// What recorders have counted, and the tallies of dropped queues.
    totals: Arc<Totals>,
    /// The tally of each queue that counts under its own lock.
    tallies: Vec<Arc<Totals>>,
    probes: Vec<Probe>,
}

/// The queues of one name when they are scraped.
struct Sample {
    name: String,
    totals: Totals,
    /// `None` after the last queue of that name is dropped.
    gauges: Option<Gauges>,
}

/// Records the events of one queue.
struct Events(Arc<Totals>);

impl Prometheus {
    /// The bucket bounds of Kubernetes, in seconds.
    ///
    /// Two of them differ from a power of ten in the last digit, because Kubernetes computes
    /// them by repeated multiplication.
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

    /// The media type of the text that [`encode`](Prometheus::encode) returns.
    pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

    /// Creates an adapter with the buckets of Kubernetes, outside of any registry.
    pub fn new() -> Self {
        Self::with_bounds(Self::KUBERNETES_BOUNDS)
    }

    /// Creates an adapter with your own buckets, outside of any registry.
    ///
    /// Bounds are upper bounds in seconds, in any order. Negative, infinite and NaN bounds are
    /// ignored. A last bucket takes everything above the highest bound. The bounds of
    /// Kubernetes end at ten seconds: choose your own if keys wait or run for longer.
    ///
    /// # Examples
    ///
    /// The bounds of controller-runtime, up to 1000 seconds:
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

    /// Creates an adapter with the buckets of Kubernetes and registers it.
    ///
    /// A prefix or labels of the registry apply to these metrics too. With a prefix, the
    /// names are no longer those of Kubernetes.
    pub fn register(registry: &mut Registry) -> Self {
        let prometheus = Self::new();
        prometheus.register_in(registry);
        prometheus
    }

    /// Registers this adapter. Call it once per registry.
    pub fn register_in(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(Arc::clone(&self.reports)));
    }

    /// Returns all metrics in the text format of Prometheus, version 0.0.4.
    ///
    /// Serve it with [`Prometheus::CONTENT_TYPE`]. If your program already serves a registry,
    /// use [`register`](Prometheus::register) instead.
    pub fn encode(&self) -> String {
        Text(&self.reports.families()).to_string()
    }

    /// Returns counters for a queue that updates them under its own lock.
    pub(super) fn tally(&self, name: &str) -> Arc<dyn Tally> {
        self.reports.queues.tally(name)
    }
}

impl Reports {
    /// Reads everything, sorted by name.
    fn families(&self) -> Vec<Family> {
        let mut families = self.queues.families();
        families.extend(self.pools.families());
        families.sort_by_key(|family| family.name);
        families
    }
}

impl Queues {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Named>> {
        // No code between two related changes can panic.
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a queue and returns the counters of its name.
    fn join(&self, name: &str, probe: Probe) -> Arc<Totals> {
        self.with_name(name, |named| {
            named.forget_dropped(); // a program may never be scraped
            named.probes.push(probe);
            Arc::clone(&named.totals)
        })
    }

    /// Returns a new tally for a queue of this name.
    fn tally(&self, name: &str) -> Arc<Totals> {
        let tally = Arc::new(Totals::new(&self.bounds));
        self.with_name(name, |named| named.tallies.push(Arc::clone(&tally)));
        tally
    }

    fn with_name<R>(&self, name: &str, change: impl FnOnce(&mut Named) -> R) -> R {
        let mut by_name = self.lock();
        change(by_name.entry(name.to_owned()).or_insert_with(|| Named {
            totals: Arc::new(Totals::new(&self.bounds)),
            tallies: Vec::new(),
            probes: Vec::new(),
        }))
    }

    /// Reads all metrics of all queues. Each queue is locked once.
    fn families(&self) -> Vec<Family> {
        let samples = self.samples();
        let families = CATALOGUE.iter().filter_map(|metric| {
            let series = samples.iter().flat_map(|sample| {
                metric.read(&sample.labels(), &sample.totals, sample.gauges.as_ref())
            });
            Family::new(metric, series.collect())
        });
        families.chain(extra_families(&samples)).collect()
    }

    fn samples(&self) -> Vec<Sample> {
        // Counters are added up under the lock, so that no tally is merged twice.
        let read = |(name, named): (&String, &Named)| {
            (name.clone(), named.sum(&self.bounds), named.probes.clone())
        };
        let by_name: Vec<_> = self.lock().iter().map(read).collect();
        let gauges =
            |probes: &[Probe]| probes.iter().filter_map(Probe::read).reduce(merge);
        let sample = |(name, totals, probes): (_, _, Vec<_>)| Sample {
            name,
            totals,
            gauges: gauges(&probes),
        };
        by_name.into_iter().map(sample).collect()
    }
}

/// Reads the gauges that only some queues have.
fn extra_families(samples: &[Sample]) -> impl Iterator<Item = Family> {
    let mut families: BTreeMap<&str, Family> = BTreeMap::new();
    for sample in samples {
        for gauge in sample.gauges.iter().flat_map(|gauges| &gauges.extra) {
            let family = families.entry(gauge.name).or_insert_with(|| Family::of(gauge));
            family.series.push((sample.labels(), Value::Gauge(gauge.value)));
        }
    }
    families.into_values()
}

impl Sample {
    fn labels(&self) -> Labels {
        vec![("name", self.name.clone())]
    }
}

impl Named {
    /// Adds up the counters of all queues.
    fn sum(&self, bounds: &Arc<Bounds>) -> Totals {
        let sum = Totals::new(bounds);
        sum.merge(&self.totals);
        self.tallies.iter().for_each(|tally| sum.merge(tally));
        sum
    }

    /// Frees what belongs to dropped queues. Their counters stay, in the totals.
    fn forget_dropped(&mut self) {
        let Self { totals, tallies, probes } = self;
        probes.retain(|probe| !probe.is_dropped());
        tallies.retain_mut(|tally| match Arc::get_mut(tally) {
            None => true,
            Some(last) => {
                totals.merge(last);
                false
            }
        });
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
