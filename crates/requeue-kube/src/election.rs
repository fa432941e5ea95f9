//! Leader election on Leases of coordination.k8s.io.
//!
//! The algorithm is client-go's. A holder renews its Lease every `retry_every`. Every write is a
//! `replace` with the resourceVersion that was read, so of two candidates only one succeeds. No
//! candidate compares its clock with the clock of another machine: it takes over when it has
//! seen an unchanged Lease for the whole lease duration, on its own monotonic clock.
//!
//! `rules` decides, `campaign` is the task that reads and writes, `term` is the result.

mod boot_clock;
mod campaign;
mod lease;
mod rules;
mod term;
#[cfg(test)]
mod tests;

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use requeue::Clock;
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::boot_clock::BootClock;
use self::campaign::{Campaign, Channels};
use self::lease::{KubeLeases, Leases};
pub use self::term::Term;

/// Takes part in the election of one leader among several processes.
///
/// The defaults are client-go's: a Lease expires after 15 s, the holder stops its work when it
/// could not renew it for 10 s, and tries every 2 s.
///
/// # Guarantees
///
/// * A holder counts from the *start* of its last successful renewal, and stops before the
///   Lease can expire for others. The difference between [`duration`](Self::duration) and
///   [`renew_within`](Self::renew_within) is the time that running work has to end.
/// * Wall clocks are written to the Lease for people to read, and never compared. The time of
///   a suspended machine counts (`CLOCK_BOOTTIME`, on Linux).
/// * A process can still be paused between a check and a write. See [`Term`] for fencing.
///
/// # Rights
///
/// `get`, `create` and `update` on `leases` of the API group `coordination.k8s.io`. With `list`
/// and `watch`, a waiting candidate also notices a released Lease at once; without them it
/// polls.
///
/// # Examples
///
/// ```no_run
/// use requeue_kube::Election;
///
/// # async fn f() -> Result<(), Box<dyn std::error::Error>> {
/// let client = kube::Client::try_default().await?;
/// let candidate = Election::new(client, "default", "my-controller").start()?;
/// let term = candidate.won().await?;
/// println!("leading in term {}", term.number());
/// drop(term);
/// candidate.stop(std::time::Duration::from_secs(5)).await;
/// # Ok(())
/// # }
/// ```
#[must_use = "an election does nothing until it is started"]
pub struct Election {
    leases: KubeLeases,
    settings: Settings,
    clock: Arc<dyn Clock>,
}

#[derive(Clone, Debug)]
struct Settings {
    /// `namespace/name` of the Lease, for messages.
    lease: String,
    identity: String,
    duration: Duration,
    renew_within: Duration,
    retry_every: Duration,
    release_on_stop: bool,
    on_loss: OnLoss,
}

/// The reaction of a candidate to the loss of its Lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLoss {
    /// Becomes a candidate again. Controllers cancel their runs and keep their caches.
    #[default]
    Rejoin,
    /// Ends the candidacy, so that the process can exit. See [`Candidate::ended`].
    Stop,
}

/// The settings of an [`Election`] contradict each other.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ElectionError {
    /// A holder would stop after its Lease has expired.
    #[error(
        "renew_within {renew_within:?} must be shorter than the lease duration {duration:?}"
    )]
    RenewTooLate {
        /// See [`Election::renew_within`].
        renew_within: Duration,
        /// See [`Election::duration`].
        duration: Duration,
    },
    /// A holder would have time for less than two attempts.
    #[error(
        "retry_every {retry_every:?} must be positive, and at most half of renew_within {renew_within:?}"
    )]
    TooFewAttempts {
        /// See [`Election::retry_every`].
        retry_every: Duration,
        /// See [`Election::renew_within`].
        renew_within: Duration,
    },
    /// The Lease stores its duration in whole seconds.
    #[error("the lease duration {0:?} must be a whole number of seconds, at least 1 s")]
    FractionalDuration(Duration),
    /// A Lease needs an identity of its holder.
    #[error("the identity of a candidate must not be empty")]
    EmptyIdentity,
}

/// The candidacy has ended, and no further term will start.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the candidate has stopped")]
pub struct Ended;

