//! The controller: watches, a queue and workers.

mod builder;
mod core;
mod engine;
mod fairness;
mod inbox;
mod intake;
mod launch;
mod run;
mod watches;
mod written;

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use kube::runtime::reflector::ObjectRef;
use requeue::Clock;
use requeue::metrics::Metrics;
use requeue::pool::Failure;
use requeue::rate::Limiter;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

pub use self::builder::{Config, Leader};
pub(crate) use self::core::Core;
pub(crate) use self::engine::{Engine, Phase};
pub use self::run::backoff;

use self::core::Watched;
use self::inbox::OwnerRule;
use crate::feed::{Filter, WatchFailure};
use crate::health::Health;
use crate::informer::Informer;
use crate::object::Object;

/// Reconciles objects of the kind `K`: kube-runtime's builder on the queue of `requeue`.
///
/// A controller watches objects of the kind `K`, and those that they
/// [own](Controller::owns) or that [map](Controller::watches) to them. Each change adds the
/// key of an object to a deduplicating queue. Workers take keys and call the reconciler.
///
/// | | |
/// |---|---|
/// | order | edits before listed objects, then first in, first out; nothing starves |
/// | one object | is reconciled by one worker at a time, and once more if it changes meanwhile |
/// | a failure | is retried with a backoff per object, which a success resets |
/// | a panic, a timeout | is a failure of that run; the others go on |
/// | a relist | takes effect when it is complete; objects that vanished are reconciled too |
/// | a failing watch | pauses alone |
/// | workers | start when all caches are filled, and only while this process leads |
/// | stopping | reconciles queued objects within a deadline, and returns what is left |
///
/// Use [`run`](Controller::run) with reconcilers of kube-runtime, or
/// [`start`](Controller::start) for a [`Handle`](crate::Handle), deleted objects and more
/// context.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::Api;
/// use kube::runtime::watcher;
/// use requeue_kube::{Action, Controller, Request};
/// # use requeue_kube::testing::FakeCluster;
///
/// async fn reconcile(request: Request<ConfigMap>, _: Arc<()>) -> Result<Action, kube::Error> {
///     match request.object {
///         Some(map) => println!("{} has {} entries", request.key, map.data.iter().len()),
///         None => println!("{} is gone", request.key),
///     }
///     Ok(Action::await_change())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = FakeCluster::new().client();
/// let maps = Api::<ConfigMap>::all(client);
/// let controller = Controller::new(maps, watcher::Config::default())
///     .workers(8)
///     .timeout(Duration::from_secs(60))
///     .start(reconcile, Arc::new(()))?;
/// controller.synced().await?;
/// let stopped = controller.drain(Duration::from_secs(30)).await;
/// assert!(stopped.left.is_empty());
/// # Ok(())
/// # }
/// ```
#[must_use = "a controller does nothing until it is started"]
pub struct Controller<K: Object> {
    root: Informer<K>,
    filter: Option<Filter<K>>,
    watched: Vec<Watched>,
    feeds: Vec<StartFeed<K>>,
    /// Informers that live as long as the controller.
    keep: Vec<Box<dyn Any + Send>>,
    owner_rule: OwnerRule,
    queue: requeue::Builder<ObjectRef<K>>,
    name: String,
    workers: usize,
    limiter: Option<Limiter>,
    timeout: Option<Duration>,
    max_retries: Option<u32>,
    on_dead: Option<Callback<K>>,
    on_failure: Option<Callback<K>>,
    debounce: Option<Duration>,
    resync: Option<Duration>,
    sync_timeout: Duration,
    shutdown_timeout: Duration,
    shutdown: Vec<BoxFuture<'static, ()>>,
    metrics: Option<Arc<dyn Metrics>>,
    clock: Option<Arc<dyn Clock>>,
    health: Option<Health>,
    leader: Option<Leader>,
    watch_failures: Option<mpsc::Sender<WatchFailure>>,
}

type Callback<K> = Box<dyn Fn(&ObjectRef<K>, &Failure) + Send + Sync>;

/// Starts a task that adds keys, when the controller starts.
type StartFeed<K> = Box<dyn FnOnce(&Arc<Core<K>>) -> Option<AbortHandle> + Send>;

impl<K: Object> fmt::Debug for Controller<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("name", &self.name)
            .field("workers", &self.workers)
            .field("watches", &self.watched.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
