//! Waiting until a queue is idle.

use std::time::Duration;

use anyhow::Result;
use requeue::{Clock, SystemClock};
use requeue_store::{Error, RepliesExt, Store};

use super::plan::{AN_HOUR, Plan};
use crate::history::event::{DeadKey, FinalState};
use crate::time::sleep;

/// How long the queue may take to become idle after the last fault. This is many short
/// leases but less than a long one: no run should depend on a long lease expiring.
const TIMEOUT: Duration = Duration::from_secs(20);

/// More than the number of dead keys in any run.
const ALL_DEAD: usize = 100_000;

const KEYS_PER_CALL: usize = 500;

/// Waits until the queue is idle or the timeout passes. Returns its state.
pub(crate) async fn wait_until_idle(
    store: &dyn Store,
    plan: &Plan,
) -> Result<FinalState> {
    let deadline = SystemClock.now() + TIMEOUT + plan.scenario.undone_finish_delay();
    loop {
        let is_over = SystemClock.now() >= deadline;
        match read_state(store, plan).await {
            Ok(state) if state.is_idle() || is_over => return Ok(state),
            Err(error) if is_over || !error.is_transient() => return Err(error.into()),
            Ok(_) | Err(_) => sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn read_state(store: &dyn Store, plan: &Plan) -> Result<FinalState, Error> {
    let counts = store.stats().await?;
    let mut state = FinalState {
        ready: counts.ready,
        processing: counts.processing,
        dead: store.dead(ALL_DEAD).await?.iter().map(DeadKey::from).collect(),
        delayed: counts.delayed,
    };
    // Counting these is slow, so it waits until nothing else is left.
    if state.ready == 0 && state.processing == 0 {
        let hour_long = count_hour_long(store, plan).await?;
        state.delayed = state.delayed.saturating_sub(hour_long);
    }
    Ok(state)
}

/// Counts the keys that are delayed for most of an hour, as planned.
async fn count_hour_long(store: &dyn Store, plan: &Plan) -> Result<u64, Error> {
    let half = Duration::from_micros(AN_HOUR / 2);
    let mut count = 0;
    for keys in plan.all_hour_long().chunks(KEYS_PER_CALL) {
        let looks = store.look(keys).all().await?;
        let is_long = |delay: Duration| delay > half;
        count +=
            looks.iter().filter(|look| look.delayed.is_some_and(is_long)).count() as u64;
    }
    Ok(count)
}
