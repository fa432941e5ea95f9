//! The start of a controller.

use std::error::Error as StdError;
use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::runtime::reflector::ObjectRef;
use requeue::metrics::{Metrics, PoolRecorder, Probe, Recorder};
use requeue::pool::{Failed, Handle as PoolHandle, Pool};
use requeue::{Clock, Finish, SystemClock};
use tokio::sync::watch;

use super::builder::Leader;
use super::core::Core;
use super::engine::{Engine, Phase, Plan, Workers};
use super::inbox::Inbox;
use super::intake::{Gate, Intake};
use super::written::Writes;
use super::{Callback, Controller};
use crate::action::Action;
use crate::election::Candidate;
use crate::feed::Filter;
use crate::handle::Handle;
use crate::object::{Object, Scope};
use crate::reasons::Reasons;
use crate::request::Request;

impl<K: Object> Controller<K> {
    /// Starts the controller in tasks of the current tokio runtime, and returns at once.
    ///
    /// `reconcile` is called for each object that needs it, also for objects that are gone:
    /// [`Request::object`] is then `None`. An error is retried with backoff. The future is
    /// dropped at an await if the run exceeds its [timeout](Self::timeout), at the deadline
    /// of a stop, or when a term ends, so it must be cancel safe.
    ///
    /// # Errors
    ///
    /// If there is no current runtime, or the settings of the election contradict each other.
    pub fn start<F, Fut, E, C>(
        self,
        reconcile: F,
        context: Arc<C>,
    ) -> io::Result<Handle<K>>
    where
        F: Fn(Request<K>, Arc<C>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Action, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
        C: Send + Sync + 'static,
    {
        self.launch(move |request| {
            let reconciled = reconcile(request, Arc::clone(&context));
            async move {
                let action = reconciled
                    .await
                    .map_err(|error| Failed::new(error, Finish::Retry))?;
                Ok(action.finish())
            }
        })
    }

    /// Starts everything. Workers begin when the supervisor says so.
    pub(super) fn launch<Fut>(
        mut self,
        reconcile: impl Fn(Request<K>) -> Fut + Send + Sync + 'static,
    ) -> io::Result<Handle<K>>
    where
        Fut: Future<Output = Result<Finish, Failed>> + Send + 'static,
    {
        let runtime = tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
        let candidate = self.leader.take().map(candidate).transpose()?;
        let plan = Plan {
            sync_timeout: self.sync_timeout,
            shutdown_timeout: self.shutdown_timeout,
            shutdown: std::mem::take(&mut self.shutdown),
        };
        let (wanted, feeds) = (self.workers, std::mem::take(&mut self.feeds));
        let (keep, resync) = (std::mem::take(&mut self.keep), self.resync);
        let (root, filter) = (self.root.clone(), self.filter.take());
        let (health, name) = (self.health.take(), self.name.clone());
        let watch_failures = self.watch_failures.take();
        let terms = candidate.as_ref().map(|(candidate, _)| candidate.terms());
        let clock = self.clock.clone().unwrap_or_else(|| Arc::new(SystemClock));
        let gate = Gate { limiter: self.limiter.take(), terms, clock };
        let (core, pool) = self.spawn(gate, reconcile)?;

        for watched in &core.watched {
            if let Some(failures) = &watch_failures {
                watched.monitor.report_to(failures.clone());
            }
            let core = Arc::downgrade(&core);
            watched.monitor.on_advance(Box::new(move || {
                core.upgrade().inspect(|core| core.release_writes()).is_some()
            }));
        }
        let mut tasks: Vec<_> =
            feeds.into_iter().filter_map(|feed| feed(&core)).collect();
        if let Some(every) = resync {
            tasks
                .push(runtime.spawn(resync_all(Arc::clone(&core), every)).abort_handle());
        }
        root.set_clock(Arc::clone(&core.clock));
        subscribe(&root, &core, filter);
        root.start();
        let engine = Arc::new(Engine {
            core,
            pool,
            workers: Mutex::new(Workers { wanted, active: false }),
            phase: watch::Sender::new(Phase::Warming),
            tasks: Mutex::new(tasks),
            keep: Mutex::new(Some((root, keep))),
            candidate,
        });
        if let Some(health) = health {
            let phase = engine.phase.subscribe();
            health.add_ready(name, move || readiness(&phase));
        }
        let supervisor = runtime.spawn(Arc::clone(&engine).supervise(plan));
        drop(supervisor);
        Ok(Handle { engine })
    }

    /// Builds the queue, and a pool without workers.
    fn spawn<Fut>(
        self,
        gate: Gate,
        reconcile: impl Fn(Request<K>) -> Fut + Send + Sync + 'static,
    ) -> io::Result<Spawned<K>>
    where
        Fut: Future<Output = Result<Finish, Failed>> + Send + 'static,
    {
        let mut builder = self.queue.name(self.name.clone());
        if let Some(metrics) = &self.metrics {
            builder = builder.metrics(SharedMetrics(Arc::clone(metrics)));
        }
        if let Some(clock) = &self.clock {
            builder = builder.clock(Arc::clone(clock));
        }
        let queue = builder.build();
        let clock = Arc::clone(&gate.clock);
        let inbox = Arc::new(Inbox {
            queue: queue.clone(),
            reasons: crate::reasons::PendingReasons::default(),
            store: self.root.store(),
            dynamic: self.root.dynamic().clone(),
            scope: Scope::of::<K>(),
            debounce: self.debounce,
            owner_rule: self.owner_rule,
            clock: Arc::clone(&clock),
        });
        let core = Arc::new(Core {
            store: self.root.store(),
            inbox: Arc::clone(&inbox),
            watched: self.watched,
            writes: Writes::default(),
            terms: gate.terms.clone(),
            clock,
        });
        let mut pool = Pool::new(Intake::new(queue, gate)).name(self.name).workers(0);
        if let Some(clock) = self.clock {
            pool = pool.clock(clock);
        }
        if let Some(timeout) = self.timeout {
            pool = pool.timeout(timeout);
        }
        if let Some(retries) = self.max_retries {
            pool = pool.max_retries(retries);
        }
        if let Some(metrics) = self.metrics {
            pool = pool.metrics(SharedMetrics(metrics));
        }
        if let Some(on_dead) = self.on_dead {
            pool = pool.on_dead(on_dead);
        }
        let pool = on_failure(pool, inbox, self.on_failure);
        let shared = Arc::clone(&core);
        let reconcile = Arc::new(reconcile);
        let pool = pool.spawn_tasks(move |run| {
            let (core, reconcile) = (Arc::clone(&shared), Arc::clone(&reconcile));
            async move {
                match core.request(&run) {
                    Ok(request) => reconcile(request).await,
                    Err(finish) => Ok(finish),
                }
            }
        })?;
        Ok((core, pool))
    }
}

/// The shared parts of a controller, and its pool.
type Spawned<K> = (Arc<Core<K>>, PoolHandle<Intake<K>>);

/// Records why a failed key runs again.
fn on_failure<K: Object>(
    pool: Pool<Intake<K>>,
    inbox: Arc<Inbox<K>>,
    callback: Option<Callback<K>>,
) -> Pool<Intake<K>> {
    pool.on_failure(move |key: &ObjectRef<K>, failure| {
        inbox.reasons.add(key, Reasons::RETRY, None);
        if let Some(callback) = &callback {
            callback(key, failure);
        }
    })
}

fn candidate(leader: Leader) -> io::Result<(Candidate, bool)> {
    match leader {
        Leader::Own(election) => {
            let candidate = election.start();
            let candidate = candidate
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
            Ok((candidate, true))
        }
        Leader::Shared(candidate) => Ok((candidate, false)),
    }
}

/// Adds the keys of the root objects.
fn subscribe<K: Object>(
    root: &crate::informer::Informer<K>,
    core: &Arc<Core<K>>,
    mut filter: Option<Filter<K>>,
) {
    let core = Arc::downgrade(core);
    root.subscribe(Box::new(move |seen| {
        let Some(core) = core.upgrade() else { return false };
        let passes =
            filter.as_mut().is_none_or(|filter| filter.passes(seen.change, seen.object));
        if passes {
            core.inbox.add_changed(seen.change, seen.object);
        }
        true
    }));
}

async fn resync_all<K: Object>(core: Arc<Core<K>>, every: Duration) {
    while let Some(deadline) = core.clock.now().checked_add(every) {
        core.clock.timer(deadline).await;
        core.inbox.add_all(Reasons::RESYNC, every);
    }
}

fn readiness(phase: &watch::Receiver<Phase>) -> Result<(), String> {
    match &*phase.borrow() {
        Phase::Synced => Ok(()),
        Phase::Warming => Err("the caches are not filled yet".to_owned()),
        Phase::Failed(error) => Err(error.to_string()),
        Phase::Stopped => Err("the controller has stopped".to_owned()),
    }
}

/// Metrics for both the queue and the pool.
struct SharedMetrics(Arc<dyn Metrics>);

impl Metrics for SharedMetrics {
    fn queue(&self, name: &str, probe: Probe) -> Box<dyn Recorder> {
        self.0.queue(name, probe)
    }

    fn pool(&self, name: &str) -> Box<dyn PoolRecorder> {
        self.0.pool(name)
    }
}
