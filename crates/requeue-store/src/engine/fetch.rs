//! Handing out.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use requeue::Clock;
use tokio::sync::{RwLockWriteGuard, oneshot};

use super::{Engine, Outage, Terms};
use crate::getters::{Handout, Turn};
use crate::held::fence;
use crate::lease::RawLease;
use crate::tally::Counted;
use crate::{Error, ErrorKind, Grant, Hold, LeaseRequest, Leased, Store, race};

/// How long an idle worker waits before it looks again, should a wake-up be lost. A store
/// that can lose one and has cheaper ways to look returns earlier from its wait.
const IDLE: Duration = Duration::from_secs(20);

/// The most keys that are fetched at a time.
const MAX_FETCH: usize = 256;

/// What a task that fetches keys did last.
enum Step {
    /// It looked, and may look again at once.
    Looked,
    /// There was no key; so long until one is due.
    FoundNone { more_in: Option<Duration> },
    /// It waited, and was woken or is to look anyway.
    Waited,
}

impl<S: Store> Engine<S> {
    /// Waits for a key, which [`handed`](crate::getters::handed) gives.
    pub(crate) fn get(self: &Arc<Self>) -> oneshot::Receiver<Handout<RawLease<S>>> {
        let (receiver, turn) = self.getters.join();
        if let Some(turn) = turn {
            self.start_beating();
            self.spawn(Arc::clone(self).fetch(turn, self.lessees.count()));
        }
        receiver
    }

    /// Leases what is ready now, without waiting. A task of its own does it: what nobody is
    /// there to hear of any more is released by its drop.
    pub(crate) async fn try_get(
        self: &Arc<Self>,
        max: usize,
    ) -> Result<Vec<RawLease<S>>, Error> {
        // Counted before it looks: see `is_closed`.
        let lessee = self.lessees.count();
        if self.is_closed() || max == 0 {
            return Ok(Vec::new());
        }
        self.start_beating();
        let engine = Arc::clone(self);
        let task = self.runtime.spawn(async move { engine.lease_now(max, lessee).await });
        task.await.unwrap_or_else(|error| {
            let text = format!("the runtime ended a call to lease keys: {error}");
            Err(Error::new(ErrorKind::Unknown, text))
        })
    }

