//! A store that cannot be reached for a while: it is said once, and when it is over.

use std::sync::Arc;
use std::time::{Duration, Instant};

use requeue::{Clock, SystemClock};
use requeue_store::{Error, ErrorKind, Store};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::report::{Report, brief, chain};

/// How often a store is asked whether it is back.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// How long a store that is no longer waited for, and that is not known to be away, has to
/// answer nevertheless.
const LAST_CALL: Duration = Duration::from_secs(2);

/// Tells of a store that is away.
pub(crate) struct Outage {
    store: Arc<dyn Store>,
    report: Arc<Report>,
    runtime: Handle,
    /// Since when it is away.
    since: watch::Sender<Option<Instant>>,
}

impl Outage {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        report: Arc<Report>,
        runtime: Handle,
    ) -> Arc<Self> {
        Arc::new(Self { store, report, runtime, since: watch::Sender::new(None) })
    }

    /// Takes note of a call that failed and will be repeated.
    pub(crate) fn heard(self: &Arc<Self>, error: &Error) {
        if is_outage(error) && self.begins() {
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
        let begins = self.since.send_if_modified(|since| {
            let begins = since.is_none();
            since.get_or_insert_with(|| SystemClock.now());
            begins
        });
        if begins {
            drop(self.runtime.spawn(Arc::clone(self).watch()));
        }
        begins
    }

    /// Tells since when the store is away, and when that changes.
    pub(crate) fn since(&self) -> watch::Receiver<Option<Instant>> {
        self.since.subscribe()
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
        let since = self.since.send_replace(None);
        let away = since.map(|since| SystemClock.now().saturating_duration_since(since));
        let away = brief(away.unwrap_or_default());
        self.report.note(&format!("the store is back after {away}"));
    }
}

impl std::fmt::Debug for Outage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outage").field("since", &self.since).finish_non_exhaustive()
    }
}

/// Whether the store is away: a key that a transaction has says nothing of that.
fn is_outage(error: &Error) -> bool {
    error.is_transient() && error.kind() != ErrorKind::Busy
}

/// Waits until a call is not waited for any longer: it was abandoned, and the store is away
/// or has had the time for a last answer.
pub(crate) async fn given_up(
    mut abandoned: watch::Receiver<bool>,
    mut away: watch::Receiver<Option<Instant>>,
    clock: &impl Clock,
) {
    // Their senders live as long as what waits.
    drop(abandoned.wait_for(|abandoned| *abandoned).await);
    tokio::select! {
        since = away.wait_for(Option::is_some) => drop(since),
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

    /// A key that was locked was told as the loss of the store.
    #[test]
    fn a_key_that_a_transaction_has_is_no_outage() {
        let of = |kind| is_outage(&Error::new(kind, "why"));
        assert!(of(ErrorKind::Unavailable) && of(ErrorKind::Unknown));
        assert!(!of(ErrorKind::Busy) && !of(ErrorKind::Denied));
    }

    /// Whoever asked a second time for the end, with the store away, waited for two more
    /// answers of two seconds each.
    #[test]
    fn a_store_that_is_away_has_no_time_for_a_last_answer() {
        let (abandoned, away) = (watch::Sender::new(false), watch::Sender::new(None));
        let clock = FakeClock::new();
        let mut waits = pin!(given_up(abandoned.subscribe(), away.subscribe(), &clock));
        let mut cx = Context::from_waker(Waker::noop());
        let mut poll = || waits.as_mut().poll(&mut cx);
        away.send_replace(Some(clock.now()));
        assert_eq!(poll(), Poll::Pending, "it may come back");
        away.send_replace(None);
        abandoned.send_replace(true);
        assert_eq!(poll(), Poll::Pending, "it may answer");
        away.send_replace(Some(clock.now()));
        assert_eq!(poll(), Poll::Ready(()));
    }

    #[test]
    fn a_store_that_is_not_known_to_be_away_has_some_time() {
        let (abandoned, away) = (watch::Sender::new(true), watch::Sender::new(None));
        let clock = FakeClock::new();
        let mut waits = pin!(given_up(abandoned.subscribe(), away.subscribe(), &clock));
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(waits.as_mut().poll(&mut cx), Poll::Pending);
        clock.advance(LAST_CALL);
        assert_eq!(waits.as_mut().poll(&mut cx), Poll::Ready(()));
    }
}
