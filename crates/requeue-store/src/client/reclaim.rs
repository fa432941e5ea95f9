//! Releasing keys whose lease call got no answer.
//!
//! Such keys may be leased to this client without being among its held leases. The next
//! lease call or heartbeat asks the store to release them. If the store cannot be reached,
//! the client stays *in doubt* and asks again later; meanwhile it keeps leasing keys,
//! because a part of the store may work.
//!
//! A call without an answer can also be executed *later*, after the reclaim: its packets
//! were stuck, or the server was stopped. So the heartbeat reclaims at each tick for one
//! lease duration after the last such call.

use std::sync::atomic::Ordering;
use std::time::Instant;

use requeue::Clock;
use tokio::sync::RwLockWriteGuard;

use super::Client;
use super::outage::Outage;
use crate::sync::lock;
use crate::{Error, ErrorKind, Store};

impl<S: Store> Client<S> {
    /// Remembers that an error leaves the outcome of a lease call unknown.
    pub(super) fn set_in_doubt(&self, error: &Error) {
        if error.kind() == ErrorKind::Unknown {
            let until = self.settings.clock.now().checked_add(self.settings.lease);
            *lock(&self.late_leases_until) = until;
            self.in_doubt.store(true, Ordering::Release);
        }
    }

    /// Returns whether a call without an answer may still be executed.
    fn expects_late_leases(&self, now: Instant) -> bool {
        lock(&self.late_leases_until).is_some_and(|until| now < until)
    }

    fn is_in_doubt(&self) -> bool {
        self.in_doubt.load(Ordering::Acquire)
    }

    /// Reclaims keys if the client is in doubt. Waits for lease calls in flight, whose keys
    /// are not among the held ones yet.
    pub(super) async fn reclaim(&self) {
        if self.is_in_doubt() {
            self.reclaim_with(self.leasing.write().await).await;
        }
    }

    /// As [`reclaim`](Self::reclaim), also for late leases, unless a lease call is in flight:
    /// the heartbeat cannot wait for it.
    pub(super) async fn reclaim_if_possible(&self) {
        let now = self.settings.clock.now();
        if self.is_in_doubt() || self.expects_late_leases(now) {
            if let Ok(no_lease_call) = self.leasing.try_write() {
                self.reclaim_with(no_lease_call).await;
            }
        }
    }

    /// As [`reclaim`](Self::reclaim), repeated for as long as patience lasts.
    pub(super) async fn reclaim_patiently(&self) {
        let (mut outage, asked) = (Outage::default(), self.settings.clock.now());
        loop {
            self.reclaim().await;
            if !self.is_in_doubt() {
                return;
            }
            let now = self.settings.clock.now();
            let pause = outage.next_pause(now);
            if outage.exceeds(self.settings.patience, asked, now.checked_add(pause)) {
                return;
            }
            self.pause(pause).await;
        }
    }

    async fn reclaim_with(&self, _no_lease_call: RwLockWriteGuard<'_, ()>) {
        let holds = self.held.holds();
        let reclaimed = self.store.reclaim(&self.settings.owner, &holds).await;
        let again = reclaimed.as_ref().is_err_and(Error::is_transient);
        self.in_doubt.store(again, Ordering::Release);
        if let Err(error) = reclaimed {
            self.report(&error);
        }
    }
}
