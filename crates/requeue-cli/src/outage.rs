//! A store that cannot be reached for a while: it is said once, and when it is over.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use requeue::{Clock, SystemClock};
use requeue_store::{Error, Store};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::report::{Report, brief, chain};

/// How often a store is asked whether it is back.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Tells of a store that is away.
pub(crate) struct Outage {
    store: Arc<dyn Store>,
    report: Arc<Report>,
    runtime: Handle,
    since: Mutex<Option<Instant>>,
    /// Whether `since` says something, for those who wait for that.
    away: watch::Sender<bool>,
}

impl Outage {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        report: Arc<Report>,
        runtime: Handle,
    ) -> Arc<Self> {
        let (since, away) = (Mutex::default(), watch::Sender::new(false));
        Arc::new(Self { store, report, runtime, since, away })
    }

    fn since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a call that failed and will be repeated.
    pub(crate) fn heard(self: &Arc<Self>, error: &Error) {
        if error.is_transient() && self.begins() {
            self.report.note(&format!(
                "lost the store, which is tried again; what runs goes on: {}",
                chain(error)
            ));
        }
    }

    /// Takes note of a store that does not answer, and of which nobody need be told.
    pub(crate) fn heard_nothing(self: &Arc<Self>) {
        self.begins();
    }

    /// Whether the store is away from here on, and was not before.
    fn begins(self: &Arc<Self>) -> bool {
        let mut since = self.since();
        let begins = since.is_none();
        if begins {
            *since = Some(SystemClock.now());
            self.away.send_replace(true);
            drop(self.runtime.spawn(Arc::clone(self).watch()));
        }
        begins
    }

    /// Takes note of an answer: since when there was none.
    fn ends(&self) -> Option<Instant> {
        let mut since = self.since();
        self.away.send_replace(false);
        since.take()
    }

    /// Tells whether the store is away, and when that changes.
    pub(crate) fn away(&self) -> watch::Receiver<bool> {
        self.away.subscribe()
    }

    /// Asks until the store answers.
    async fn watch(self: Arc<Self>) {
        loop {
            SystemClock.timer(SystemClock.now() + ASK_EVERY).await;
            let asked = tokio::time::timeout(ASK_EVERY, self.store.stats()).await;
            if matches!(asked, Ok(Ok(_))) {
                break;
            }
        }
        let since = self.ends();
        let away = since.map(|since| SystemClock.now().saturating_duration_since(since));
        let away = brief(away.unwrap_or_default());
        self.report.note(&format!("the store is back after {away}"));
    }
}

impl std::fmt::Debug for Outage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outage").field("since", &*self.since()).finish_non_exhaustive()
    }
}
