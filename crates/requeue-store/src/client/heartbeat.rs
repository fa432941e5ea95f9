//! The heartbeat extends held leases, three times per lease.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use requeue::Clock;

use super::held_leases::fence;
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

    /// Extends all held leases. Gives up on the answer when the next heartbeat is due.
    async fn extend(&self) {
        let interval = self.settings.lease / 3;
        let extending = self.extend_in_parts(self.held.holds());
        if race(extending, self.timer(interval)).await.is_none() {
            let text = format!("no answer within {interval:?} to an extension of leases");
            self.report(&Error::new(ErrorKind::Unknown, text));
        }
    }

    /// If one of the keys is locked, extends halves, until the locked key is alone. That key
    /// is then neither extended nor lost.
    async fn extend_in_parts(&self, holds: Vec<Hold>) {
        let Settings { owner, lease, clock, .. } = &self.settings;
        let mut parts = vec![&holds[..]];
        while let Some(part) = parts.pop() {
            let asked = clock.now();
            match self.store.extend(owner, part, *lease).await {
                Ok(answers) => self.held.extended(part, &answers, fence(asked, *lease)),
                Err(error) if error.kind() == ErrorKind::Busy => {
                    if part.len() > 1 {
                        parts.extend(<[_; 2]>::from(part.split_at(part.len() / 2)));
                    }
                }
                Err(error) => return self.report(&error),
            }
        }
    }
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
    loop {
        let Some(next) = clock.now().checked_add(interval) else { return };
        clock.timer(next).await;
        let Some(client) = guard.0.upgrade() else { return };
        if client.is_closed() && client.held.is_empty() {
            return;
        }
        client.extend().await;
        client.reclaim_if_possible().await;
    }
}
