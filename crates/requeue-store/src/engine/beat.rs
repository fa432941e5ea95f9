//! The heartbeat.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use requeue::Clock;

use super::{Engine, Terms};
use crate::held::fence;
use crate::{Error, ErrorKind, Hold, Store, race};

impl<S: Store> Engine<S> {
    pub(super) fn start_beating(self: &Arc<Self>) {
        if !self.beating.swap(true, Ordering::AcqRel) {
            let heart = Heart(Arc::downgrade(self));
            let clock = Arc::clone(&self.terms.clock);
            self.spawn(beat(heart, clock, self.terms.lease / 3));
        }
    }

    /// Extends all that is held. An answer that does not come before the next beat is not
    /// waited for.
    async fn extend(&self) {
        let interval = self.terms.lease / 3;
        let extending = self.extend_in_parts(self.held.holds());
        if race::first(extending, self.timer(interval)).await.is_none() {
            let text = format!("no answer within {interval:?} to extend leases");
            self.report(&Error::new(ErrorKind::Unknown, text));
        }
    }

    /// If somebody has one of the keys, halves are extended, and so on until it is alone: it
    /// is then neither extended nor lost yet.
    async fn extend_in_parts(&self, holds: Vec<Hold>) {
        let Terms { owner, lease, clock, .. } = &self.terms;
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

/// A queue whose heart beats, until this is dropped.
struct Heart<S: Store>(Weak<Engine<S>>);

impl<S: Store> Drop for Heart<S> {
    fn drop(&mut self) {
        if let Some(queue) = self.0.upgrade() {
            queue.beating.store(false, Ordering::Release);
        }
    }
}

/// Beats until the queue is gone, or closed with nothing held.
async fn beat<S: Store>(heart: Heart<S>, clock: Arc<dyn Clock>, interval: Duration) {
    loop {
        let Some(next) = clock.now().checked_add(interval) else { return };
        clock.timer(next).await;
        let Some(queue) = heart.0.upgrade() else { return };
        if queue.is_closed() && queue.held.is_empty() {
            return;
        }
        queue.extend().await;
        queue.reclaim_if_quiet().await;
    }
}
