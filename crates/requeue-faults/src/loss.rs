//! What an engine loses that is killed in the middle of adds, at each of its settings:
//! keys that were acknowledged and are not there when it runs again.
//!
//! A kill is not a power cut: what the system was given survives it.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use requeue_store::{Add, Key, Look, Store, When};
use tokio::runtime::Runtime;

use crate::engine::{Engine, Keeping};
use crate::proxy::park;
use crate::report;
use crate::scene::{Load, Scene};
use crate::stores::{self, Kind};

/// How long keys are added before the engine is killed.
const ADDING: Duration = Duration::from_secs(2);

/// Calls that are on their way at a time, and the keys of each.
const LANES: u64 = 8;
const BATCH: u64 = 100;

/// What was lost, over several kills.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Loss {
    pub(crate) kills: u64,
    pub(crate) acknowledged: u64,
    pub(crate) lost: u64,
}

/// Measures each setting of a store that has a server.
pub(crate) fn measure(store: Kind, rounds: u64) -> Result<()> {
    for keeping in Keeping::of(store) {
        let mut loss = Loss::default();
        for _ in 0..rounds {
            kill_once(store, *keeping, &mut loss)?;
        }
        report::loss(store, *keeping, &loss);
    }
    Ok(())
}

fn kill_once(store: Kind, keeping: Keeping, loss: &mut Loss) -> Result<()> {
    let micros = crate::journal::now();
    let folder = std::env::temp_dir().join(format!("requeue-loss-{micros}"));
    fs::create_dir(&folder)?;
    let done = kill_once_in(&folder, store, keeping, loss);
    fs::remove_dir_all(&folder)?;
    done
}

fn kill_once_in(
    folder: &Path,
    store: Kind,
    keeping: Keeping,
    loss: &mut Loss,
) -> Result<()> {
    let runtime = Runtime::new().context("no runtime")?;
    let mut engine = Engine::new(store, folder.join("engine"), keeping)?;
    engine.ensure_running()?;
    engine.wait_until_it_answers()?;
    let place = store.address(&[engine.port]);
    let scene = Scene::new(store, Load::Busy, 0);
    let queue = runtime.block_on(stores::open(&scene, &place, None, folder))?;
    let lanes: Vec<_> = (0..LANES)
        .map(|lane| runtime.spawn(add_until_it_fails(Arc::clone(&queue), lane)))
        .collect();
    park(ADDING);
    engine.kill()?;
    let acknowledged: Vec<Vec<Key>> =
        lanes.into_iter().map(|lane| runtime.block_on(lane)).collect::<Result<_, _>>()?;
    engine.ensure_running()?;
    engine.wait_until_it_answers()?;
    let queue = runtime.block_on(stores::open(&scene, &place, None, folder))?;
    for keys in &acknowledged {
        loss.acknowledged += keys.len() as u64;
        loss.lost += runtime.block_on(missing(&*queue, keys))?;
    }
    loss.kills += 1;
    Ok(())
}

/// Adds keys of its own, batch by batch: those that were acknowledged.
async fn add_until_it_fails(store: Arc<dyn Store>, lane: u64) -> Vec<Key> {
    let mut acknowledged = Vec::new();
    for batch in 0_u64.. {
        let numbers = batch * BATCH..(batch + 1) * BATCH;
        let keys: Vec<_> = numbers
            .filter_map(|n| Key::new(format!("{lane}/{n}").into_bytes()).ok())
            .collect();
        let add = |key: &Key| Add::new(key.clone(), When::Now);
        let adds: Vec<_> = keys.iter().map(add).collect();
        if store.add(&adds).await.is_err() {
            break;
        }
        acknowledged.extend(keys);
    }
    acknowledged
}

/// How many of these keys are not there.
async fn missing(store: &dyn Store, keys: &[Key]) -> Result<u64> {
    let mut missing = 0;
    for keys in keys.chunks(500) {
        let looks = stores::patiently(|| store.look(keys)).await?;
        missing += looks.iter().filter(|look| **look == Look::default()).count() as u64;
    }
    Ok(missing)
}
