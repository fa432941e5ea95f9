//! A running controller: when its workers start, pause and stop.
//!
//! ```text
//! warming ── all caches synced ──► waiting for a term ──► working
//!    │                                   ▲                   │ term ends
//!    │ sync timeout                      └───────────────────┘
//!    └──► stopped ◄── shutdown, drain, stop
//! ```

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, join_all, pending, select_all};
use kube::Resource;
use kube::runtime::reflector::{ObjectRef, Store};
use requeue::pool::{Handle as PoolHandle, Stopped};
use requeue::{Clock, Queue};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::core::Core;
use super::intake::Intake;
use crate::election::{Candidate, Term};
use crate::error::SyncError;
use crate::feed::WatchStatus;
use crate::informer::Informer;
use crate::object::Object;

/// How far a controller has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Warming,
    Synced,
    /// The caches were not filled in time.
    Failed(SyncError),
    Stopped,
}

/// A running controller.
pub(crate) struct Engine<K: Object> {
    pub(super) core: Arc<Core<K>>,
    pub(super) pool: PoolHandle<Intake<K>>,
    pub(super) workers: Mutex<Workers>,
    pub(super) phase: watch::Sender<Phase>,
    /// The feeds and timers, which end with the controller.
    pub(super) tasks: Mutex<Vec<AbortHandle>>,
    /// Informers, whose watches live as long as the controller.
    pub(super) keep: Mutex<Option<Keep<K>>>,
    /// The election, and whether this controller ends it.
    pub(super) candidate: Option<(Candidate, bool)>,
}

/// The informer of the root objects, and those of other kinds.
pub(super) type Keep<K> = (Informer<K>, Vec<Box<dyn Any + Send>>);

/// The wanted workers, and whether they may work now.
#[derive(Debug)]
pub(super) struct Workers {
    pub(super) wanted: usize,
    pub(super) active: bool,
}

/// What the supervisor waits for.
pub(super) struct Plan {
    pub(super) sync_timeout: Duration,
    pub(super) shutdown_timeout: Duration,
    pub(super) shutdown: Vec<BoxFuture<'static, ()>>,
}

