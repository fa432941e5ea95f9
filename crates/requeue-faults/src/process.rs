//! What a process of a run has at hand.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use requeue::{Clock, SystemClock};
use requeue_store::{Backoff, Owner, SharedQueue, Store};
use tokio::runtime::Runtime;

use crate::dice::Dice;
use crate::journal::Journal;
use crate::muted::Muted;
use crate::recorder::Recorder;
use crate::world::{MOST_DELIVERIES, PACED, Plan, World};

/// The queue as the processes use it: the real one, on a store that writes down.
pub(crate) type Queue = SharedQueue<String, Recorder>;

/// What a process of a run has at hand.
#[derive(Clone)]
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) plan: Plan,
    pub(crate) world: Arc<World>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) store: Recorder,
    /// What is underneath.
    pub(crate) muted: Arc<Muted>,
}

impl Process {
    pub(crate) fn queue(&self) -> Queue {
        let (base, max) = (Duration::from_millis(5), Duration::from_millis(100));
        self.queue_with(Backoff { base, max, rate: None })
    }

    /// The same queue, with the rate that all processes share.
    pub(crate) fn paced(&self) -> Queue {
        self.queue_with(PACED)
    }

    fn queue_with(&self, backoff: Backoff) -> Queue {
        SharedQueue::builder(self.store.clone())
            .owner(self.name.clone())
            .lease(self.plan.scene.lease)
            .max_deliveries(Some(MOST_DELIVERIES))
            .backoff(backoff)
            .build()
    }

    /// Gives back all leases of an owner who is gone, or holds none that it knows of, so that
    /// nobody has to wait until they have passed.
    pub(crate) async fn give_back(&self, owner: &Owner) {
        while self.store.reclaim(owner, &[]).await.is_err() {
            pause(Duration::from_millis(50)).await;
        }
    }

    /// Dice for one purpose of this process.
    pub(crate) fn dice(&self, purpose: usize) -> Dice {
        Dice::new(self.plan.seed, &format!("{}/{purpose}", self.name))
    }
}

/// Opens the plan, the world and the journal of a process.
pub(crate) fn belongings(folder: &Path, name: &str) -> Result<(Plan, World, Journal)> {
    let plan = Plan::read(folder)?;
    let world = World::open(folder, &plan)?;
    Ok((plan, world, Journal::create(folder, name)?))
}

pub(crate) fn runtime() -> Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    Ok(builder.worker_threads(2).enable_all().build()?)
}

/// Waits.
pub(crate) async fn pause(delay: Duration) {
    SystemClock.timer(SystemClock.now() + delay).await;
}
