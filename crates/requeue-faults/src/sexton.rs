//! A process, or a part of one, that looks after the dead as people do: it brings some back
//! and drops some.

use std::time::Duration;

use anyhow::Result;
use requeue_store::{Store, Which};

use crate::journal::now;
use crate::process::{Process, pause};

/// How many of the dead are looked at, those that are dead for the longest.
const LOOKED_AT: usize = 20;

/// Goes on until the plan ends it. What fails is in doubt, and seen to the next time.
pub(crate) async fn tend(process: Process) -> Result<()> {
    let mut dice = process.dice(0);
    while now() < process.plan.until {
        for dead in process.store.dead(LOOKED_AT).await.unwrap_or_default() {
            let which = Which::Keys(vec![dead.key]);
            let done = match dice.below(100) {
                0..10 => process.store.revive(&which).await,
                10..16 => process.store.drop_dead(&which).await,
                _ => Ok(0),
            };
            if done.is_err() {
                pause(Duration::from_millis(20)).await;
            }
        }
        pause(dice.millis(50..300)).await;
    }
    Ok(())
}
