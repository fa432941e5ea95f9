//! The rules of an election. Pure: time is an argument.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

/// The Lease as one candidate knows it.
#[derive(Debug)]
pub(super) struct Rules {
    identity: String,
    duration: Duration,
    seen: Option<Sighting>,
    /// The last claim of this process. The Lease can show it although the process does not
    /// lead: the reply to the claim was lost, or the term ended without a release.
    claim: Option<LeaseSpec>,
}

/// A Lease, and when this candidate first saw it in this state.
#[derive(Debug)]
struct Sighting {
    lease: Lease,
    since: Instant,
}

/// What a candidate may do.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// The Lease does not exist: create it.
    Create(Box<Lease>),
    /// The Lease is free or expired: replace it.
    Replace(Box<Lease>),
    /// Another process holds the Lease. It does not expire before this.
    Wait(Instant),
}

impl Rules {
    pub(super) fn new(identity: &str, duration: Duration) -> Self {
        Self { identity: identity.to_owned(), duration, seen: None, claim: None }
    }

    /// Records the Lease as it was read or written at `now`.
    ///
    /// The time of the first sighting counts, so reading an unchanged Lease again does not
    /// prolong it. Only the spec and the uid matter: an edited label is not a renewal.
    pub(super) fn see(&mut self, lease: Option<Lease>, now: Instant) {
        let since = match (&self.seen, &lease) {
            (Some(seen), Some(lease)) if is_same(&seen.lease, lease) => seen.since,
            _ => now,
        };
        self.seen = lease.map(|lease| Sighting { lease, since });
    }

    /// Returns what to do to become the leader, and remembers the claim.
    pub(super) fn acquire(&mut self, now: Instant, wall: &MicroTime) -> Step {
        let step = self.next_claim(now, wall);
        if let Step::Create(lease) | Step::Replace(lease) = &step {
            self.claim.clone_from(&lease.spec);
        }
        step
    }

    fn next_claim(&self, now: Instant, wall: &MicroTime) -> Step {
        let Some(seen) = &self.seen else {
            return Step::Create(Box::new(self.claimed(Lease::default(), 0, wall)));
        };
        let lease = &seen.lease;
        let expires = seen.since + self.duration_of(lease);
        if is_held(lease) && !self.is_own_claim(lease) && now < expires {
            return Step::Wait(expires);
        }
        // Also for an own claim: work of the former term may still run.
        let next = transitions(lease).saturating_add(1);
        Step::Replace(Box::new(self.claimed(lease.clone(), next, wall)))
    }

    /// Returns the Lease with a new renewal time, if it is still the one of this term.
    pub(super) fn renew(&self, uid: &str, number: u64, wall: MicroTime) -> Option<Lease> {
        let lease = &self.seen.as_ref()?.lease;
        let is_ours = holder(lease) == Some(&self.identity)
            && lease.metadata.uid.as_deref() == Some(uid)
            && number_of(lease) == number;
        is_ours.then(|| self.renewed(lease, wall))
    }

    /// Returns the Lease without a holder, so that others take it at once.
    pub(super) fn release(
        &self,
        uid: &str,
        number: u64,
        wall: MicroTime,
    ) -> Option<Lease> {
        let mut lease = self.renew(uid, number, wall)?;
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        Some(lease)
    }

    /// Returns the Lease as it was seen last. Without one, read it before writing.
    pub(super) fn lease(&self) -> Option<&Lease> {
        self.seen.as_ref().map(|seen| &seen.lease)
    }

    fn claimed(&self, mut lease: Lease, transitions: i32, wall: &MicroTime) -> Lease {
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(self.identity.clone());
        spec.lease_duration_seconds = Some(whole_seconds(self.duration));
        spec.acquire_time = Some(wall.clone());
        spec.renew_time = Some(wall.clone());
        spec.lease_transitions = Some(transitions);
        lease
    }

    fn renewed(&self, lease: &Lease, wall: MicroTime) -> Lease {
        let mut lease = lease.clone();
        let spec = lease.spec.get_or_insert_default();
        spec.renew_time = Some(wall);
        spec.lease_duration_seconds = Some(whole_seconds(self.duration));
        lease
    }

    /// Returns whether the Lease shows the last claim of this process.
    ///
    /// The identity alone is not enough: after a restart it may be that of a process which
    /// still runs. The time of acquisition distinguishes them.
    fn is_own_claim(&self, lease: &Lease) -> bool {
        let (Some(claim), Some(spec)) = (&self.claim, &lease.spec) else { return false };
        claim.holder_identity == spec.holder_identity
            && claim.acquire_time == spec.acquire_time
            && claim.lease_transitions == spec.lease_transitions
    }

    /// A Lease without a usable duration gets the candidate's own.
    fn duration_of(&self, lease: &Lease) -> Duration {
        let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
        match seconds.map(u64::try_from) {
            Some(Ok(seconds)) if seconds > 0 => Duration::from_secs(seconds),
            _ => self.duration,
        }
    }
}

/// Returns the number of the term that a Lease shows.
pub(super) fn number_of(lease: &Lease) -> u64 {
    u64::try_from(transitions(lease)).unwrap_or(0)
}

fn transitions(lease: &Lease) -> i32 {
    lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or(0)
}

pub(super) fn holder(lease: &Lease) -> Option<&String> {
    lease.spec.as_ref()?.holder_identity.as_ref().filter(|holder| !holder.is_empty())
}

fn is_held(lease: &Lease) -> bool {
    holder(lease).is_some()
}

fn is_same(one: &Lease, other: &Lease) -> bool {
    one.spec == other.spec && one.metadata.uid == other.metadata.uid
}

fn whole_seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_secs()).unwrap_or(i32::MAX)
}
