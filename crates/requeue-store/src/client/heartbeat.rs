//! The heartbeat extends held leases, three times per lease.
//!
//! Ticks are a third of the lease apart, counted from the start of each. An attempt that is
//! not answered in three quarters of that time is abandoned, so the next tick is on time.
//! A lease thus survives any single lost or hung call: of the two ticks before its fence,
//! one is enough.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use requeue::Clock;

use super::held_leases::fence;
use super::lanes::by_lane;
use super::{Client, Settings};
use crate::race::race;
use crate::{Error, ErrorKind, Hold, Store};

impl<S: Store> Client<S> {
    pub(super) fn start_heartbeat(self: &Arc<Self>) {
        if !self.has_heartbeat.swap(true, Ordering::AcqRel) {
            let guard = HeartbeatGuard(Arc::downgrade(self));
            let clock = Arc::clone(&self.settings.clock);
            self.spawn(heartbeat(guard, clock, self.settings.lease / 3));
        }
    }

    /// Starts to extend all held leases, each lane in a separate task, and to reclaim lost
    /// ones. A call that panics ends only its own task.
    fn tick(self: &Arc<Self>, interval: Duration) {
        let deadline = interval * 3 / 4;
        let lanes = by_lane(self.held.holds(), |hold| self.store.lane(&hold.key));
        if lanes.is_empty() {
            self.spawn(Arc::clone(self).report_alive(deadline));
        }
        for holds in lanes.into_values() {
            self.spawn(Arc::clone(self).extend(holds, deadline));
        }
        let client = Arc::clone(self);
        self.spawn(async move {
            race(client.reclaim_if_possible(), client.timer(deadline)).await;
        });
    }

    /// Makes one attempt to extend leases. Leases without an answer are neither extended
    /// nor lost.
    async fn extend(self: Arc<Self>, holds: Vec<Hold>, deadline: Duration) {
        let Settings { owner, lease, clock, .. } = &self.settings;
        let asked = clock.now();
        let extending = self.store.extend(owner, &holds, *lease);
        let Some(answers) = race(extending, self.timer(deadline)).await else {
            return self.report(&unanswered(deadline));
        };
        let of_store = |error: &&Error| error.kind() != ErrorKind::Busy;
        let mut errors = answers.iter().filter_map(|answer| answer.as_ref().err());
        if let Some(error) = errors.find(of_store) {
            self.report(error);
        }
        self.held.extended(&holds, &answers, fence(asked, *lease));
    }

    async fn report_alive(self: Arc<Self>, deadline: Duration) {
        let call = self.store.heartbeat(&self.settings.owner);
        match race(call, self.timer(deadline)).await {
            Some(Ok(())) => {}
            Some(Err(error)) => self.report(&error),
            None => self.report(&unanswered(deadline)),
        }
    }
}

fn unanswered(deadline: Duration) -> Error {
    let text = format!("the store did not answer a heartbeat within {deadline:?}");
    Error::new(ErrorKind::Unknown, text)
}

/// Held by the heartbeat task. Lets the next call start a new one when it ends.
struct HeartbeatGuard<S: Store>(Weak<Client<S>>);

impl<S: Store> Drop for HeartbeatGuard<S> {
    fn drop(&mut self) {
        if let Some(client) = self.0.upgrade() {
            client.has_heartbeat.store(false, Ordering::Release);
        }
    }
}

/// Runs until the client is gone, or is closed and holds no lease.
async fn heartbeat<S: Store>(
    guard: HeartbeatGuard<S>,
    clock: Arc<dyn Clock>,
    interval: Duration,
) {
    let mut start = clock.now();
    loop {
        let Some(next) = start.checked_add(interval) else { return };
        clock.timer(next).await;
        let Some(client) = guard.0.upgrade() else { return };
        if client.is_closed() && client.held.is_empty() {
            return;
        }
        start = clock.now();
        client.tick(interval);
    }
}
