//! The task of a candidate: acquires the Lease, renews it, and releases it.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::future::{Either, select};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use requeue::Clock;
use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::lease::Leases;
use super::rules::{Rules, Step, holder, number_of};
use super::term::{Term, TermKeeper, TermUsers};
use super::{OnLoss, Settings, random};

/// Times the random part of a candidate's wait, as in client-go.
const JITTER: f64 = 1.2;

pub(super) struct Campaign<L> {
    leases: L,
    settings: Settings,
    clock: Arc<dyn Clock>,
    rules: Rules,
    channels: Channels,
}

/// The connections to the handles of the candidate.
pub(super) struct Channels {
    pub(super) term: watch::Sender<Option<Term>>,
    /// Set once: how long to wait for the clones of the term.
    pub(super) stopping: watch::Receiver<Option<Duration>>,
    pub(super) released: Arc<AtomicBool>,
}

/// A term that has just begun, and its first deadline.
struct Won {
    term: Term,
    keeper: TermKeeper,
    deadline: Instant,
}

/// Why a term has ended.
enum End {
    /// The handle asked for it; it waits this long for the clones of the term.
    Stopped(Duration),
    /// No renewal succeeded in time, or the Lease shows another term.
    Lost(String),
}

/// A request that did not succeed.
enum Failed {
    Request(kube::Error),
    TimedOut(Duration),
}

impl<L: Leases> Campaign<L> {
    pub(super) fn new(
        leases: L,
        settings: Settings,
        clock: Arc<dyn Clock>,
        channels: Channels,
    ) -> Self {
        let rules = Rules::new(&settings.identity, settings.duration);
        Self { leases, settings, clock, rules, channels }
    }

    pub(super) async fn run(mut self) {
        while let Some(Won { term, keeper, deadline }) = self.acquire().await {
            info!(lease = %self.settings.lease, term = term.number(), "became leader");
            let (number, uid) = (term.number(), term.uid().to_owned());
            self.channels.term.send_replace(Some(term));
            let end = self.hold(number, &uid, &keeper, deadline).await;
            // The term ends before its channel says so: a receiver never sees `None` while
            // `is_held` is true.
            let users = keeper.end();
            self.channels.term.send_replace(None);
            match end {
                End::Stopped(within) => {
                    let released = self.release(number, &uid, users, within).await;
                    self.channels.released.store(released, Ordering::Release);
                    return;
                }
                End::Lost(reason) => {
                    warn!(lease = %self.settings.lease, term = number, reason, "lost leadership");
                }
            }
            if self.settings.on_loss == OnLoss::Stop {
                return;
            }
        }
        self.channels.released.store(true, Ordering::Release);
    }

    /// Tries to become the leader. Returns `None` if the candidate is stopped.
    async fn acquire(&mut self) -> Option<Won> {
        let mut changes = self.leases.changes();
        loop {
            let attempt = self.clock.now();
            if self.stop_requested().is_some() {
                return None;
            }
            match self.try_acquire(attempt).await {
                Ok(Some(term)) => return Some(term),
                Ok(None) => {}
                Err(error) => warn!(
                    lease = %self.settings.lease,
                    error = %error.describe("acquire"),
                    "cannot acquire the lease"
                ),
            }
            let wait =
                self.clock.timer(attempt + self.settings.retry_every.mul_f64(jitter()));
            tokio::select! {
                () = wait => {}
                _change = changes.next() => {}
                () = stopped(&mut self.channels.stopping) => return None,
            }
        }
    }

