//! Describing a queue: its keys, counts, failures, workers and dead keys.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use redis::Value;
use requeue_store::{Dead, Error, Failing, Key, Look, Owner, Stats, Worker};

use crate::chunk::{Chunk, MAX_KEYS};
use crate::client::{Args, Client};
use crate::error::has_code;
use crate::lease::leases;
use crate::reply::{ReplyReader, between};
use crate::script;

/// The number of failing keys of a partition among which those with the most failures are
/// searched.
const MAX_FAILING: usize = 10_000;

/// How long a worker is listed after it was last seen.
const WORKER_LISTED: Duration = Duration::from_secs(24 * 60 * 60);

pub(crate) async fn look(client: &Client, keys: &[Key]) -> Vec<Result<Look, Error>> {
    let looks = look_as(client, keys, client.may_write()).await;
    let is_refused = |look: &Result<_, Error>| look.as_ref().is_err_and(is_no_permission);
    if !client.may_write() || !looks.iter().any(is_refused) {
        return looks;
    }
    client.set_read_only();
    look_as(client, keys, false).await
}

async fn look_as(
    client: &Client,
    keys: &[Key],
    may_write: bool,
) -> Vec<Result<Look, Error>> {
    let push_args = |chunk: &Chunk, args: &mut Args| {
        args.push(letter(may_write).into());
        chunk.push_keys(|index| &keys[index], args);
    };
    let sending = client.sending();
    client.call_batch(keys.iter(), &script::LOOK, sending, push_args, read_looks).await
}

fn read_looks(reply: Value) -> Result<Vec<Look>, Error> {
    let mut reply = ReplyReader::new(reply, "keys");
    let now = reply.count()?;
    let mut looks = Vec::new();
    while !reply.is_empty() {
        let (record, delay_ends) = (reply.record()?, reply.time()?);
        looks.push(Look {
            phase: record.phase,
            delayed: delay_ends.map(|at| between(now, at)),
            failures: record.failures,
            deliveries: record.deliveries,
        });
    }
    Ok(looks)
}

/// Encodes whether the user may write.
fn letter(may_write: bool) -> &'static str {
    if may_write { "y" } else { "n" }
}

pub(crate) fn is_no_permission(error: &Error) -> bool {
    has_code(error, "NOPERM")
}

pub(crate) async fn stats(client: &Client) -> Result<Stats, Error> {
    let mut replies =
        client.call_on_all(&script::STATS, letter(client.may_write())).await;
    if client.may_write() && replies.as_ref().is_err_and(is_no_permission) {
        client.set_read_only();
        replies = client.call_on_all(&script::STATS, letter(false)).await;
    }
    let mut all = Stats::default();
    for reply in replies? {
        let mut reply = ReplyReader::new(reply, "the queue");
        all.ready += reply.count()?;
        all.delayed += reply.count()?;
        all.processing += reply.count()?;
        all.dirty += reply.count()?;
        all.failing += reply.count()?;
        all.dead += reply.count()?;
        all.oldest_ready = all.oldest_ready.max(reply.duration()?);
        all.paused |= reply.number()? == 1;
    }
    Ok(all)
}

pub(crate) async fn failing(
    client: &Client,
    limit: usize,
) -> Result<Vec<Failing>, Error> {
    let mut all = BTreeMap::new();
    for partition in 0..client.partitions() {
        let mut seen = 0;
        let mut cursor = "0".to_owned();
        loop {
            let reply = client.call_on(partition, &script::FAILING, &cursor).await?;
            let (next, page) = read_failing(reply)?;
            seen += page.len();
            all.extend(page.into_iter().map(|failing| (failing.key.clone(), failing)));
            cursor = next;
            if cursor == "0" || seen >= MAX_FAILING {
                break;
            }
        }
    }
    let mut all: Vec<_> = all.into_values().collect();
    all.sort_by_key(|failing| Reverse(failing.failures));
    all.truncate(limit);
    Ok(all)
}

