//! `Controller::run`: kube-runtime's interface, whose stream only reports.

use std::error::Error as StdError;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use futures::stream::unfold;
use kube::runtime::reflector::ObjectRef;
use requeue::Finish;
use requeue::pool::{Failed, Failure};
use tokio::sync::mpsc;

use super::Controller;
use super::engine::{Engine, Phase};
use crate::action::Action;
use crate::error::Error;
use crate::feed::WatchFailure;
use crate::object::Object;

/// How many reports are kept for a stream that is not polled. Further ones are dropped.
const MAX_REPORTS: usize = 1024;

type Report<K, E> = Result<(ObjectRef<K>, Action), Error<E>>;

impl<K: Object> Controller<K> {
    /// Runs the controller as kube-runtime's `Controller::run` does.
    ///
    /// The controller runs in its own tasks. The returned stream only reports: nothing stops
    /// if it is not polled, but then reports beyond the first 1024 are dropped. Dropping the
    /// stream stops the controller. The stream ends after a shutdown, or after an
    /// [`Error::Sync`].
    ///
    /// An object that is gone is not reconciled; [`start`](Self::start) does that.
    /// `error_policy` chooses what happens after an error: with [`Action::requeue`] the
    /// object is retried after that delay, with [`Action::backoff`] when the
    /// [retry policy](Self::retry) says. [`backoff`](crate::backoff) is such a policy.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use futures::StreamExt;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kube::Api;
    /// use kube::runtime::watcher;
    /// use requeue_kube::{Action, Controller, backoff};
    /// # use requeue_kube::testing::FakeCluster;
    ///
    /// async fn reconcile(map: Arc<ConfigMap>, _: Arc<()>) -> Result<Action, kube::Error> {
    ///     println!("reconciling {:?}", map.metadata.name);
    ///     Ok(Action::await_change())
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let cluster = FakeCluster::new();
    /// # let mut map = ConfigMap::default();
    /// # (map.metadata.name, map.metadata.namespace) = (Some("a".into()), Some("b".into()));
    /// # cluster.put(&map);
    /// # let client = cluster.client();
    /// let reports = Controller::new(Api::<ConfigMap>::all(client), watcher::Config::default())
    ///     .run(reconcile, backoff, Arc::new(()));
    /// let mut reports = Box::pin(reports);
    /// let (key, _action) = reports.next().await.expect("it runs")
    ///     .expect("the reconciler succeeds");
    /// assert_eq!(key.name, "a");
    /// # }
    /// ```
    pub fn run<F, Fut, E, C>(
        mut self,
        reconcile: F,
        error_policy: impl Fn(Arc<K>, &E, Arc<C>) -> Action + Send + Sync + 'static,
        context: Arc<C>,
    ) -> impl Stream<Item = Report<K, E>> + Send
    where
        F: Fn(Arc<K>, Arc<C>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Action, E>> + Send + 'static,
        E: StdError + Send + 'static,
        C: Send + Sync + 'static,
    {
        let (reports, received) = mpsc::channel(MAX_REPORTS);
        let (watch_failures, failures) = mpsc::channel(MAX_REPORTS);
        self.watch_failures = Some(watch_failures);
        let (reconcile, error_policy) = (Arc::new(reconcile), Arc::new(error_policy));
        let aborted = reports.clone();
        self.on_failure = Some(Box::new(move |key, failure| {
            if let Failure::Panicked(_) | Failure::TimedOut(_) = failure {
                let key = Box::new(key.clone().erase());
                send(&aborted, Err(Error::Aborted(failure.to_string(), key)));
            }
        }));
        let started = self.launch(move |request| {
            let (reconcile, error_policy) =
                (Arc::clone(&reconcile), Arc::clone(&error_policy));
            let (context, reports) = (Arc::clone(&context), reports.clone());
            async move {
                let Some(object) = request.object else { return Ok(Finish::Succeed) };
                match reconcile(Arc::clone(&object), Arc::clone(&context)).await {
                    Ok(action) => {
                        send(&reports, Ok((request.key, action)));
                        Ok(action.finish())
                    }
                    Err(error) => {
                        let action = error_policy(object, &error, context);
                        let failed = Failed::new(error.to_string(), failed(action));
                        let key = Box::new(request.key.erase());
                        send(&reports, Err(Error::ReconcilerFailed(error, key)));
                        Err(failed)
                    }
                }
            }
        });
        let engine = started.expect("there is a runtime").engine;
        report(Reports { received, failures, stop: StopOnDrop(engine), ended: false })
    }
}

/// Returns [`Action::backoff`]: an error policy for [`Controller::run`] that leaves the delay
/// to the retry policy of the queue.
pub fn backoff<K, E, C>(_object: Arc<K>, _error: &E, _context: Arc<C>) -> Action {
    Action::backoff()
}

/// Returns how the lease of a failed run ends.
///
/// An action that would be a success becomes its counterpart that counts the failure.
/// Waiting for a change keeps the failures and schedules nothing.
fn failed(action: Action) -> Finish {
    let finish = action.finish();
    if let Finish::RequeueAfter(delay) = finish {
        return Finish::RetryAfter(delay);
    }
    if finish == Finish::Succeed { Finish::Done } else { finish }
}

/// A full channel has no reader that could miss the report.
fn send<K: Object, E: StdError>(
    reports: &mpsc::Sender<Report<K, E>>,
    report: Report<K, E>,
) {
    reports.try_send(report).unwrap_or_default();
}

/// The sources of a stream of reports.
struct Reports<K: Object, E: StdError + 'static> {
    received: mpsc::Receiver<Report<K, E>>,
    failures: mpsc::Receiver<WatchFailure>,
    stop: StopOnDrop<K>,
    ended: bool,
}

/// Stops the controller when its stream is dropped.
struct StopOnDrop<K: Object>(Arc<Engine<K>>);

impl<K: Object> Drop for StopOnDrop<K> {
    fn drop(&mut self) {
        let engine = Arc::clone(&self.0);
        engine.queue().close();
        engine.set_workers(0);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { drop(engine.stop(Duration::ZERO).await) });
        } else {
            engine.abort_tasks();
        }
    }
}

fn report<K: Object, E: StdError + Send + 'static>(
    reports: Reports<K, E>,
) -> impl Stream<Item = Report<K, E>> + Send {
    unfold(reports, |mut reports| async move {
        let report = reports.next().await?;
        Some((report, reports))
    })
}

impl<K: Object, E: StdError + Send + 'static> Reports<K, E> {
    /// Returns the next report; after the end of the controller, those that are left.
    async fn next(&mut self) -> Option<Report<K, E>> {
        if self.ended {
            return self.received.try_recv().ok();
        }
        let end = |phase: &Phase| matches!(phase, Phase::Stopped | Phase::Failed(_));
        let engine = Arc::clone(&self.stop.0);
        tokio::select! {
            Some(report) = self.received.recv() => Some(report),
            Some(WatchFailure { kind, error }) = self.failures.recv() => {
                Some(Err(Error::Watch { kind, error }))
            }
            phase = engine.reached(end) => {
                self.ended = true;
                match phase {
                    Phase::Failed(error) => Some(Err(Error::Sync(error))),
                    Phase::Stopped | Phase::Warming | Phase::Synced => {
                        self.received.try_recv().ok()
                    }
                }
            }
        }
    }
}
