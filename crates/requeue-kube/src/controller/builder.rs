//! The settings of a controller.

use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use kube::Api;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{Predicate, watcher};
use requeue::metrics::Metrics;
use requeue::order::{Order, Priority};
use requeue::pool::Failure;
use requeue::rate::Limiter;
use requeue::retry::RetryPolicy;
use requeue::{Clock, Queue};

use super::Controller;
use super::core::Watched;
use super::fairness::FairNamespaces;
use super::inbox::OwnerRule;
use crate::election::{Candidate, Election};
use crate::feed::Filter;
use crate::health::Health;
use crate::index::Index;
use crate::informer::Informer;
use crate::object::Object;

const SYNC_TIMEOUT: Duration = Duration::from_secs(120);
/// Below the 30 s after which Kubernetes kills a container.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(25);
const MAX_DEFAULT_WORKERS: usize = 16;

/// Settings that kube-runtime's `controller::Config` has, for
/// [`Controller::with_config`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use requeue_kube::Config;
///
/// let config = Config::default().debounce(Duration::from_secs(1)).concurrency(8);
/// # drop(config);
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[must_use = "settings have an effect only in a controller"]
pub struct Config {
    debounce: Duration,
    concurrency: u16,
}

impl Config {
    /// Waits until an object has not changed for this long, at most ten times as long.
    pub fn debounce(mut self, debounce: Duration) -> Self {
        self.debounce = debounce;
        self
    }

    /// Sets the number of workers. With 0, the default of the controller remains.
    pub fn concurrency(mut self, concurrency: u16) -> Self {
        self.concurrency = concurrency;
        self
    }
}

/// The election that a controller follows: its own, or one of the whole process.
#[derive(Debug)]
#[non_exhaustive]
pub enum Leader {
    /// An election that starts with the controller, and releases the Lease when it stops.
    Own(Box<Election>),
    /// An election that several controllers share. Stop it after all of them.
    Shared(Candidate),
}

impl From<Election> for Leader {
    fn from(election: Election) -> Self {
        Self::Own(Box::new(election))
    }
}

impl From<Candidate> for Leader {
    fn from(candidate: Candidate) -> Self {
        Self::Shared(candidate)
    }
}

impl From<&Candidate> for Leader {
    fn from(candidate: &Candidate) -> Self {
        Self::Shared(candidate.clone())
    }
}

impl<K: Object> Controller<K>
where
    K::DynamicType: Default,
{
    /// Creates a controller of the objects of an `Api`.
    pub fn new(api: Api<K>, config: watcher::Config) -> Self {
        Self::new_with(api, config, K::DynamicType::default())
    }
}

impl<K: Object> Controller<K> {
    /// As [`new`](Self::new), for kinds that are known at run time only.
    pub fn new_with(
        api: Api<K>,
        config: watcher::Config,
        dynamic: K::DynamicType,
    ) -> Self {
        Self::for_informer(&Informer::new_with(api, config, dynamic))
    }

    /// Creates a controller of the objects of a shared store.
    #[doc(alias = "for_shared_stream")]
    pub fn for_informer(informer: &Informer<K>) -> Self {
        let dynamic = informer.dynamic();
        let (group, kind) =
            (K::group(dynamic).into_owned(), K::kind(dynamic).into_owned());
        let name = kind.to_lowercase();
        let monitor = Arc::clone(informer.monitor());
        Self {
            root: informer.clone(),
            filter: None,
            watched: vec![Watched { group, kind, monitor }],
            feeds: Vec::new(),
            keep: Vec::new(),
            owner_rule: OwnerRule::All,
            queue: Queue::builder().order(Priority::new()).absorb_delays(true),
            name,
            workers: default_workers(),
            limiter: None,
            timeout: None,
            max_retries: None,
            on_dead: None,
            on_failure: None,
            debounce: None,
            resync: None,
            sync_timeout: SYNC_TIMEOUT,
            shutdown_timeout: SHUTDOWN_TIMEOUT,
            shutdown: Vec::new(),
            metrics: None,
            clock: None,
            health: None,
            leader: None,
            watch_failures: None,
        }
    }

