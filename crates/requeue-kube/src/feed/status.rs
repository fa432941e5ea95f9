//! The state of one watch, for its observers.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use kube::runtime::watcher;
use tokio::sync::{mpsc, watch};

/// A snapshot of the state of one watch; from
/// [`Handle::watches`](crate::Handle::watches).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WatchStatus {
    /// The kind of the watched objects, such as `ConfigMap`.
    pub kind: String,
    /// Whether the first list is complete.
    pub synced: bool,
    /// How many lists were complete.
    pub lists: u64,
    /// How many events have arrived since the watch began, without lists.
    pub events: u64,
    /// How often the watch has failed, without expired resource versions.
    pub errors: u64,
    /// How many objects were skipped because they cannot be decoded.
    pub undecodable: u64,
    /// The last error.
    pub last_error: Option<String>,
}

/// A failure of a watch, for the stream of `Controller::run`.
#[derive(Debug)]
pub(crate) struct WatchFailure {
    pub(crate) kind: String,
    pub(crate) error: Arc<watcher::Error>,
}

/// The state that a watch updates.
pub(crate) struct Monitor {
    kind: String,
    synced: watch::Sender<bool>,
    lists: AtomicU64,
    events: AtomicU64,
    errors: AtomicU64,
    undecodable: AtomicU64,
    last_error: Mutex<Option<String>>,
    /// The highest resource version that the cache has seen.
    version: AtomicU64,
    failures: Mutex<Vec<mpsc::Sender<WatchFailure>>>,
    listeners: Mutex<Vec<Listener>>,
}

/// Called when a cache has seen a later resource version. Returns whether it wants more.
type Listener = Box<dyn Fn() -> bool + Send + Sync>;

impl Monitor {
    pub(crate) fn new(kind: impl Into<String>) -> Arc<Self> {
        Arc::new(Self {
            kind: kind.into(),
            synced: watch::Sender::new(false),
            lists: AtomicU64::new(0),
            events: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            undecodable: AtomicU64::new(0),
            last_error: Mutex::default(),
            version: AtomicU64::new(0),
            failures: Mutex::default(),
            listeners: Mutex::default(),
        })
    }

    pub(crate) fn kind(&self) -> &str {
        &self.kind
    }

    /// Sends further failures to one more channel.
    pub(crate) fn report_to(&self, sender: mpsc::Sender<WatchFailure>) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
    }

    pub(crate) fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Waits until the first list is complete and applied.
    pub(crate) async fn synced(&self) {
        let mut synced = self.synced.subscribe();
        // An error is impossible: the sender is in this value.
        synced.wait_for(|synced| *synced).await.map(drop).unwrap_or_default();
    }

    pub(crate) fn listed(&self) {
        self.lists.fetch_add(1, Ordering::Relaxed);
        self.synced.send_if_modified(|synced| !std::mem::replace(synced, true));
    }

    pub(crate) fn event(&self) {
        self.events.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that the cache contains all changes up to a version.
    pub(crate) fn advance(&self, version: Option<u64>) {
        if let Some(version) = version {
            self.version.fetch_max(version, Ordering::AcqRel);
            let mut listeners =
                self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
            listeners.retain(|listener| listener());
        }
    }

    /// Calls `listener` whenever the cache has advanced.
    pub(crate) fn on_advance(&self, listener: Listener) {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(listener);
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(crate) fn undecodable(&self) -> u64 {
        self.undecodable.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn failed(&self, error: watcher::Error) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        let text = error.to_string();
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
        let error = Arc::new(error);
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.retain(|sender| {
            let error = Arc::clone(&error);
            let failure = WatchFailure { kind: self.kind.clone(), error };
            // A full channel is not read: the failure is dropped.
            sender.try_send(failure).unwrap_or_default();
            !sender.is_closed()
        });
    }

    pub(crate) fn status(&self) -> WatchStatus {
        WatchStatus {
            kind: self.kind.clone(),
            synced: self.is_synced(),
            lists: self.lists.load(Ordering::Relaxed),
            events: self.events.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
            undecodable: self.undecodable.load(Ordering::Relaxed),
            last_error: self
                .last_error
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        }
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Monitor").field(&self.status()).finish()
    }
}
