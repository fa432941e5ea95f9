//! Handing out.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::{Engine, FIRST_PAUSE, LONGEST_PAUSE, Terms};
use crate::getters::Handout;
use crate::held::fence;
use crate::lease::RawLease;
use crate::{Error, ErrorKind, Grant, Hold, LeaseRequest, Leased, Reply, Store, race};

/// How long an idle worker waits before it looks again, should a wake-up be lost. A store
/// that can lose one and has cheaper ways to look returns earlier from its wait.
const IDLE: Duration = Duration::from_secs(20);

/// How long a wait lasts after which the store leases by itself. The lease is counted from
/// before it, and lasts at least six times as long.
const LEASING_WAIT: Duration = Duration::from_secs(5);

/// The most keys that are fetched at a time.
const MAX_FETCH: usize = 256;

/// There was no key.
struct Idle {
    /// How long until one is due.
    more_in: Option<Duration>,
}

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

    /// Leases what is ready now, without waiting. A task of its own does it: what nobody is
    /// there to hear of any more is released by its drop.
    pub(crate) async fn try_get(
        self: &Arc<Self>,
        max: usize,
    ) -> Result<Vec<RawLease<S>>, Error> {
        if self.is_closed() || max == 0 {
            return Ok(Vec::new());
        }
        self.start_beating();
        let engine = Arc::clone(self);
        let task = self.runtime.spawn(async move { engine.lease_now(max).await });
        task.await.unwrap_or_else(|error| {
            let text = format!("the runtime ended a call to lease keys: {error}");
            Err(Error::new(ErrorKind::Unknown, text))
        })
    }

    async fn lease_now(self: &Arc<Self>, max: usize) -> Result<Vec<RawLease<S>>, Error> {
        self.reclaim().await;
        let _leasing = self.leasing.read().await;
        let asked = self.terms.clock.now();
        let leased = self.store.lease(&self.request(max)).await;
        let leased = leased.inspect_err(|error| self.doubt(error))?;
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
        let (mut pause, mut failing_since, mut idle) = (FIRST_PAUSE, None, None);
        loop {
            let wanted = self.getters.wanted();
            if wanted == 0 {
                return self.reclaim().await;
            }
            match self.fetch_once(wanted, idle.take()).await {
                Ok(next) => (pause, failing_since, idle) = (FIRST_PAUSE, None, next),
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

    /// Looks for keys, or waits for them if there were none: whether there were none now.
    async fn fetch_once(
        self: &Arc<Self>,
        wanted: usize,
        idle: Option<Idle>,
    ) -> Result<Option<Idle>, Error> {
        self.reclaim().await;
        let request = self.request(wanted);
        let waiting = idle.as_ref().and_then(|idle| self.leasing_wait(&request, idle));
        if let (Some(idle), None) = (&idle, &waiting) {
            self.wait(idle).await?;
            return Ok(None);
        }
        let _leasing = self.leasing.read().await;
        let asked = self.terms.clock.now();
        let leased = match waiting {
            Some(waiting) => self.unless_closed(waiting).await?,
            None => Some(self.store.lease(&request).await?),
        };
        let Some(Leased { grants, more_in, .. }) = leased else {
            // The wait was given up, and may have leased already.
            self.in_doubt.store(true, Ordering::Release);
            return Ok(None);
        };
        let none = grants.is_empty();
        for grant in grants {
            // What nobody waits for any more is released by its drop.
            drop(self.getters.hand(self.hold(grant, asked)));
        }
        Ok(none.then_some(Idle { more_in }))
    }

    /// A wait that leases by itself, if it may and the store has one.
    fn leasing_wait<'a>(
        &'a self,
        request: &'a LeaseRequest,
        idle: &Idle,
    ) -> Option<Reply<'a, Leased>> {
        self.may_lease_after(idle)
            .then(|| self.store.wait_and_lease(request, LEASING_WAIT))
            .flatten()
    }

    /// Waits until keys may be ready or the queue is closed.
    async fn wait(&self, idle: &Idle) -> Result<(), Error> {
        let wait = self.store.wait(idle.more_in.unwrap_or(IDLE).min(IDLE));
        self.unless_closed(wait).await.map(drop)
    }

    /// The answer to a call that waits, unless the queue is closed before it comes.
    async fn unless_closed<T>(&self, call: Reply<'_, T>) -> Result<Option<T>, Error> {
        let closed = self.closing.notified();
        if self.is_closed() {
            return Ok(None);
        }
        race::first(call, Some(closed)).await.transpose()
    }

    /// Whether a wait may lease by itself: nothing is due in its time, which only this side
    /// can watch closely, and the lease is so long that the wait does not matter to its
    /// fence.
    fn may_lease_after(&self, idle: &Idle) -> bool {
        let undisturbed = |more_in| more_in > LEASING_WAIT + Duration::from_secs(1);
        idle.more_in.is_none_or(undisturbed) && self.terms.lease / 6 >= LEASING_WAIT
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
        if !self.in_doubt.load(Ordering::Acquire) {
            return;
        }
        let _no_lease = self.leasing.write().await;
        let holds = self.held.holds();
        let reclaimed = self.store.reclaim(&self.terms.owner, &holds).await;
        let again = reclaimed.as_ref().is_err_and(Error::is_transient);
        self.in_doubt.store(again, Ordering::Release);
        if let Err(error) = reclaimed {
            self.report(&error);
        }
    }
}