    /// Returns the store of the reconciled objects. It is empty until the controller runs.
    ///
    /// Wait for it with [`Handle::synced`](crate::Handle::synced): kube's
    /// `Store::wait_until_ready` hangs if two tasks wait.
    pub fn store(&self) -> Store<K> {
        self.root.store()
    }

    /// Indexes the store of the reconciled objects; see [`Index`].
    pub fn index<V>(&self, values: impl Fn(&K) -> Vec<V> + Send + 'static) -> Index<K, V>
    where
        V: Eq + Hash + Send + Sync + 'static,
    {
        self.root.index(values)
    }

    /// Sets kube-runtime's settings.
    pub fn with_config(mut self, config: Config) -> Self {
        if config.concurrency > 0 {
            self.workers = config.concurrency.into();
        }
        self.debounce = Some(config.debounce).filter(|debounce| !debounce.is_zero());
        self
    }

    /// Names the controller, for metrics and traces. The default is the kind in lower case.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the number of workers. The default is four per core, at most 16.
    #[doc(alias = "MaxConcurrentReconciles")]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// Sets the retry policy of failed objects. The default is 5 ms, doubling to 1000 s.
    #[doc(alias = "RateLimiter")]
    pub fn retry(mut self, policy: impl RetryPolicy<ObjectRef<K>> + 'static) -> Self {
        self.queue = self.queue.retry(policy);
        self
    }

    /// Limits how often in a row an object is retried. The default is unlimited.
    ///
    /// An object whose last retry fails is dead: it is reconciled again when it changes.
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.max_retries = Some(retries);
        self
    }

    /// Calls `callback` with each object that is dead, because of
    /// [`max_retries`](Self::max_retries) or [`Action::give_up`](crate::Action::give_up).
    pub fn on_dead(
        mut self,
        callback: impl Fn(&ObjectRef<K>, &Failure) + Send + Sync + 'static,
    ) -> Self {
        self.on_dead = Some(Box::new(callback));
        self
    }

    /// Sets the order of queued objects. The default is
    /// [`Priority`] with ageing: changed objects overtake listed ones.
    pub fn order(mut self, order: impl Order<ObjectRef<K>> + 'static) -> Self {
        self.queue = self.queue.order(order);
        self
    }

    /// Lets namespaces take turns, so that a busy one does not hold up the others.
    ///
    /// Changed objects still overtake listed ones.
    pub fn fair_namespaces(self) -> Self {
        self.order(FairNamespaces::new())
    }

    /// Limits the rate at which runs start, of all objects together.
    pub fn rate(mut self, limiter: Limiter) -> Self {
        self.limiter = Some(limiter);
        self
    }

    /// Limits the time of one run. A run that exceeds it is cancelled and retried.
    #[doc(alias = "ReconciliationTimeout")]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Reconciles all objects once in each period, spread over it, with low priority.
    ///
    /// The period is at least one second.
    #[doc(alias = "SyncPeriod")]
    pub fn resync(mut self, every: Duration) -> Self {
        self.resync = Some(every.max(Duration::from_secs(1)));
        self
    }

    /// Ignores changes of root objects that leave a property unchanged.
    ///
    /// Deletes always pass, and so does a recreated object. kube's
    /// [`predicates`](kube::runtime::predicates) can be used; with `generation`, the
    /// controller's own changes of the status do not trigger a run.
    ///
    /// # Examples
    ///
    /// ```
    /// # use k8s_openapi::api::apps::v1::Deployment;
    /// # use kube::Api;
    /// use kube::runtime::{predicates, watcher};
    /// use requeue_kube::Controller;
    ///
    /// fn controller(deployments: Api<Deployment>) -> Controller<Deployment> {
    ///     Controller::new(deployments, watcher::Config::default())
    ///         .predicate(predicates::generation)
    /// }
    /// ```
    #[doc(alias = "WithEventFilter")]
    pub fn predicate(mut self, predicate: impl Predicate<K> + Send + 'static) -> Self {
        self.filter = Some(Filter::new(predicate));
        self
    }

