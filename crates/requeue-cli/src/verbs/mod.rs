//! The verbs that inspect or change a queue in a store.

mod add;
mod migrate;
mod status;

pub(crate) use add::add;
pub(crate) use migrate::migrate;
pub(crate) use status::{status, watch};

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

use anyhow::{Context, Result};
use requeue_store::{Error, Key, Look, Phase, RepliesExt, Store, Which};
use tokio::runtime::Runtime;

use crate::address::StoreAddress;
use crate::flags::{ChosenKeys, DeadVerb, ForgetFlags, ListFlags, StoreFlags};
use crate::report::{self, count};

/// Exit code: some of the keys were not affected.
const NOT_ALL: u8 = 1;

/// Starts a runtime for the calls of a verb.
fn runtime() -> Result<Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the network")
}

/// Opens an existing queue and calls `act` with its store.
fn on_store<T>(
    flags: StoreFlags,
    act: impl AsyncFnOnce(Arc<dyn Store>) -> Result<T, Error>,
) -> Result<T> {
    let address = StoreAddress::from_flags(flags)?;
    runtime()?.block_on(async {
        let store = address.open_existing().await?;
        act(store).await.context("store failed")
    })
}

fn read_keys(words: Vec<OsString>) -> Result<Vec<Key>> {
    let read = |word: OsString| {
        let shown = report::shown(word.as_encoded_bytes());
        Key::new(word.into_vec()).with_context(|| format!("invalid key {shown}"))
    };
    words.into_iter().map(read).collect()
}

pub(crate) fn dead(verb: DeadVerb) -> Result<u8> {
    match verb {
        DeadVerb::List(flags) => list_dead(flags),
        DeadVerb::Revive(ChosenKeys { store, all, keys }) => {
            let (which, asked) = which(all, keys)?;
            let done = on_store(store, async |store| store.revive(&which).await)?;
            Ok(print_result("revived", done, asked))
        }
        DeadVerb::Drop(ChosenKeys { store, all, keys }) => {
            let (which, asked) = which(all, keys)?;
            let done = on_store(store, async |store| store.drop_dead(&which).await)?;
            Ok(print_result("dropped", done, asked))
        }
    }
}

fn list_dead(flags: ListFlags) -> Result<u8> {
    let ListFlags { store, json, limit } = flags;
    let (dead, all) = on_store(store, async |store| {
        let dead = store.dead(limit).await?;
        Ok((dead, store.stats().await?.dead))
    })?;
    let text = if json { report::dead_json(&dead) } else { report::dead_table(&dead) };
    report::page(text.as_bytes())?;
    let hidden = all.saturating_sub(dead.len() as u64);
    if hidden > 0 {
        let keys = count(hidden, "dead key is", "dead keys are");
        report::note(&format!("{keys} not listed; --limit {all} lists all"));
    }
    Ok(0)
}

/// Returns the chosen dead keys, and their number if they are named.
fn which(all: bool, mut keys: Vec<OsString>) -> Result<(Which, Option<u64>)> {
    if all {
        return Ok((Which::All, None));
    }
    keys.sort();
    keys.dedup();
    let keys = read_keys(keys)?;
    let asked = keys.len() as u64;
    Ok((Which::Keys(keys), Some(asked)))
}

/// Prints how many of the chosen keys were dead. Returns the exit code.
fn print_result(verb: &str, done: u64, asked: Option<u64>) -> u8 {
    let absent = asked.map_or(0, |asked| asked.saturating_sub(done));
    let done = count(done, "key", "keys");
    if absent == 0 {
        report::note(&format!("{verb} {done}"));
        return 0;
    }
    let absent = count(absent, "key was", "keys were");
    report::note(&format!("{verb} {done}; {absent} not dead"));
    NOT_ALL
}

pub(crate) fn forget(flags: ForgetFlags) -> Result<u8> {
    let mut words = flags.keys;
    words.sort();
    words.dedup();
    let keys = read_keys(words)?;
    let looks = on_store(flags.store, async |store| {
        let looks = store.look(&keys).all().await?;
        store.forget(&keys).all().await.map(|_| looks)
    })?;
    let absent = looks.iter().filter(|look| !can_be_forgotten(look)).count() as u64;
    let forgotten = count(keys.len() as u64 - absent, "key", "keys");
    if absent == 0 {
        report::note(&format!("forgot the failures of {forgotten}"));
        return Ok(0);
    }
    let absent = count(absent, "key was", "keys were");
    report::note(&format!(
        "forgot the failures of {forgotten}; {absent} not queued, or dead"
    ));
    Ok(NOT_ALL)
}

/// Returns whether a key exists and is not dead.
fn can_be_forgotten(look: &Look) -> bool {
    match look.phase {
        Phase::Dead => false,
        Phase::Absent => look.delayed.is_some() || look.failures > 0,
        Phase::Ready | Phase::Processing { .. } | _ => true,
    }
}

pub(crate) fn pause(flags: StoreFlags) -> Result<u8> {
    let queue =
        on_store(flags, async |store| store.pause().await.map(|()| store.describe()))?;
    report::note(&format!("paused {queue}; running commands finish"));
    Ok(0)
}

pub(crate) fn resume(flags: StoreFlags) -> Result<u8> {
    let queue =
        on_store(flags, async |store| store.resume().await.map(|()| store.describe()))?;
    report::note(&format!("resumed {queue}"));
    Ok(0)
}