impl Election {
    /// Prepares an election on the Lease `name` in `namespace`. The Lease need not exist.
    ///
    /// The identity is the host's name and a random number; see [`identity`](Self::identity).
    pub fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self {
            leases: KubeLeases::new(Api::<Lease>::namespaced(client, namespace), name),
            settings: Settings {
                lease: format!("{namespace}/{name}"),
                identity: random_identity(),
                duration: Duration::from_secs(15),
                renew_within: Duration::from_secs(10),
                retry_every: Duration::from_secs(2),
                release_on_stop: true,
                on_loss: OnLoss::default(),
            },
            clock: Arc::new(BootClock::new()),
        }
    }

    /// Sets the identity that the Lease shows. It must be unique among running processes.
    pub fn identity(mut self, identity: impl Into<String>) -> Self {
        self.settings.identity = identity.into();
        self
    }

    /// Sets how long others wait before they take over an unchanged Lease; 15 s by default.
    #[doc(alias = "LeaseDuration")]
    pub fn duration(mut self, duration: Duration) -> Self {
        self.settings.duration = duration;
        self
    }

    /// Sets how long a holder works on without a successful renewal; 10 s by default.
    #[doc(alias = "RenewDeadline")]
    pub fn renew_within(mut self, renew_within: Duration) -> Self {
        self.settings.renew_within = renew_within;
        self
    }

    /// Sets the time between two attempts to renew or acquire; 2 s by default.
    ///
    /// Candidates add a random part of up to 1.2 times this.
    #[doc(alias = "RetryPeriod")]
    pub fn retry_every(mut self, retry_every: Duration) -> Self {
        self.settings.retry_every = retry_every;
        self
    }

    /// Sets whether [`Candidate::stop`] releases the Lease; it does by default.
    #[doc(alias = "ReleaseOnCancel")]
    pub fn release_on_stop(mut self, release: bool) -> Self {
        self.settings.release_on_stop = release;
        self
    }

    /// Sets the reaction to the loss of the Lease; [`OnLoss::Rejoin`] by default.
    #[doc(alias = "OnStoppedLeading")]
    pub fn on_loss(mut self, on_loss: OnLoss) -> Self {
        self.settings.on_loss = on_loss;
        self
    }

    /// Sets the clock. The default counts the time of a suspended machine.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Starts the candidacy in a task of the current tokio runtime.
    ///
    /// # Errors
    ///
    /// If the settings contradict each other.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn start(self) -> Result<Candidate, ElectionError> {
        self.settings.check()?;
        Ok(start(self.leases, self.settings, self.clock))
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Settings {
    fn check(&self) -> Result<(), ElectionError> {
        let Self { duration, renew_within, retry_every, .. } = *self;
        if duration.is_zero() || duration.subsec_nanos() != 0 {
            return Err(ElectionError::FractionalDuration(duration));
        }
        if renew_within >= duration {
            return Err(ElectionError::RenewTooLate { renew_within, duration });
        }
        if retry_every.is_zero() || retry_every.saturating_mul(2) > renew_within {
            return Err(ElectionError::TooFewAttempts { retry_every, renew_within });
        }
        if self.identity.is_empty() {
            return Err(ElectionError::EmptyIdentity);
        }
        Ok(())
    }

    /// Limits one request. After a hung renewal there is time for another one.
    fn attempt_within(&self) -> Duration {
        (self.renew_within.saturating_sub(self.retry_every) / 2).max(self.retry_every / 2)
    }
}

fn start(leases: impl Leases, settings: Settings, clock: Arc<dyn Clock>) -> Candidate {
    let (term, terms) = watch::channel(None);
    let (stop, stopping) = watch::channel(None);
    let identity = settings.identity.clone();
    let released = Arc::new(AtomicBool::new(false));
    let channels = Channels { term, stopping, released: Arc::clone(&released) };
    let task = tokio::spawn(Campaign::new(leases, settings, clock, channels).run());
    Candidate(Arc::new(Inner { identity, terms, stop, released, task }))
}

/// A running candidacy. Clones share it.
///
/// Pass it to [`Controller::leader`](crate::Controller::leader) of any number of controllers.
/// When the last clone is dropped, the candidacy ends at once and the Lease expires by itself;
/// [`stop`](Self::stop) releases it.
#[derive(Clone)]
pub struct Candidate(Arc<Inner>);

struct Inner {
    identity: String,
    terms: watch::Receiver<Option<Term>>,
    /// How long to wait for the clones of the current term before the release.
    stop: watch::Sender<Option<Duration>>,
    /// Whether the candidacy has ended without leaving a held Lease behind.
    released: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Candidate {
    /// Returns the identity that the Lease shows while this process holds it.
    pub fn identity(&self) -> &str {
        &self.0.identity
    }

    /// Returns the current term, if this process is the leader.
    pub fn term(&self) -> Option<Term> {
        self.0.terms.borrow().clone().filter(Term::is_held)
    }

    /// Returns a channel with the current term. It closes when the candidacy ends.
    ///
    /// Drop each [`Term`] when the work that it covers has ended: [`stop`](Self::stop) does not
    /// release the Lease before.
    pub fn terms(&self) -> watch::Receiver<Option<Term>> {
        self.0.terms.clone()
    }

    /// Waits until this process is the leader.
    ///
    /// # Errors
    ///
    /// [`Ended`] if the candidacy ends first.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn won(&self) -> Result<Term, Ended> {
        let mut terms = self.terms();
        let held = terms
            .wait_for(|term| term.as_ref().is_some_and(Term::is_held))
            .await
            .map_err(|_closed| Ended)?;
        held.clone().ok_or(Ended)
    }

    /// Waits until the candidacy has ended: stopped, or lost with [`OnLoss::Stop`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn ended(&self) {
        let mut terms = self.terms();
        while terms.changed().await.is_ok() {}
    }

    /// Ends the candidacy, and releases the Lease if this process holds it.
    ///
    /// The term ends first. The Lease is released when every clone of the [`Term`] has been
    /// dropped, so never while a run may still write. If that takes longer than `within`, the
    /// Lease is kept and expires. Returns `true` if no Lease is left behind.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not undo the stop.
    pub async fn stop(&self, within: Duration) -> bool {
        self.0.stop.send_replace(Some(within));
        self.ended().await;
        self.0.released.load(Ordering::Acquire)
    }
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidate")
            .field("identity", &self.0.identity)
            .field("term", &self.term())
            .finish_non_exhaustive()
    }
}

fn random_identity() -> String {
    let host = hostname::get().ok().and_then(|name| name.into_string().ok());
    format!("{}_{:016x}", host.as_deref().unwrap_or("unknown"), random())
}

/// Returns a random number that is not secret.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
