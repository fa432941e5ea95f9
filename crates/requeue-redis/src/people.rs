//! What people are told of a queue, and what they do with its dead keys.

use std::collections::{BTreeMap, HashMap, HashSet};

use redis::{Cmd, Value};
use requeue::Finish;
use requeue_store::{
    Dead, Error, Failing, FinishRequest, Finished, Hold, Key, Look, Owner, Phase, Stats,
    Which, Worker,
};

use crate::fault::senseless;
use crate::partition::{Chunk, MOST_KEYS, spread};
use crate::reply::{Answer, between, cut, grave, parse, state};
use crate::script;
use crate::store::{RedisStore, give_keys};

/// How many keys of a partition are looked through for those that fail most.
const LOOKED_THROUGH: usize = 10_000;

/// No arguments.
pub(crate) const NOTHING: &[&str] = &[];

/// Looking.
impl RedisStore {
    pub(crate) async fn look_at(&self, keys: &[Key]) -> Result<Vec<Look>, Error> {
        let chunks = spread(keys.iter(), self.partitions());
        let give = |chunk: &Chunk, command: &mut Cmd| give_keys(chunk, keys, command);
        let mut looks = vec![Look::default(); keys.len()];
        for (chunk, value) in self.batch(chunks, |_| &script::LOOK, give).await? {
            let mut answer = Answer::new(value, "keys");
            let now = answer.number()?;
            for place in chunk.places {
                looks[place] = read_look(&keys[place], now, &mut answer)?;
            }
        }
        Ok(looks)
    }

    pub(crate) async fn count(&self) -> Result<Stats, Error> {
        let mut all = Stats::default();
        for value in self.all(&script::STATS, NOTHING).await? {
            let mut answer = Answer::new(value, "the queue");
            all.ready += answer.count()?;
            all.delayed += answer.count()?;
            all.processing += answer.count()?;
            all.dirty += answer.count()?;
            all.failing += answer.count()?;
            all.dead += answer.count()?;
            all.oldest_ready = all.oldest_ready.max(answer.span()?);
            all.paused |= answer.number()? == 1;
        }
        Ok(all)
    }

    pub(crate) async fn list_failing(&self, limit: usize) -> Result<Vec<Failing>, Error> {
        let mut all = BTreeMap::new();
        for partition in 0..self.partitions() {
            let mut seen = 0;
            let mut cursor = "0".to_owned();
            loop {
                let value = self.one(&script::FAILING, partition, &cursor).await?;
                let (next, page) = read_failing(value)?;
                seen += page.len();
                all.extend(
                    page.into_iter().map(|failing| (failing.key.clone(), failing)),
                );
                cursor = next;
                if cursor == "0" || seen >= LOOKED_THROUGH {
                    break;
                }
            }
        }
        let mut all: Vec<_> = all.into_values().collect();
        all.sort_by_key(|failing| std::cmp::Reverse(failing.failures));
        all.truncate(limit);
        Ok(all)
    }
}

fn read_look(key: &Key, now: i64, answer: &mut Answer) -> Result<Look, Error> {
    let value = answer.bytes()?;
    let failures = answer.small()?;
    let delayed = answer.moment()?.map(|at| between(now, at));
    if let Some(record) = value.strip_prefix(b"X") {
        let dead = grave(key.clone(), record).ok_or_else(|| answer.senseless())?;
        let Dead { failures, deliveries, .. } = dead;
        return Ok(Look { phase: Phase::Dead, delayed, failures, deliveries });
    }
    let (phase, deliveries) = state(&value).ok_or_else(|| answer.senseless())?;
    Ok(Look { phase, delayed, failures, deliveries })
}

/// A page of failing keys, and where the next one begins.
fn read_failing(value: Value) -> Result<(String, Vec<Failing>), Error> {
    let mut answer = Answer::new(value, "failing keys");
    let now = answer.number()?;
    let next = answer.text()?;
    let mut page = Vec::new();
    for _ in 0..answer.things_of(3) {
        let (key, record) = (answer.key()?, answer.bytes()?);
        let retry_in = answer.moment()?.map(|at| between(now, at));
        let (count, error) = cut(&record).ok_or_else(|| answer.senseless())?;
        let failures = parse(count).ok_or_else(|| answer.senseless())?;
        let error = String::from_utf8_lossy(error).into_owned();
        page.push(Failing { key, failures, error, retry_in });
    }
    Ok((next, page))
}

/// Who holds what.
impl RedisStore {
    pub(crate) async fn reclaim_leases(
        &self,
        owner: &Owner,
        held: &[Hold],
    ) -> Result<u64, Error> {
        let held: HashSet<_> = held.iter().collect();
        let mut lost = self.leases().await?;
        lost.retain(|(hold, holder)| holder == owner && !held.contains(hold));
        lost.sort_by_key(|(hold, _)| hold.token);
        let release = |(hold, _)| FinishRequest::new(hold, Finish::Release);
        let ends: Vec<_> = lost.into_iter().map(release).collect();
        let answers = self.finish_leases(&ends).await?;
        let released = answers.iter().filter(|answer| **answer == Finished::Requeued);
        Ok(released.count() as u64)
    }