    async fn lease_now(
        self: &Arc<Self>,
        max: usize,
        _lessee: Counted,
    ) -> Result<Vec<RawLease<S>>, Error> {
        self.reclaim().await;
        let _leasing = self.leasing.read().await;
        let asked = self.terms.clock.now();
        let leased = self.store.lease(&self.request(max)).await;
        let grants = leased.inspect_err(|error| self.doubt(error))?.grants.into_iter();
        let mut held: Vec<_> = grants.map(|grant| self.hold(grant, asked)).collect();
        if self.is_closed() {
            // The heart may have stopped before they were held. Their drop releases them.
            held.clear();
        }
        Ok(held)
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
    async fn fetch(self: Arc<Self>, mut turn: Turn<RawLease<S>>, _lessee: Counted) {
        let (mut outage, mut last) = (Outage::default(), Step::Looked);
        loop {
            let wanted = turn.wanted();
            if wanted == 0 {
                return self.leave(last).await;
            }
            match self.fetch_once(wanted, last).await {
                Ok(step) => (outage, last) = (Outage::default(), step),
                Err(error) => {
                    let now = self.terms.clock.now();
                    let pause = outage.next_pause(now);
                    self.fetch_failed(&error, outage.lasts(now)).await;
                    self.pause(pause).await;
                    last = Step::Looked;
                }
            }
        }
    }

    /// Nobody waits any more. A wake-up that came for those who did is passed on, by a look
    /// at what is there.
    async fn leave(&self, last: Step) {
        if matches!(last, Step::Waited) {
            if let Err(error) = self.store.lease(&self.request(0)).await {
                self.report(&error);
            }
        }
        self.reclaim().await;
    }

    /// Looks for keys, or waits for them if there were none.
    async fn fetch_once(
        self: &Arc<Self>,
        wanted: usize,
        last: Step,
    ) -> Result<Step, Error> {
        self.reclaim().await;
        if let Step::FoundNone { more_in } = last {
            return self.wait(more_in).await;
        }
        let _leasing = self.leasing.read().await;
        let asked = self.terms.clock.now();
        let leased = self.store.lease(&self.request(wanted)).await?;
        let Leased { grants, more_in, paused } = leased;
        if grants.is_empty() {
            // What is ready in a paused queue is no reason to look again.
            return Ok(Step::FoundNone { more_in: more_in.filter(|_| !paused) });
        }
        for grant in grants {
            // What nobody waits for any more is released by its drop.
            drop(self.getters.hand(self.hold(grant, asked)));
        }
        Ok(Step::Looked)
    }

    /// Waits until keys may be ready or the queue is closed.
    async fn wait(&self, more_in: Option<Duration>) -> Result<Step, Error> {
        let closed = self.closing.notified();
        if self.is_closed() {
            return Ok(Step::Looked);
        }
        let wait = self.store.wait(more_in.unwrap_or(IDLE).min(IDLE));
        match race::first(wait, Some(closed)).await {
            Some(waited) => waited.map(|()| Step::Waited),
            None => Ok(Step::Looked),
        }
    }

    /// Tells those who wait, if waiting longer makes no sense, and tries to bring back keys
    /// that may have been leased to nobody.
    async fn fetch_failed(&self, error: &Error, failing_for: Duration) {
        self.report(error);
        if !error.is_transient() || failing_for >= self.terms.patience {
            self.getters.fail(error);
        }
        self.doubt(error);
        self.reclaim().await;
    }

    /// Remembers that keys may have been leased to nobody, if that is what `error` means.
    fn doubt(&self, error: &Error) {
        if error.kind() == ErrorKind::Unknown {
            self.in_doubt.store(true, Ordering::Release);
        }
    }

    /// Brings back keys that may have been leased to nobody, once no lease is on its way
    /// that is not held yet. If the store cannot be reached, that stays to be done, before
    /// the next lease or with the next heartbeat; a part of it may be there all the same, so
    /// it keeps nobody from leasing.
    pub(super) async fn reclaim(&self) {
        if self.in_doubt.load(Ordering::Acquire) {
            self.reclaim_with(self.leasing.write().await).await;
        }
    }

    /// As [`reclaim`](Self::reclaim), unless a lease is on its way: a heartbeat cannot wait
    /// for that.
    pub(super) async fn reclaim_if_quiet(&self) {
        if self.in_doubt.load(Ordering::Acquire) {
            if let Ok(no_lease) = self.leasing.try_write() {
                self.reclaim_with(no_lease).await;
            }
        }
    }

    /// As [`reclaim`](Self::reclaim), for as long as patience lasts.
    pub(super) async fn reclaim_patiently(&self) {
        let (mut outage, asked) = (Outage::default(), self.terms.clock.now());
        loop {
            self.reclaim().await;
            if !self.in_doubt.load(Ordering::Acquire) {
                return;
            }
            let now = self.terms.clock.now();
            let pause = outage.next_pause(now);
            if outage.outlasts(self.terms.patience, asked, now.checked_add(pause)) {
                return;
            }
            self.pause(pause).await;
        }
    }

    async fn reclaim_with(&self, _no_lease: RwLockWriteGuard<'_, ()>) {
        let holds = self.held.holds();
        let reclaimed = self.store.reclaim(&self.terms.owner, &holds).await;
        let again = reclaimed.as_ref().is_err_and(Error::is_transient);
        self.in_doubt.store(again, Ordering::Release);
        if let Err(error) = reclaimed {
            self.report(&error);
        }
    }
}
