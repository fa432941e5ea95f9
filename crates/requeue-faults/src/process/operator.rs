//! A process that handles dead keys as an operator would: it revives some and drops some.

use std::time::Duration;

use anyhow::Result;
use requeue_store::{Store, Which};

use super::Process;
use crate::time::{now, sleep};

/// How many dead keys are listed at a time.
const LISTED: usize = 20;

/// Runs until the planned end. A failed call is in doubt, and the next round tries again.
pub(super) async fn run(process: Process) -> Result<()> {
    let mut random = process.random(0);
    while now() < process.plan.until {
        for dead in process.store.dead(LISTED).await.unwrap_or_default() {
            let which = Which::Keys(vec![dead.key]);
            let result = match random.below(100) {
                0..10 => process.store.revive(&which).await,
                10..16 => process.store.drop_dead(&which).await,
                _ => Ok(0),
            };
            if result.is_err() {
                sleep(Duration::from_millis(20)).await;
            }
        }
        sleep(random.millis(50..300)).await;
    }
    Ok(())
}
