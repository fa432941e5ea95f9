//! Errors of controllers.

use std::sync::Arc;
use std::time::Duration;

use kube::api::DynamicObject;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use thiserror::Error;

/// A failure that [`Controller::run`](crate::Controller::run) reports in its stream.
///
/// None of them ends the controller, except [`Sync`](Error::Sync).
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error<E: std::error::Error + 'static> {
    /// The reconciler returned an error for this object.
    #[error("reconciler for object {1} failed: {0}")]
    ReconcilerFailed(#[source] E, Box<ObjectRef<DynamicObject>>),
    /// The reconciler panicked or exceeded its timeout for this object.
    #[error("reconciler for object {1} was aborted: {0}")]
    Aborted(String, Box<ObjectRef<DynamicObject>>),
    /// A watch failed. It is retried with its own backoff; the others continue.
    #[error("watch of {kind} failed: {error}")]
    Watch {
        /// The kind of the watched objects.
        kind: String,
        /// Why the watch failed.
        #[source]
        error: Arc<watcher::Error>,
    },
    /// The caches were not filled in time.
    #[error(transparent)]
    Sync(#[from] SyncError),
}

/// The caches of a controller were not filled.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncError {
    /// Some watches had not listed their objects in time.
    #[error("no complete list after {within:?} of {}; last error: {last_error}", kinds.join(", "))]
    TimedOut {
        /// The configured limit.
        within: Duration,
        /// The kinds whose lists are incomplete.
        kinds: Vec<String>,
        /// The last error of one of these watches, or `none`.
        last_error: String,
    },
    /// The controller was stopped before its caches were filled.
    #[error("the controller was stopped before its caches were filled")]
    Stopped,
}
