//! Tracks outages of a store, and reports the start and end of each once.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use requeue::{Clock, SystemClock};
use requeue_store::{Error, ErrorKind, Owner, Store};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::report::{Report, brief, chain};
use crate::retry::retry;

/// The time before the first probe. A probe that takes longer than this counts as failed.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// How long an abandoned call may still take if the store is not known to be unreachable.
const LAST_CALL: Duration = Duration::from_secs(2);

/// The current outage of a store, if there is one.
pub(crate) struct Outage {
    store: Arc<dyn Store>,
    report: Arc<Report>,
    runtime: Handle,
    /// The owner of the leases, for probes that write.
    owner: OnceLock<Owner>,
    /// The reasons that were reported during this outage.
    reported: Mutex<Vec<&'static str>>,
    /// The start of the outage.
    since: watch::Sender<Option<Instant>>,
}

impl Outage {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        report: Arc<Report>,
        runtime: Handle,
    ) -> Arc<Self> {
        Arc::new(Self {
            store,
            report,
            runtime,
            owner: OnceLock::new(),
            reported: Mutex::default(),
            since: watch::Sender::new(None),
        })
    }

    /// Sets the owner of the leases.
    pub(crate) fn set_owner(&self, owner: Owner) {
        self.owner.get_or_init(|| owner);
    }

    /// Records a failed call that will be retried.
    pub(crate) fn record(self: &Arc<Self>, error: &Error) {
        if !is_outage(error) {
            return;
        }
        let (begins, reason) = (self.begin(), what_is_wrong(error));
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        // "Unreachable" adds nothing to a reason that is known.
        let known = reported.contains(&reason) || (!begins && reason == UNREACHABLE);
        if begins || !known {
            reported.push(reason);
            let why = chain(error);
            self.report
                .note(&format!("{reason}, retrying; running commands continue: {why}"));
        }
    }

    /// Records that the store does not answer, without a message. Returns whether an outage
    /// begins.
    pub(crate) fn begin(self: &Arc<Self>) -> bool {
        let begins = self.since.send_if_modified(|since| {
            let begins = since.is_none();
            since.get_or_insert_with(|| SystemClock.now());
            begins
        });
        if begins {
            drop(self.runtime.spawn(Arc::clone(self).wait_for_end()));
        }
        begins
    }

    /// Observes the start of the current outage, or `None`.
    pub(crate) fn since(&self) -> watch::Receiver<Option<Instant>> {
        self.since.subscribe()
    }

    /// Probes the store until it answers.
    async fn wait_for_end(self: Arc<Self>) {
        SystemClock.timer(SystemClock.now() + PROBE_TIMEOUT).await;
        // A permanent error is an answer too. The next call reports it.
        let owner = self.owner.get();
        drop(retry(|| probe(Arc::clone(&self.store), owner.cloned()), |_| true).await);
        self.reported.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let since = self.since.send_replace(None);
        let lasted =
            since.map(|since| SystemClock.now().saturating_duration_since(since));
        let lasted = brief(lasted.unwrap_or_default());
        self.report.note(&format!("store works again after {lasted}"));
    }
}

impl std::fmt::Debug for Outage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outage").field("since", &self.since).finish_non_exhaustive()
    }
}

/// Reads and writes: a server without memory, or a replica, still answers questions.
async fn probe(store: Arc<dyn Store>, owner: Option<Owner>) -> Result<(), Error> {
    let calls = async {
        store.stats().await?;
        match &owner {
            Some(owner) => store.heartbeat(owner).await,
            None => Ok(()),
        }
    };
    match tokio::time::timeout(PROBE_TIMEOUT, calls).await {
        Ok(answer) => answer,
        Err(_) => Err(Error::new(ErrorKind::Unavailable, "no answer")),
    }
}

const UNREACHABLE: &str = "store unreachable";

/// Formats the problem of a store.
fn what_is_wrong(error: &Error) -> &'static str {
    let known = [
        (ErrorKind::Full, "store has no memory or disk left"),
        (ErrorKind::ReadOnly, "store is read-only"),
        (ErrorKind::Denied, "store refuses the user or password"),
    ];
    let found = known.into_iter().find(|(kind, _)| *kind == error.kind());
    found.map_or(UNREACHABLE, |(_, text)| text)
}

/// Returns whether an error means that the store cannot be used now. A locked key does not.
fn is_outage(error: &Error) -> bool {
    error.is_transient() && error.kind() != ErrorKind::Busy
}

/// Waits until a pending call is hopeless: the store is abandoned, and is unreachable or has
/// had [`LAST_CALL`] to answer.
pub(crate) async fn hopeless(
    mut abandoned: watch::Receiver<bool>,
    mut outage: watch::Receiver<Option<Instant>>,
    clock: &impl Clock,
) {
    // Neither wait can fail: the senders outlive the call.
    drop(abandoned.wait_for(|abandoned| *abandoned).await);
    tokio::select! {
        since = outage.wait_for(Option::is_some) => drop(since),
        () = clock.timer(clock.now() + LAST_CALL) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use requeue::testing::FakeClock;

    use super::*;

    /// A key locked by a transaction was once reported as an unreachable store.
    #[test]
    fn locked_key_is_not_an_outage() {
        let of = |kind| is_outage(&Error::new(kind, "why"));
        assert!(of(ErrorKind::Unavailable) && of(ErrorKind::Unknown));
        assert!(of(ErrorKind::Denied) && of(ErrorKind::Full));
        assert!(!of(ErrorKind::Busy) && !of(ErrorKind::Corrupt));
    }

    /// During an outage, the second Ctrl-C once waited for two more calls of two seconds.
    #[test]
    fn call_to_an_unreachable_store_is_abandoned_at_once() {
        let (abandoned, outage) = (watch::Sender::new(false), watch::Sender::new(None));
        let clock = FakeClock::new();
        let mut waits = pin!(hopeless(abandoned.subscribe(), outage.subscribe(), &clock));
        let mut cx = Context::from_waker(Waker::noop());
        let mut poll = || waits.as_mut().poll(&mut cx);
        outage.send_replace(Some(clock.now()));
        assert_eq!(poll(), Poll::Pending, "the outage may end");
        outage.send_replace(None);
        abandoned.send_replace(true);
        assert_eq!(poll(), Poll::Pending, "the store may answer");
        outage.send_replace(Some(clock.now()));
        assert_eq!(poll(), Poll::Ready(()));
    }

    #[test]
    fn abandoned_call_to_a_reachable_store_has_some_time_left() {
        let (abandoned, outage) = (watch::Sender::new(true), watch::Sender::new(None));
        let clock = FakeClock::new();
        let mut waits = pin!(hopeless(abandoned.subscribe(), outage.subscribe(), &clock));
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(waits.as_mut().poll(&mut cx), Poll::Pending);
        clock.advance(LAST_CALL);
        assert_eq!(waits.as_mut().poll(&mut cx), Poll::Ready(()));
    }
}
