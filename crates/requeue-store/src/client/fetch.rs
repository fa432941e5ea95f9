//! Leasing keys for getters.

use std::sync::Arc;
use std::time::{Duration, Instant};

use requeue::Clock;
use tokio::sync::oneshot;

use super::getters::{Delivery, FetchGuard};
use super::held_leases::fence;
use super::outage::Outage;
use super::task_count::CountedTask;
use super::{Client, Settings};
use crate::lease::RawLease;
use crate::race::race;
use crate::{Error, ErrorKind, Grant, Hold, LeaseRequest, Leased, Store};

/// How long an idle client waits before it looks again, in case a wake-up was lost. A store
/// that can lose wake-ups and has a cheaper way to look returns from its wait earlier.
const IDLE: Duration = Duration::from_secs(20);

/// The largest number of keys in one lease call.
const MAX_FETCH: usize = 256;

/// The last step of a task that fetches keys.
enum Step {
    /// It leased keys and may lease more at once.
    Leased,
    /// No key was ready. The next one is due in `more_in`.
    FoundNone { more_in: Option<Duration> },
    /// It waited, and should look now.
    Waited,
}

impl<S: Store> Client<S> {
    /// Starts to wait for up to `max` keys. [`delivered`](super::getters::delivered) waits
    /// for the result.
    pub(crate) fn get(
        self: &Arc<Self>,
        max: usize,
    ) -> oneshot::Receiver<Delivery<RawLease<S>>> {
        let (receiver, guard) = self.getters.join(max);
        if let Some(guard) = guard {
            self.start_heartbeat();
            self.spawn(Arc::clone(self).fetch(guard, self.leasing_tasks.enter()));
        }
        receiver
    }

    /// Leases ready keys without waiting.
    ///
    /// A task makes the call, so that keys are released if the caller stops waiting.
    pub(crate) async fn try_get(
        self: &Arc<Self>,
        max: usize,
    ) -> Result<Vec<RawLease<S>>, Error> {
        // Entered before it looks: see `TaskCount::enter`.
        let counted = self.leasing_tasks.enter();
        if self.is_closed() || max == 0 {
            return Ok(Vec::new());
        }
        self.start_heartbeat();
        let client = Arc::clone(self);
        let lease = async move { client.lease_now(max, counted).await };
        self.runtime.spawn(lease).await.unwrap_or_else(|error| {
            let text = format!("the runtime ended a lease call: {error}");
            Err(Error::new(ErrorKind::Unknown, text))
        })
    }

    async fn lease_now(
        self: &Arc<Self>,
        max: usize,
        _counted: CountedTask,
    ) -> Result<Vec<RawLease<S>>, Error> {
        self.reclaim().await;
        let _leasing = self.leasing.read().await;
        let asked = self.settings.clock.now();
        let answer = self.store.lease(&self.lease_request(max)).await;
        let answer = answer.inspect_err(|error| self.set_in_doubt(error))?;
        let mut leases = self.hold(answer.grants, asked);
        if self.is_closed() {
            // The heartbeat may have ended before they were held. Their drop releases them.
            leases.clear();
        }
        Ok(leases)
    }

    fn lease_request(&self, max: usize) -> LeaseRequest {
        let Settings { owner, lease, max_deliveries, .. } = &self.settings;
        LeaseRequest {
            owner: owner.clone(),
            max: max.min(MAX_FETCH),
            lease: *lease,
            max_deliveries: *max_deliveries,
        }
    }

    /// Adds leases to the held ones.
    fn hold(self: &Arc<Self>, grants: Vec<Grant>, asked: Instant) -> Vec<RawLease<S>> {
        let fence = fence(asked, self.settings.lease);
        let hold = |grant: Grant| {
            let hold = Hold { key: grant.key.clone(), token: grant.token };
            RawLease::new(Arc::clone(self), grant, self.held.insert(hold, fence))
        };
        grants.into_iter().map(hold).collect()
    }

    /// Fetches keys until no getter waits.
    async fn fetch(
        self: Arc<Self>,
        mut guard: FetchGuard<RawLease<S>>,
        _counted: CountedTask,
    ) {
        let (mut outage, mut last) = (Outage::default(), Step::Leased);
        loop {
            let wanted = guard.wanted();
            if wanted == 0 {
                return self.stop_fetching(last).await;
            }
            match self.fetch_once(wanted, last).await {
                Ok(step) => (outage, last) = (Outage::default(), step),
                Err(error) => {
                    let now = self.settings.clock.now();
                    let pause = outage.next_pause(now);
                    self.fetch_failed(&error, outage.duration(now)).await;
                    self.pause(pause).await;
                    last = Step::Leased;
                }
            }
        }
    }

    /// Passes on a wake-up that came for a getter that has left, by a lease of zero keys.
    async fn stop_fetching(&self, last: Step) {
        if matches!(last, Step::Waited) {
            if let Err(error) = self.store.lease(&self.lease_request(0)).await {
                self.report(&error);
            }
        }
        self.reclaim().await;
    }

    /// Leases keys, or waits if the last call found none.
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
        let asked = self.settings.clock.now();
        let leased = self.store.lease(&self.lease_request(wanted)).await?;
        let Leased { grants, more_in, paused } = leased;
        if grants.is_empty() {
            // A due key of a paused queue is no reason to look again.
            return Ok(Step::FoundNone { more_in: more_in.filter(|_| !paused) });
        }
        // Keys that no getter takes are released by their drop.
        drop(self.getters.deliver(self.hold(grants, asked)));
        Ok(Step::Leased)
    }

    /// Waits until keys may be ready or the client is closed.
    async fn wait(&self, more_in: Option<Duration>) -> Result<Step, Error> {
        let closing = self.closing.notified();
        if self.is_closed() {
            return Ok(Step::Leased);
        }
        let wait = self.store.wait(more_in.unwrap_or(IDLE).min(IDLE));
        match race(wait, Some(closing)).await {
            Some(waited) => waited.map(|()| Step::Waited),
            // It may have taken a wake-up.
            None => Ok(Step::Waited),
        }
    }

    /// Fails the getters if waiting longer does not help.
    async fn fetch_failed(&self, error: &Error, failing_for: Duration) {
        self.report(error);
        if !error.is_transient() || failing_for >= self.settings.patience {
            self.getters.fail(error);
        }
        self.set_in_doubt(error);
        self.reclaim().await;
    }
}