    /// Lets only owner references with `controller: true` count, for all owned kinds.
    pub fn controller_owners_only(mut self) -> Self {
        self.owner_rule = OwnerRule::ControllerOnly;
        self
    }

    /// Limits the time until all caches are filled. The default is two minutes.
    ///
    /// The controller then stops with a [`SyncError`](crate::SyncError).
    #[doc(alias = "CacheSyncTimeout")]
    pub fn sync_timeout(mut self, within: Duration) -> Self {
        self.sync_timeout = within;
        self
    }

    /// Limits the time of a graceful shutdown. The default is 25 s.
    #[doc(alias = "GracefulShutdownTimeout")]
    pub fn shutdown_timeout(mut self, within: Duration) -> Self {
        self.shutdown_timeout = within;
        self
    }

    /// Drains and stops the controller when `stop` is ready.
    ///
    /// Queued objects are reconciled until the [deadline](Self::shutdown_timeout).
    pub fn graceful_shutdown_on(
        mut self,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        self.shutdown.push(Box::pin(stop));
        self
    }

    /// Drains and stops the controller at Ctrl-C and, on Unix, at SIGTERM.
    pub fn shutdown_on_signal(self) -> Self {
        self.graceful_shutdown_on(signal())
    }

    /// Sets the metrics of the queue and of the workers. By default nothing is measured.
    pub fn metrics(mut self, metrics: impl Metrics + 'static) -> Self {
        self.metrics = Some(Arc::new(metrics));
        self
    }

    /// Sets the clock for delays, timeouts and pauses. The default is the system's.
    ///
    /// Tests use `TokioClock` of `requeue` with tokio's paused time.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Reports to `health` whether the caches are filled and the controller runs.
    pub fn health(mut self, health: &Health) -> Self {
        self.health = Some(health.clone());
        self
    }

    /// Reconciles only while this process leads an election.
    ///
    /// The caches and the queue fill up before. When a term ends, running reconcilers are
    /// cancelled at their next await, without counting a failure, and the workers pause until
    /// the next term. An [`Election`] belongs to this controller, which releases the Lease as
    /// its last step. A [`Candidate`] can be shared by several controllers.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use kube::{Api, runtime::watcher};
    /// use requeue_kube::{Action, Controller, Election, Request};
    /// # use requeue_kube::testing::FakeCluster;
    ///
    /// async fn reconcile(request: Request<ConfigMap>, _: Arc<()>) -> Result<Action, kube::Error> {
    ///     if let Some(term) = &request.term {
    ///         println!("reconciling {} in term {}", request.key, term.number());
    ///     }
    ///     Ok(Action::await_change())
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = FakeCluster::new().client();
    /// # let maps = Api::<ConfigMap>::all(client.clone());
    /// let controller = Controller::new(maps, watcher::Config::default())
    ///     .leader(Election::new(client, "default", "my-controller"))
    ///     .start(reconcile, Arc::new(()))?;
    /// # controller.synced().await?;
    /// controller.drain(Duration::from_secs(25)).await; // releases the Lease
    /// # Ok(())
    /// # }
    /// ```
    pub fn leader(mut self, leader: impl Into<Leader>) -> Self {
        self.leader = Some(leader.into());
        self
    }
}

fn default_workers() -> usize {
    let cores = available_parallelism().map_or(1, usize::from);
    (4 * cores).min(MAX_DEFAULT_WORKERS)
}

/// Waits for Ctrl-C or SIGTERM. Without a handler for one, the other still works.
async fn signal() {
    let interrupt = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = interrupt => {}
        () = terminate() => {}
    }
}

#[cfg(unix)]
async fn terminate() {
    use tokio::signal::unix::{SignalKind, signal};
    let received = match signal(SignalKind::terminate()) {
        Ok(mut signals) => signals.recv().await,
        Err(_) => None,
    };
    if received.is_none() {
        std::future::pending::<()>().await;
    }
}

#[cfg(not(unix))]
async fn terminate() {
    std::future::pending().await
}
