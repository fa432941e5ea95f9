//! The heartbeat.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use requeue::Clock;

use super::{Engine, Terms};
use crate::held::fence;
use crate::{Error, ErrorKind, Store, race};

impl<S: Store> Engine<S> {
    pub(super) fn start_beating(self: &Arc<Self>) {
        if !self.beating.swap(true, Ordering::AcqRel) {
            self.spawn(beat(
                Arc::downgrade(self),
                Arc::clone(&self.terms.clock),
                self.terms.lease / 3,
            ));
        }
    }

    /// Extends all that is held. An answer that does not come before the next beat is not
    /// waited for.
    async fn extend(&self) {
        let holds = self.held.holds();
        let asked = self.terms.clock.now();
        let Terms { owner, lease, .. } = &self.terms;
        let call = self.store.extend(owner, &holds, *lease);
        match race::first(call, self.timer(*lease / 3)).await {
            Some(Ok(answers)) => {
                self.held.extended(&holds, &answers, fence(asked, *lease));
            }
            Some(Err(error)) => self.report(&error),
            None => {
                let text = format!("no answer within {:?} to extend leases", *lease / 3);
                self.report(&Error::new(ErrorKind::Unknown, text));
            }
        }
    }
}

/// Beats until the queue is gone, or closed with nothing held.
async fn beat<S: Store>(
    queue: Weak<Engine<S>>,
    clock: Arc<dyn Clock>,
    interval: Duration,
) {
    loop {
        let Some(next) = clock.now().checked_add(interval) else { return };
        clock.timer(next).await;
        let Some(queue) = queue.upgrade() else { return };
        if queue.is_closed() && queue.held.is_empty() {
            return;
        }
        queue.extend().await;
        queue.reclaim().await;
    }
}
