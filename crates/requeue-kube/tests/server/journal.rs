//! A record of runs, and controllers of both engines that fill it.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};
use requeue::{Clock, SystemClock};
use tokio::task::AbortHandle;

use crate::support::pause;

/// Runs of reconcilers, by the names of objects.
#[derive(Clone, Default)]
pub(crate) struct Journal(Arc<Mutex<Record>>);

#[derive(Default)]
struct Record {
    runs: Vec<Run>,
    running: HashMap<String, usize>,
    most_at_once: usize,
    errors: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Run {
    pub(crate) name: String,
    pub(crate) namespace: Option<String>,
    /// The content of the object, or `None` if it was gone.
    pub(crate) value: Option<String>,
    pub(crate) at: Instant,
}

impl Journal {
    fn record(&self) -> MutexGuard<'_, Record> {
        self.0.lock().unwrap()
    }

    pub(crate) fn note<K: Resource>(&self, key: &ObjectRef<K>, value: Option<&str>) {
        self.record().runs.push(Run {
            name: key.name.clone(),
            namespace: key.namespace.clone(),
            value: value.map(str::to_owned),
            at: SystemClock.now(),
        });
    }

    pub(crate) fn runs(&self) -> Vec<Run> {
        self.record().runs.clone()
    }

    pub(crate) fn count(&self, name: &str) -> usize {
        self.record().runs.iter().filter(|run| run.name == name).count()
    }

    pub(crate) fn clear(&self) {
        self.record().runs.clear();
    }

    fn last(&self, name: &str) -> Option<Run> {
        self.record().runs.iter().rev().find(|run| run.name == name).cloned()
    }

    /// Returns whether the last run of an object had this content.
    pub(crate) fn saw(&self, name: &str, value: &str) -> bool {
        self.last(name).is_some_and(|run| run.value.as_deref() == Some(value))
    }

    /// Returns when an object was first reconciled with this content, or with a later edit of
    /// the given list.
    pub(crate) fn first_of(&self, contents: &[String]) -> Option<Instant> {
        let record = self.record();
        let is_one =
            |run: &&Run| run.value.as_ref().is_some_and(|value| contents.contains(value));
        record.runs.iter().find(is_one).map(|run| run.at)
    }

    pub(crate) fn saw_gone(&self, name: &str) -> bool {
        self.last(name).is_some_and(|run| run.value.is_none())
    }

    pub(crate) fn error(&self, error: &impl ToString) {
        self.record().errors.push(error.to_string());
    }

    pub(crate) fn errors(&self) -> Vec<String> {
        self.record().errors.clone()
    }

    /// Counts a run of an object while it lasts.
    pub(crate) fn begin(&self, name: &str) -> Running {
        let mut record = self.record();
        let running = record.running.entry(name.to_owned()).or_default();
        *running += 1;
        let now = *running;
        record.most_at_once = record.most_at_once.max(now);
        drop(record);
        Running { journal: self.clone(), name: name.to_owned() }
    }

    /// Returns the highest number of workers with one object at the same time.
    pub(crate) fn most_at_once(&self) -> usize {
        self.record().most_at_once
    }
}

pub(crate) struct Running {
    journal: Journal,
    name: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(running) = self.journal.record().running.get_mut(&self.name) {
            *running -= 1;
        }
    }
}

/// Stops a controller's task when it is dropped.
pub(crate) struct Stop(AbortHandle);

impl Stop {
    pub(crate) fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The same controller for both engines: only the imports differ.
macro_rules! engine {
    ($name:ident, $controller:path, $action:path) => {
        pub(crate) mod $name {
            use futures::StreamExt;
            use $action as Action;
            use $controller as Controller;

            use super::*;

            /// Runs a controller that notes each run, and works for a while.
            pub(crate) fn observe<K>(
                controller: Controller<K>,
                value: fn(&K) -> String,
                work: Duration,
                journal: &Journal,
            ) -> Stop
            where
                K: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
                K: serde::de::DeserializeOwned,
            {
                let context = Arc::new(journal.clone());
                let reconcile = move |object: Arc<K>, journal: Arc<Journal>| async move {
                    let _running = journal.begin(&object.name_any());
                    journal.note(&ObjectRef::from_obj(&*object), Some(&value(&object)));
                    if !work.is_zero() {
                        pause(work).await;
                    }
                    assert_ne!(value(&object), "panic", "a bug in a reconciler");
                    Ok::<_, kube::Error>(Action::await_change())
                };
                let policy = |_: Arc<K>, _: &kube::Error, _: Arc<Journal>| {
                    Action::requeue(Duration::from_secs(1))
                };
                let errors = journal.clone();
                let reports = controller.run(reconcile, policy, context);
                let task = tokio::spawn(reports.for_each(move |report| {
                    if let Err(error) = report {
                        errors.error(&error);
                    }
                    std::future::ready(())
                }));
                Stop(task.abort_handle())
            }
        }
    };
}

engine!(kube_runtime, kube::runtime::Controller, kube::runtime::controller::Action);
engine!(ours, requeue_kube::Controller, requeue_kube::Action);
