//! Waiting until a queue has come to rest.

use std::time::Duration;

use anyhow::Result;
use requeue::{Clock, SystemClock};
use requeue_store::{Error, Store};

use crate::event::{Corpse, Rest};
use crate::process::pause;
use crate::world::{AN_HOUR, Plan};

/// How long the queue may take to come to rest when nothing disturbs it any more: many
/// times a short lease, but less than a long one, for which nobody should have to wait.
const PATIENCE: Duration = Duration::from_secs(20);

/// More than can be dead.
const ALL: usize = 100_000;

/// How many keys are looked at in one call.
const AT_ONCE: usize = 500;

/// Waits until nothing is left, but no longer than patience lasts: what is left.
pub(crate) async fn rest(store: &dyn Store, plan: &Plan) -> Result<Rest> {
    let give_up = SystemClock.now() + PATIENCE + plan.scene.until_undone_ends_pass();
    loop {
        let over = SystemClock.now() >= give_up;
        match left(store, plan).await {
            Ok(rest) if rest.is_quiet() || over => return Ok(rest),
            Err(error) if over || !error.is_transient() => return Err(error.into()),
            Ok(_) | Err(_) => pause(Duration::from_millis(50)).await,
        }
    }
}

async fn left(store: &dyn Store, plan: &Plan) -> Result<Rest, Error> {
    let stats = store.stats().await?;
    let mut rest = Rest {
        ready: stats.ready,
        processing: stats.processing,
        dead: store.dead(ALL).await?.iter().map(Corpse::from).collect(),
        delayed: stats.delayed,
    };
    // The others are soon over.
    if rest.ready == 0 && rest.processing == 0 {
        let late = count_late(store, plan).await?;
        rest.delayed = rest.delayed.saturating_sub(late);
    }
    Ok(rest)
}

/// How many keys wait for most of an hour, as they should.
async fn count_late(store: &dyn Store, plan: &Plan) -> Result<u64, Error> {
    let long = Duration::from_micros(AN_HOUR / 2);
    let mut count = 0;
    for keys in plan.all_late().chunks(AT_ONCE) {
        let looks = store.look(keys).await?;
        let is_late = |delay: Duration| delay > long;
        count +=
            looks.iter().filter(|look| look.delayed.is_some_and(is_late)).count() as u64;
    }
    Ok(count)
}