impl<K: Object> Engine<K> {
    /// Runs the phases of the controller until it stops.
    pub(super) async fn supervise(self: Arc<Self>, plan: Plan) {
        let mut shutdown: BoxFuture<'static, ()> = if plan.shutdown.is_empty() {
            Box::pin(pending())
        } else {
            Box::pin(async { drop(select_all(plan.shutdown).await) })
        };
        let mut stopped = self.phase.subscribe();
        let ended = async {
            let end = |phase: &Phase| matches!(phase, Phase::Stopped | Phase::Failed(_));
            stopped.wait_for(end).await.map(drop).unwrap_or_default();
        };
        tokio::select! {
            () = &mut shutdown => self.shut_down(plan.shutdown_timeout).await,
            () = self.work(plan.sync_timeout) => {}
            () = ended => {}
        }
    }

    /// Waits for the caches, then follows the terms of the election.
    async fn work(&self, sync_timeout: Duration) {
        if let Err(error) = self.sync(sync_timeout).await {
            tracing::error!(%error, "the controller stops");
            self.fail(error).await;
            return;
        }
        self.phase.send_replace(Phase::Synced);
        match &self.candidate {
            None => self.set_active(true),
            Some((candidate, _)) => {
                self.follow_terms(candidate.terms()).await;
                tracing::warn!("the election has ended; the controller stops");
                drop(self.stop(Duration::ZERO).await);
            }
        }
        pending::<()>().await;
    }

    async fn sync(&self, within: Duration) -> Result<(), SyncError> {
        let synced =
            join_all(self.core.watched.iter().map(|watched| watched.monitor.synced()));
        let clock = &self.core.clock;
        let timeout = async {
            match clock.now().checked_add(within) {
                Some(deadline) => clock.timer(deadline).await,
                None => pending().await,
            }
        };
        tokio::select! {
            _ = synced => Ok(()),
            () = timeout => Err(self.not_synced(within)),
        }
    }

    fn not_synced(&self, within: Duration) -> SyncError {
        let missing = self.core.watched.iter().filter(|w| !w.monitor.is_synced());
        let statuses: Vec<_> = missing.map(|watched| watched.monitor.status()).collect();
        let last_error =
            statuses.iter().rev().find_map(|status| status.last_error.clone());
        SyncError::TimedOut {
            within,
            kinds: statuses.into_iter().map(|status| status.kind).collect(),
            last_error: last_error.unwrap_or_else(|| "none".to_owned()),
        }
    }

    /// Lets workers work during terms, until the election ends.
    ///
    /// The end of a term cancels its runs by itself; see `TermExpiry`.
    async fn follow_terms(&self, mut terms: watch::Receiver<Option<Term>>) {
        loop {
            let held =
                terms.wait_for(|term| term.as_ref().is_some_and(Term::is_held)).await;
            let Some(term) = held.ok().and_then(|term| term.clone()) else {
                return;
            };
            tracing::info!(term = term.number(), "leading; workers start");
            self.set_active(true);
            term.ended().await;
            self.set_active(false);
            tracing::warn!(term = term.number(), "the term has ended; workers stop");
        }
    }

    pub(super) fn set_active(&self, active: bool) {
        let mut workers = self.workers();
        workers.active = active;
        self.resize(&workers);
    }

    /// Returns the wanted number of workers.
    pub(crate) fn wanted_workers(&self) -> usize {
        self.workers().wanted
    }

    pub(crate) fn set_workers(&self, wanted: usize) {
        let mut workers = self.workers();
        workers.wanted = wanted;
        self.resize(&workers);
    }

    /// Called with the lock held, so that the last change of both wins.
    fn resize(&self, workers: &Workers) {
        let count = if workers.active { workers.wanted } else { 0 };
        if let Err(error) = self.pool.set_workers(count) {
            tracing::error!(%error, "cannot start workers");
        }
    }

    fn workers(&self) -> MutexGuard<'_, Workers> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn queue(&self) -> &Queue<ObjectRef<K>> {
        &self.core.inbox.queue
    }

    pub(crate) fn store(&self) -> Store<K> {
        self.core.store.clone()
    }

    pub(crate) fn watches(&self) -> Vec<WatchStatus> {
        self.core.watched.iter().map(|watched| watched.monitor.status()).collect()
    }

    pub(crate) fn term(&self) -> Option<Term> {
        self.candidate.as_ref().and_then(|(candidate, _)| candidate.term())
    }

    /// Waits for a phase, and returns it.
    pub(crate) async fn reached(&self, is_reached: impl FnMut(&Phase) -> bool) -> Phase {
        let mut phases = self.phase.subscribe();
        let phase = phases.wait_for(is_reached).await.map(|phase| phase.clone());
        phase.unwrap_or(Phase::Stopped)
    }

    pub(crate) fn wrote<O: Resource>(
        &self,
        key: &ObjectRef<K>,
        written: &O,
        dynamic: &O::DynamicType,
    ) {
        self.core.wrote(key, written, dynamic);
    }

    /// Processes the ready keys, then stops.
    pub(crate) async fn drain(&self, within: Duration) -> Stopped<ObjectRef<K>> {
        let stopped = self.pool.drain(within).await;
        self.end(Phase::Stopped, within).await;
        stopped
    }

    /// Finishes the current runs, then stops.
    pub(crate) async fn stop(&self, within: Duration) -> Stopped<ObjectRef<K>> {
        let stopped = self.pool.stop(within).await;
        self.end(Phase::Stopped, within).await;
        stopped
    }

    async fn shut_down(&self, within: Duration) {
        let stopped = self.drain(within).await;
        let (running, left) = (stopped.still_running.len(), stopped.left.len());
        tracing::info!(running, left, "the controller has stopped");
    }

    async fn fail(&self, error: SyncError) {
        drop(self.pool.stop(Duration::ZERO).await);
        self.end(Phase::Failed(error), Duration::ZERO).await;
    }

    /// Ends the feeds, then releases the Lease, which is the last step.
    async fn end(&self, phase: Phase, within: Duration) {
        self.abort_tasks();
        if let Some((candidate, true)) = &self.candidate {
            candidate.stop(within.max(MIN_RELEASE)).await;
        }
        self.phase.send_if_modified(|current| {
            let first = !matches!(current, Phase::Stopped | Phase::Failed(_));
            if first {
                *current = phase;
            }
            first
        });
    }

    pub(super) fn abort_tasks(&self) {
        let tasks = std::mem::take(
            &mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner),
        );
        tasks.iter().for_each(AbortHandle::abort);
        drop(self.keep.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// The least time for the request that releases a Lease.
const MIN_RELEASE: Duration = Duration::from_secs(1);
