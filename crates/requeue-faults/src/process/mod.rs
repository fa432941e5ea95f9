//! The processes of a run.

pub(crate) mod child;
mod operator;
mod producer;
pub(crate) mod role;
mod transactional;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use requeue_store::{Backoff, Owner, SharedQueue, Store};
use tokio::runtime::Runtime;

use crate::history::journal::Journal;
use crate::random::Random;
use crate::run::plan::{MAX_DELIVERIES, Plan, RATE_LIMITED};
use crate::run::versions::VersionFile;
use crate::store::crashed::CrashedRuns;
use crate::store::recorder::Recorder;
use crate::time::sleep;

/// The queue under test: the real one, on a store that records every call.
type Queue = SharedQueue<String, Recorder>;

/// The backoff of failed runs.
const BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(5),
    max: Duration::from_millis(100),
    rate: None,
};

/// One process of a run.
#[derive(Clone)]
struct Process {
    name: String,
    plan: Plan,
    versions: Arc<VersionFile>,
    journal: Arc<Journal>,
    store: Recorder,
    /// The layer below `store`.
    crashed_runs: Arc<CrashedRuns>,
}

impl Process {
    fn queue(&self) -> Queue {
        self.queue_with(BACKOFF)
    }

    /// Returns the same queue with the rate that all processes share.
    fn rate_limited_queue(&self) -> Queue {
        self.queue_with(RATE_LIMITED)
    }

    fn queue_with(&self, backoff: Backoff) -> Queue {
        SharedQueue::builder(self.store.clone())
            .owner(self.name.clone())
            .lease(self.plan.scenario.lease)
            .max_deliveries(Some(MAX_DELIVERIES))
            .backoff(backoff)
            .build()
    }

    /// Releases all leases of an owner that has exited or lost track of its leases, so that
    /// the run need not wait until they expire.
    async fn release_leases(&self, owner: &Owner) {
        while self.store.reclaim(owner, &[]).await.is_err() {
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Returns the random numbers of one task of this process.
    fn random(&self, task: usize) -> Random {
        Random::new(self.plan.seed, &format!("{}/{task}", self.name))
    }
}

pub(crate) fn runtime() -> Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    Ok(builder.worker_threads(2).enable_all().build()?)
}