/// Reads a page of failing keys and the cursor of the next page.
fn read_failing(reply: Value) -> Result<(String, Vec<Failing>), Error> {
    let mut reply = ReplyReader::new(reply, "failing keys");
    let (now, next) = (reply.count()?, reply.text()?);
    let mut page = Vec::new();
    while !reply.is_empty() {
        let (key, record, error) = (reply.key()?, reply.record()?, reply.bytes()?);
        page.push(Failing {
            key,
            failures: record.failures,
            error: String::from_utf8_lossy(&error).into_owned(),
            retry_in: reply.time()?.map(|at| between(now, at)),
        });
    }
    Ok((next, page))
}

pub(crate) async fn workers(client: &Client) -> Result<Vec<Worker>, Error> {
    let mut processing: HashMap<Owner, u64> = HashMap::new();
    for (_, owner) in leases(client).await? {
        *processing.entry(owner).or_default() += 1;
    }
    let mut workers: BTreeMap<Owner, Worker> = BTreeMap::new();
    for (owner, seen) in owners(client, Forget::No).await? {
        let processing = processing.get(&owner).copied().unwrap_or_default();
        let worker = workers.entry(owner.clone());
        let worker = worker.or_insert(Worker { owner, seen, processing });
        worker.seen = worker.seen.min(seen);
    }
    let is_listed =
        |worker: &Worker| worker.seen <= WORKER_LISTED || worker.processing > 0;
    Ok(workers.into_values().filter(is_listed).collect())
}

/// Forgets the workers that are no longer listed.
pub(crate) async fn forget_workers(client: &Client) -> Result<(), Error> {
    owners(client, Forget::Old).await.map(drop)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forget {
    No,
    Old,
}

/// Returns the owners of all partitions, and how long ago each was seen.
async fn owners(
    client: &Client,
    forget: Forget,
) -> Result<Vec<(Owner, Duration)>, Error> {
    let mut all = Vec::new();
    for partition in 0..client.partitions() {
        let mut cursor = "0".to_owned();
        loop {
            let args = (&cursor, letter(forget == Forget::Old));
            let reply = client.call_on(partition, &script::OWNERS, args).await?;
            cursor = read_owners(reply, &mut all)?;
            if cursor == "0" {
                break;
            }
        }
    }
    Ok(all)
}

/// Reads a page of owners. Returns the cursor of the next page.
fn read_owners(reply: Value, all: &mut Vec<(Owner, Duration)>) -> Result<String, Error> {
    let mut reply = ReplyReader::new(reply, "workers");
    let (now, next) = (reply.count()?, reply.text()?);
    while !reply.is_empty() {
        all.push((Owner::new(reply.text()?), between(reply.count()?, now)));
    }
    Ok(next)
}

pub(crate) async fn dead(client: &Client, limit: usize) -> Result<Vec<Dead>, Error> {
    let mut all = Vec::new();
    for partition in 0..client.partitions() {
        let mut from = 0;
        while from < limit {
            let page = MAX_KEYS.min(limit - from);
            let ranks = (from, from + page - 1);
            let dead = read_dead(client.call_on(partition, &script::DEAD, ranks).await?)?;
            let count = dead.len();
            all.extend(dead);
            if count < page {
                break;
            }
            from += page;
        }
    }
    all.sort_by(|a, b| (b.since, &a.key).cmp(&(a.since, &b.key)));
    all.truncate(limit);
    Ok(all)
}

fn read_dead(reply: Value) -> Result<Vec<Dead>, Error> {
    let mut reply = ReplyReader::new(reply, "dead keys");
    let now = reply.count()?;
    let mut all = Vec::new();
    while !reply.is_empty() {
        let (key, record, reason) = (reply.key()?, reply.record()?, reply.bytes()?);
        all.push(Dead {
            key,
            reason: String::from_utf8_lossy(&reason).into_owned(),
            since: between(record.since, now),
            failures: record.failures,
            deliveries: record.deliveries,
            owner: record.owner,
        });
    }
    Ok(all)
}
