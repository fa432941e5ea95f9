//! A term: the time during which one process holds the Lease.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use requeue::Clock;
use tokio::sync::{mpsc, watch};

/// A fencing token: the right to act as the leader, for as long as it is held.
///
/// [`is_held`](Self::is_held) before each write narrows the window in which a paused process
/// writes too late. It cannot close it: the process can be paused between the check and the
/// write. To close it, let the receiver of the write compare terms:
///
/// * For Kubernetes objects, send the `resourceVersion` that was read in this term, and write
///   [`number`](Self::number) into an annotation or a status field. The first write of the
///   next leader makes the old resourceVersion stale, so a late write fails with 409.
/// * For other systems, send [`number`](Self::number) with each request and refuse requests
///   with a lower number than the highest seen. If Leases can be deleted, compare
///   [`uid`](Self::uid) as well: numbers start again with a new Lease.
///
/// Keep a clone for as long as work under this term runs:
/// [`Candidate::stop`](super::Candidate::stop) releases the Lease when all clones are dropped.
#[derive(Clone)]
pub struct Term {
    number: u64,
    uid: Arc<str>,
    hold: Arc<Hold>,
    /// Closed when the term has ended.
    end: watch::Receiver<()>,
    /// Closed when all clones are dropped.
    _user: mpsc::Sender<()>,
}

/// The deadline of a term, shared by the campaign and all clones of the term.
struct Hold {
    clock: Arc<dyn Clock>,
    start: Instant,
    /// Nanoseconds from `start`; 0 when the term has ended.
    until: AtomicU64,
}

/// The campaign's side of a [`Term`]. The term ends when it is dropped.
pub(super) struct TermKeeper {
    end: TermEnd,
    users: TermUsers,
}

/// Ends the term when it is dropped, also if the campaign's task is aborted.
struct TermEnd {
    hold: Arc<Hold>,
    _ended: watch::Sender<()>,
}

/// The clones of a term.
pub(super) struct TermUsers(mpsc::Receiver<()>);

impl Term {
    /// Starts a term that is held until `until`.
    pub(super) fn start(
        number: u64,
        uid: &str,
        clock: Arc<dyn Clock>,
        until: Instant,
    ) -> (Self, TermKeeper) {
        let hold = Arc::new(Hold { start: clock.now(), clock, until: AtomicU64::new(0) });
        hold.extend(until);
        let (user, users) = mpsc::channel(1);
        let (ended, end) = watch::channel(());
        let keeper = TermKeeper {
            end: TermEnd { hold: Arc::clone(&hold), _ended: ended },
            users: TermUsers(users),
        };
        (Self { number, uid: uid.into(), hold, end, _user: user }, keeper)
    }

    /// Returns the `leaseTransitions` of the Lease. It grows with every change of the holder.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the uid of the Lease.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// Returns whether this process still holds the Lease, by its own monotonic clock.
    pub fn is_held(&self) -> bool {
        self.hold.remaining().is_some()
    }

    /// Returns how long the Lease is held if no further renewal succeeds.
    pub fn remaining(&self) -> Duration {
        self.hold.remaining().unwrap_or_default()
    }

    /// Waits until the term has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn ended(&self) {
        let mut end = self.end.clone();
        while end.changed().await.is_ok() {}
    }
}

impl PartialEq for Term {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number && self.uid == other.uid
    }
}

impl Eq for Term {}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Term")
            .field("number", &self.number)
            .field("uid", &self.uid)
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}

impl Hold {
    fn extend(&self, until: Instant) {
        let nanos = until.saturating_duration_since(self.start).as_nanos();
        self.until.store(u64::try_from(nanos).unwrap_or(u64::MAX), Ordering::Release);
    }

    fn remaining(&self) -> Option<Duration> {
        let until = Duration::from_nanos(self.until.load(Ordering::Acquire));
        let passed = self.clock.now().saturating_duration_since(self.start);
        until.checked_sub(passed).filter(|left| !left.is_zero())
    }
}

impl TermKeeper {
    pub(super) fn extend(&self, until: Instant) {
        self.end.hold.extend(until);
    }

    /// Ends the term. Returns its remaining clones.
    pub(super) fn end(self) -> TermUsers {
        self.users
    }
}

impl Drop for TermEnd {
    fn drop(&mut self) {
        self.hold.until.store(0, Ordering::Release);
    }
}

impl TermUsers {
    /// Waits until all clones are dropped.
    pub(super) async fn gone(&mut self) {
        while self.0.recv().await.is_some() {}
    }
}
