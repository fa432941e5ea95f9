//! A running controller.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kube::Resource;
use kube::runtime::reflector::{ObjectRef, Store};
use requeue::Queue;
use requeue::pool::Stopped;

use crate::controller::{Engine, Phase};
use crate::election::Term;
use crate::error::SyncError;
use crate::feed::WatchStatus;
use crate::object::Object;

/// A running controller; from [`Controller::start`](crate::Controller::start).
///
/// Clones refer to the same controller. Dropping all of them does not stop it:
/// [`drain`](Handle::drain) and [`stop`](Handle::stop) do.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use kube::{Api, runtime::watcher};
/// # use requeue_kube::{Action, Controller, Request, testing::FakeCluster};
/// # async fn reconcile(_: Request<ConfigMap>, _: Arc<()>) -> Result<Action, kube::Error> {
/// #     Ok(Action::await_change())
/// # }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let maps = Api::<ConfigMap>::all(FakeCluster::new().client());
/// # let controller = Controller::new(maps, watcher::Config::default());
/// let handle = controller.start(reconcile, Arc::new(()))?;
/// handle.synced().await?;
/// handle.set_workers(4);
/// for watch in handle.watches() {
///     println!("{}: {} lists, {} events", watch.kind, watch.lists, watch.events);
/// }
/// let stopped = handle.drain(Duration::from_secs(25)).await;
/// println!("not reconciled: {:?}", stopped.left);
/// # Ok(())
/// # }
/// ```
pub struct Handle<K: Object> {
    pub(crate) engine: Arc<Engine<K>>,
}

impl<K: Object> Handle<K> {
    /// Returns the queue of keys, for example to add one or to count them.
    pub fn queue(&self) -> &Queue<ObjectRef<K>> {
        self.engine.queue()
    }

    /// Returns the store of the reconciled objects.
    pub fn store(&self) -> Store<K> {
        self.engine.store()
    }

    /// Returns the state of each watch.
    pub fn watches(&self) -> Vec<WatchStatus> {
        self.engine.watches()
    }

    /// Returns the configured number of workers.
    ///
    /// They work when the caches are filled and, with an election, during a term.
    pub fn workers(&self) -> usize {
        self.engine.wanted_workers()
    }

    /// Changes the number of workers. Surplus workers leave after their run.
    pub fn set_workers(&self, workers: usize) {
        self.engine.set_workers(workers);
    }

    /// Returns the current term, if there is an election and this process leads.
    pub fn term(&self) -> Option<Term> {
        self.engine.term()
    }

    /// Waits until all caches are filled.
    ///
    /// Any number of tasks can wait at the same time.
    ///
    /// # Errors
    ///
    /// If that takes longer than the
    /// [sync timeout](crate::Controller::sync_timeout), or the controller stops first.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn synced(&self) -> Result<(), SyncError> {
        match self.engine.reached(|phase| *phase != Phase::Warming).await {
            Phase::Failed(error) => Err(error),
            Phase::Stopped | Phase::Warming => Err(SyncError::Stopped),
            Phase::Synced => Ok(()),
        }
    }

    /// Waits until the controller has stopped.
    ///
    /// # Errors
    ///
    /// If it stopped because its caches were not filled in time.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn stopped(&self) -> Result<(), SyncError> {
        let end = |phase: &Phase| matches!(phase, Phase::Stopped | Phase::Failed(_));
        match self.engine.reached(end).await {
            Phase::Failed(error) => Err(error),
            Phase::Stopped | Phase::Warming | Phase::Synced => Ok(()),
        }
    }

    /// Reconciles all queued objects and stops, within a deadline.
    ///
    /// Returns the keys that are left: those that were not reached, that wait for a delay or
    /// a retry, and that were still running. The Lease of an election that this controller
    /// owns is released last.
    ///
    /// # Cancel safety
    ///
    /// The queue closes with the first poll and stays closed. Call this, or
    /// [`stop`](Self::stop), once more.
    pub async fn drain(&self, within: Duration) -> Stopped<ObjectRef<K>> {
        self.engine.drain(within).await
    }

    /// Finishes the current runs and stops, within a deadline. Otherwise as
    /// [`drain`](Self::drain).
    pub async fn stop(&self, within: Duration) -> Stopped<ObjectRef<K>> {
        self.engine.stop(within).await
    }

    /// Records a write: `key` is not reconciled again before the caches have seen it.
    ///
    /// As [`Request::wrote`](crate::Request::wrote), for code outside of a reconciler.
    pub fn wrote<O>(&self, key: &ObjectRef<K>, written: &O)
    where
        O: Resource,
        O::DynamicType: Default,
    {
        self.engine.wrote(key, written, &O::DynamicType::default());
    }
}

impl<K: Object> Clone for Handle<K> {
    fn clone(&self) -> Self {
        Self { engine: Arc::clone(&self.engine) }
    }
}

impl<K: Object> fmt::Debug for Handle<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("queue", self.queue())
            .field("workers", &self.workers())
            .finish_non_exhaustive()
    }
}