    pub(crate) async fn list_workers(&self) -> Result<Vec<Worker>, Error> {
        let mut processing: HashMap<Owner, u64> = HashMap::new();
        for (_, owner) in self.leases().await? {
            *processing.entry(owner).or_default() += 1;
        }
        let mut workers: BTreeMap<Owner, Worker> = BTreeMap::new();
        for value in self.all(&script::OWNERS, "n").await? {
            for (owner, seen) in read_owners(value)? {
                let processing = processing.get(&owner).copied().unwrap_or_default();
                let worker = workers.entry(owner.clone());
                let worker = worker.or_insert(Worker { owner, seen, processing });
                worker.seen = worker.seen.min(seen);
            }
        }
        let day = std::time::Duration::from_secs(24 * 60 * 60);
        let workers = workers.into_values();
        Ok(workers.filter(|worker| worker.seen <= day || worker.processing > 0).collect())
    }

    /// Forgets the owners that were not heard of for a day.
    pub(crate) async fn forget_owners(&self) -> Result<(), Error> {
        self.all(&script::OWNERS, "y").await.map(drop)
    }

    /// Every lease that was held all the while, and who holds it.
    async fn leases(&self) -> Result<Vec<(Hold, Owner)>, Error> {
        let mut all = HashMap::new();
        for partition in 0..self.partitions() {
            let mut cursor = "0".to_owned();
            loop {
                let value = self.one(&script::HELD, partition, &cursor).await?;
                let (next, page) = read_leases(value)?;
                all.extend(page);
                cursor = next;
                if cursor == "0" {
                    break;
                }
            }
        }
        Ok(all.into_iter().collect())
    }
}

fn read_owners(value: Value) -> Result<Vec<(Owner, std::time::Duration)>, Error> {
    let mut answer = Answer::new(value, "workers");
    let now = answer.number()?;
    let mut owners = Vec::new();
    for _ in 0..answer.things_of(2) {
        owners.push((Owner::new(answer.text()?), between(answer.number()?, now)));
    }
    Ok(owners)
}

/// A page of leases, and where the next one begins.
fn read_leases(value: Value) -> Result<(String, Vec<(Hold, Owner)>), Error> {
    let mut answer = Answer::new(value, "leases");
    let next = answer.text()?;
    let mut page = Vec::new();
    for _ in 0..answer.things_of(2) {
        let (key, value) = (answer.key()?, answer.bytes()?);
        let (phase, _) = state(&value).ok_or_else(|| answer.senseless())?;
        if let Phase::Processing { owner, token, .. } = phase {
            page.push((Hold { key, token }, owner));
        }
    }
    Ok((next, page))
}

/// The dead.
impl RedisStore {
    pub(crate) async fn list_dead(&self, limit: usize) -> Result<Vec<Dead>, Error> {
        let mut all = Vec::new();
        for partition in 0..self.partitions() {
            let mut from = 0;
            while from < limit {
                let page = MOST_KEYS.min(limit - from);
                let range = (from, from + page - 1);
                let dead = read_dead(self.one(&script::DEAD, partition, range).await?)?;
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

    /// Takes keys from the dead; `fate` is what exhume.lua does with them.
    pub(crate) async fn exhume(
        &self,
        which: &Which,
        fate: &'static str,
    ) -> Result<u64, Error> {
        match which {
            Which::All => self.exhume_all(fate).await,
            Which::Keys(keys) => self.exhume_these(keys, fate).await,
            _ => Err(senseless("dead keys")),
        }
    }

    async fn exhume_all(&self, fate: &str) -> Result<u64, Error> {
        let mut all = 0;
        for partition in 0..self.partitions() {
            loop {
                let value = self.one(&script::EXHUME, partition, fate).await?;
                let count = Answer::new(value, "dead keys").count()?;
                all += count;
                if count < MOST_KEYS as u64 {
                    break;
                }
            }
        }
        Ok(all)
    }

    async fn exhume_these(&self, keys: &[Key], fate: &str) -> Result<u64, Error> {
        let chunks = spread(keys.iter(), self.partitions());
        let give = |chunk: &Chunk, command: &mut Cmd| {
            command.arg(fate);
            give_keys(chunk, keys, command);
        };
        let mut all = 0;
        for (_, value) in self.batch(chunks, |_| &script::EXHUME, give).await? {
            all += Answer::new(value, "dead keys").count()?;
        }
        Ok(all)
    }
}

fn read_dead(value: Value) -> Result<Vec<Dead>, Error> {
    let mut answer = Answer::new(value, "dead keys");
    let now = answer.number()?;
    let mut all = Vec::new();
    for _ in 0..answer.things_of(3) {
        let (key, at, record) = (answer.key()?, answer.number()?, answer.bytes()?);
        let dead = grave(key, &record).ok_or_else(|| answer.senseless())?;
        all.push(Dead { since: between(at, now), ..dead });
    }
    Ok(all)
}