    /// Makes one attempt. Returns `None` if another process holds the Lease.
    async fn try_acquire(&mut self, started: Instant) -> Result<Option<Won>, Failed> {
        let seen = self.limited(self.leases.get()).await?;
        let now = self.clock.now();
        self.rules.see(seen, now);
        let written = match self.rules.acquire(now, &wall_time()) {
            Step::Wait(_) => return Ok(None),
            Step::Create(lease) => self.limited(self.leases.create(&lease)).await,
            Step::Replace(lease) => self.limited(self.leases.replace(&lease)).await,
        };
        match written {
            Ok(lease) => Ok(Some(self.begin(lease, started))),
            Err(error) if error.is_conflict() => {
                debug!(lease = %self.settings.lease, "another candidate was faster");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn begin(&mut self, lease: Lease, started: Instant) -> Won {
        let (number, uid) = (number_of(&lease), lease.uid().unwrap_or_default());
        self.rules.see(Some(lease), self.clock.now());
        let deadline = started + self.settings.renew_within;
        let (term, keeper) = Term::start(number, &uid, Arc::clone(&self.clock), deadline);
        Won { term, keeper, deadline }
    }

    /// Renews the Lease until it is lost or the candidate is stopped.
    async fn hold(
        &mut self,
        number: u64,
        uid: &str,
        keeper: &TermKeeper,
        mut deadline: Instant,
    ) -> End {
        let mut attempt = self.clock.now();
        let mut last_error = String::from("none");
        loop {
            // Ticks count from the start of the last attempt, so a slow one delays nothing.
            let next = (attempt + self.settings.retry_every).min(deadline);
            tokio::select! {
                () = self.clock.timer(next) => {}
                within = stop_value(&mut self.channels.stopping) => return End::Stopped(within),
            }
            attempt = self.clock.now();
            if attempt >= deadline {
                return End::Lost(self.describe_timeout(&last_error));
            }
            match self.renew_before(deadline, number, uid).await {
                Ok(true) => {
                    deadline = attempt + self.settings.renew_within;
                    keeper.extend(deadline);
                }
                Ok(false) => return End::Lost(self.describe_holder()),
                Err(error) => {
                    last_error = error.describe("renew");
                    let lease = &self.settings.lease;
                    warn!(%lease, error = %last_error, "cannot renew the lease");
                }
            }
        }
    }

    /// Makes one attempt and abandons it at `deadline`.
    async fn renew_before(
        &mut self,
        deadline: Instant,
        number: u64,
        uid: &str,
    ) -> Result<bool, Failed> {
        let expiry = self.clock.timer(deadline);
        let result = match select(pin!(self.try_renew(number, uid)), expiry).await {
            Either::Left((result, _)) => Some(result),
            Either::Right(_) => None,
        };
        result.unwrap_or_else(|| {
            // The request may still arrive, so the stored resourceVersion may be stale.
            self.rules.see(None, self.clock.now());
            Err(Failed::TimedOut(self.settings.attempt_within()))
        })
    }

    /// Makes one attempt. Returns `false` if the Lease shows another term.
    async fn try_renew(&mut self, number: u64, uid: &str) -> Result<bool, Failed> {
        if self.rules.lease().is_none() {
            let seen = self.limited(self.leases.get()).await?;
            let gone = seen.is_none();
            self.rules.see(seen, self.clock.now());
            if gone {
                return Ok(false);
            }
        }
        let Some(lease) = self.rules.renew(uid, number, wall_time()) else {
            return Ok(false);
        };
        match self.limited(self.leases.replace(&lease)).await {
            Ok(lease) => {
                self.rules.see(Some(lease), self.clock.now());
                Ok(true)
            }
            // After a conflict or a lost reply, the stored resourceVersion may be stale.
            Err(error) => {
                self.rules.see(None, self.clock.now());
                if error.is_conflict() {
                    self.renew_after_conflict(number, uid).await
                } else {
                    Err(error)
                }
            }
        }
    }

    /// Reads the Lease and tries once more: another client may have edited a label.
    async fn renew_after_conflict(
        &mut self,
        number: u64,
        uid: &str,
    ) -> Result<bool, Failed> {
        let Some(seen) = self.limited(self.leases.get()).await? else { return Ok(false) };
        self.rules.see(Some(seen), self.clock.now());
        let Some(lease) = self.rules.renew(uid, number, wall_time()) else {
            return Ok(false);
        };
        let written = self.limited(self.leases.replace(&lease)).await;
        self.rules.see(written.as_ref().ok().cloned(), self.clock.now());
        written.map(|_lease| true)
    }

    /// Gives the Lease up when no clone of the term is left. Returns whether it is free.
    async fn release(
        &mut self,
        number: u64,
        uid: &str,
        mut users: TermUsers,
        within: Duration,
    ) -> bool {
        if !self.settings.release_on_stop {
            return false;
        }
        let deadline = self.clock.timer(self.clock.now() + within);
        let gone = users.gone();
        if let Either::Right(_) = select(pin!(gone), deadline).await {
            warn!(lease = %self.settings.lease, "work still runs, so the lease is left to expire");
            return false;
        }
        let Some(lease) = self.rules.release(uid, number, wall_time()) else {
            return false;
        };
        match self.limited(self.leases.replace(&lease)).await {
            Ok(_) => {
                info!(lease = %self.settings.lease, term = number, "released the lease");
                true
            }
            Err(error) => {
                let error = error.describe("release");
                warn!(lease = %self.settings.lease, %error, "the lease is left to expire");
                false
            }
        }
    }

    /// Limits a request by the clock.
    async fn limited<T>(
        &self,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Failed> {
        let within = self.settings.attempt_within();
        let timer = self.clock.timer(self.clock.now() + within);
        match select(pin!(request), timer).await {
            Either::Left((reply, _)) => reply.map_err(Failed::Request),
            Either::Right(_) => Err(Failed::TimedOut(within)),
        }
    }

    fn describe_timeout(&self, last_error: &str) -> String {
        format!(
            "not renewed within {:?}; last error: {last_error}",
            self.settings.renew_within
        )
    }

    fn describe_holder(&self) -> String {
        match self.rules.lease() {
            Some(lease) => format!(
                "the lease shows term {}, held by {}",
                number_of(lease),
                holder(lease).map_or("no process", String::as_str)
            ),
            None => "the lease was deleted".to_owned(),
        }
    }

    fn stop_requested(&self) -> Option<Duration> {
        *self.channels.stopping.borrow()
    }
}

impl Failed {
    fn is_conflict(&self) -> bool {
        matches!(self, Self::Request(kube::Error::Api(status)) if status.code == 409)
    }

    /// Describes the failure, and names the missing right after a 403.
    fn describe(&self, what: &str) -> String {
        match self {
            Self::Request(kube::Error::Api(status)) if status.code == 403 => {
                format!(
                    "{}; a candidate needs get, create and update on leases",
                    status.message
                )
            }
            Self::Request(error) => error.to_string(),
            Self::TimedOut(within) => format!("no reply to {what} within {within:?}"),
        }
    }
}

/// Waits for a request to stop. A dropped handle aborts the task, so it is not one.
async fn stop_value(stopping: &mut watch::Receiver<Option<Duration>>) -> Duration {
    let within = stopping.wait_for(Option::is_some).await.ok().and_then(|within| *within);
    match within {
        Some(within) => within,
        None => std::future::pending().await,
    }
}

async fn stopped(stopping: &mut watch::Receiver<Option<Duration>>) {
    stop_value(stopping).await;
}

fn wall_time() -> MicroTime {
    MicroTime(Timestamp::now())
}

/// Returns a factor between 1 and 1 + JITTER.
fn jitter() -> f64 {
    let fraction =
        f64::from(u32::try_from(random() >> 32).unwrap_or(0)) / f64::from(u32::MAX);
    1.0 + JITTER * fraction
}
