//! Handing out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::{Engine, FIRST_PAUSE, LONGEST_PAUSE, Terms};
use crate::getters::Handout;
use crate::held::fence;
use crate::lease::RawLease;
use crate::{Error, ErrorKind, Grant, Hold, LeaseRequest, Leased, Store, race};

/// How long an idle worker waits before it looks again, should a wake-up be lost.
const IDLE: Duration = Duration::from_secs(5);

/// The most keys that are fetched at a time.
const MAX_FETCH: usize = 256;

impl<S: Store> Engine<S> {
    /// Waits for a key, which [`handed`](crate::getters::handed) gives.
    pub(crate) fn get(self: &Arc<Self>) -> oneshot::Receiver<Handout<RawLease<S>>> {
        let (receiver, start) = self.getters.join();
        if start {
            self.start_beating();
            self.spawn(Arc::clone(self).fetch());
        }
        receiver
    }

    /// Leases what is ready now, without waiting.
    pub(crate) async fn try_get(
        self: &Arc<Self>,
        max: usize,
    ) -> Result<Vec<RawLease<S>>, Error> {
        if self.is_closed() || max == 0 {
            return Ok(Vec::new());
        }
        self.start_beating();
        let asked = self.terms.clock.now();
        let leased = self.store.lease(&self.request(max)).await?;
        Ok(leased.grants.into_iter().map(|grant| self.hold(grant, asked)).collect())
    }

    fn request(&self, max: usize) -> LeaseRequest {
        let Terms { owner, lease, max_deliveries, .. } = &self.terms;
        LeaseRequest {
            owner: owner.clone(),
            max: max.min(MAX_FETCH),
            lease: *lease,
            max_deliveries: *max_deliveries,
        }
    }

    fn hold(self: &Arc<Self>, grant: Grant, asked: Instant) -> RawLease<S> {
        let hold = Hold { key: grant.key.clone(), token: grant.token };
        let lease = self.held.insert(hold, fence(asked, self.terms.lease));
        RawLease::new(Arc::clone(self), grant, lease)
    }

    /// Fetches keys for those who wait, until nobody does.
    async fn fetch(self: Arc<Self>) {
        let (mut pause, mut failing_since) = (FIRST_PAUSE, None);
        loop {
            let wanted = self.getters.wanted();
            if wanted == 0 {
                return;
            }
            match self.fetch_once(wanted).await {
                Ok(()) => (pause, failing_since) = (FIRST_PAUSE, None),
                Err(error) => {
                    let now = self.terms.clock.now();
                    let since = *failing_since.get_or_insert(now);
                    self.fetch_failed(&error, now - since).await;
                    self.pause(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    async fn fetch_once(self: &Arc<Self>, wanted: usize) -> Result<(), Error> {
        let asked = self.terms.clock.now();
        let leased = self.store.lease(&self.request(wanted)).await?;
        let none = leased.grants.is_empty();
        let Leased { grants, more_in, .. } = leased;
        for grant in grants {
            // What nobody waits for any more is released by its drop.
            drop(self.getters.hand(self.hold(grant, asked)));
        }
        if none {
            let at_most = more_in.unwrap_or(IDLE).min(IDLE);
            let closed = self.closing.notified();
            if !self.is_closed() {
                let wait = self.store.wait(at_most);
                return race::first(wait, Some(closed)).await.unwrap_or(Ok(()));
            }
        }
        Ok(())
    }

    /// Tells those who wait, if waiting longer makes no sense, and brings back keys that
    /// may have been leased to nobody.
    async fn fetch_failed(&self, error: &Error, failing_for: Duration) {
        self.report(error);
        if !error.is_transient() || failing_for >= self.terms.patience {
            self.getters.fail(error);
        }
        if error.kind() == ErrorKind::Unknown {
            let holds = self.held.holds();
            if let Err(error) = self.store.reclaim(&self.terms.owner, &holds).await {
                self.report(&error);
            }
        }
    }
}
