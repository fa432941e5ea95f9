//! Waiting until a queue is idle.

use std::time::Duration;

use anyhow::Result;
use requeue::{Clock, SystemClock};
use requeue_store::{Error, Key, Look, RepliesExt, Store};

use super::plan::{AN_HOUR, Plan};
use crate::history::event::{DeadKey, FinalState};
use crate::time::sleep;

/// How long the queue may take to become idle after the last fault. This is many short
/// leases but less than a long one: no run should depend on a long lease expiring.
const TIMEOUT: Duration = Duration::from_secs(20);

/// More than the number of dead keys in any run.
const ALL_DEAD: usize = 100_000;

const KEYS_PER_CALL: usize = 500;

/// A key that was added during its last delivery is revived with a delay of several minutes
/// when its lease expires. No other delay is longer than this, except those of an hour.
const REVIVED: Duration = Duration::from_secs(120);

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
        revived: Vec::new(),
    };
    // Looking for these is slow, so it waits until nothing else is left.
    if state.ready == 0 && state.processing == 0 {
        let half = Duration::from_micros(AN_HOUR / 2);
        let hour_long = delayed_longer(store, &plan.all_hour_long(), half).await?;
        state.revived = delayed_longer(store, &plan.all_but_hour_long(), REVIVED).await?;
        let planned = hour_long.len() + state.revived.len();
        state.delayed = state.delayed.saturating_sub(planned as u64);
    }
    Ok(state)
}

/// Returns the keys whose delay ends later than this.
async fn delayed_longer(
    store: &dyn Store,
    keys: &[Key],
    delay: Duration,
) -> Result<Vec<String>, Error> {
    let mut delayed = Vec::new();
    for keys in keys.chunks(KEYS_PER_CALL) {
        let looks = store.look(keys).all().await?;
        let is_long = |look: &Look| look.delayed.is_some_and(|left| left > delay);
        let long = keys.iter().zip(&looks).filter(|(_, look)| is_long(look));
        delayed.extend(long.map(|(key, _)| key.to_string()));
    }
    Ok(delayed)
}
