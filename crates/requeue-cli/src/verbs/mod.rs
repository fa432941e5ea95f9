//! The verbs that look at the queue of a store, or change it.

mod add;
mod status;

pub(crate) use add::add;
pub(crate) use status::{status, watch};

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

use anyhow::{Context, Result};
use requeue_store::{Error, Key, Look, Phase, Store, Which};
use tokio::runtime::Runtime;

use crate::flags::{Chosen, DeadVerb, ForgetFlags, ListFlags, StoreFlags};
use crate::report::{self, count};
use crate::store::Place;

/// Some key was not as it was said to be.
const NOT_ALL: u8 = 1;

/// What runs the calls of a verb.
fn runtime() -> Result<Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot use the network")
}

/// Opens a queue that is there, does something with it, and says what failed.
fn on_store<T>(
    flags: StoreFlags,
    act: impl AsyncFnOnce(Arc<dyn Store>) -> Result<T, Error>,
) -> Result<T> {
    let place = Place::of(flags)?;
    runtime()?.block_on(async {
        let store = place.open_existing().await?;
        act(store).await.context("the store failed")
    })
}

fn read_keys(words: Vec<OsString>) -> Result<Vec<Key>> {
    let read = |word: OsString| {
        let shown = report::shown(word.as_encoded_bytes());
        Key::new(word.into_vec()).with_context(|| format!("this is no key: {shown}"))
    };
    words.into_iter().map(read).collect()
}

pub(crate) fn dead(verb: DeadVerb) -> Result<u8> {
    match verb {
        DeadVerb::List(flags) => list_dead(flags),
        DeadVerb::Revive(Chosen { store, all, keys }) => {
            let (which, asked) = which(all, keys)?;
            let done = on_store(store, async |store| store.revive(&which).await)?;
            Ok(tell_chosen("revived", done, asked))
        }
        DeadVerb::Drop(Chosen { store, all, keys }) => {
            let (which, asked) = which(all, keys)?;
            let done = on_store(store, async |store| store.drop_dead(&which).await)?;
            Ok(tell_chosen("dropped", done, asked))
        }
    }
}

fn list_dead(flags: ListFlags) -> Result<u8> {
    let ListFlags { store, json, limit } = flags;
    let dead = on_store(store, async |store| store.dead(limit).await)?;
    let text = if json { report::dead_json(&dead) } else { report::dead_table(&dead) };
    report::page(text.as_bytes())?;
    Ok(0)
}

/// Which dead keys are meant, and how many if they are named.
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

/// Tells how many keys were dead: the exit code.
fn tell_chosen(verb: &str, done: u64, asked: Option<u64>) -> u8 {
    let absent = asked.map_or(0, |asked| asked.saturating_sub(done));
    let done = count(done, "key", "keys");
    if absent == 0 {
        report::tell(&format!("{verb} {done}"));
        return 0;
    }
    let absent = count(absent, "key was", "keys were");
    report::tell(&format!("{verb} {done}; {absent} not dead"));
    NOT_ALL
}

pub(crate) fn forget(flags: ForgetFlags) -> Result<u8> {
    let mut words = flags.keys;
    words.sort();
    words.dedup();
    let keys = read_keys(words)?;
    let looks = on_store(flags.store, async |store| {
        let looks = store.look(&keys).await?;
        store.forget(&keys).await.map(|()| looks)
    })?;
    let absent = looks.iter().filter(|look| !can_be_forgiven(look)).count() as u64;
    let forgiven = count(keys.len() as u64 - absent, "key", "keys");
    if absent == 0 {
        report::tell(&format!("forgot the failures of {forgiven}"));
        return Ok(0);
    }
    let absent = count(absent, "key was", "keys were");
    report::tell(&format!(
        "forgot the failures of {forgiven}; {absent} not there, or dead"
    ));
    Ok(NOT_ALL)
}

/// Whether a key is there and not dead; one that has failed is, wherever it stands.
fn can_be_forgiven(look: &Look) -> bool {
    match look.phase {
        Phase::Dead => false,
        Phase::Absent => look.delayed.is_some() || look.failures > 0,
        Phase::Ready | Phase::Processing { .. } | _ => true,
    }
}

pub(crate) fn pause(flags: StoreFlags) -> Result<u8> {
    let place =
        on_store(flags, async |store| store.pause().await.map(|()| store.describe()))?;
    report::tell(&format!("paused {place}; what runs goes on"));
    Ok(0)
}

pub(crate) fn resume(flags: StoreFlags) -> Result<u8> {
    let place =
        on_store(flags, async |store| store.resume().await.map(|()| store.describe()))?;
    report::tell(&format!("resumed {place}"));
    Ok(0)
}
