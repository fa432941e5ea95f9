//! Leasing keys, and keeping or losing leases.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::{ToRedisArgs, Value};
use requeue::Finish;
use requeue_store::{
    Error, ErrorKind, Expired, FinishRequest, Finished, Grant, Hold, LeaseRequest,
    Leased, Owner, Phase, Token, micros_of,
};

use crate::chunk::{Chunk, MAX_KEYS};
use crate::client::{Args, Call, Client, read_answers};
use crate::encode;
use crate::error::unexpected_reply;
use crate::finish::finish;
use crate::reply::{ReplyReader, between};
use crate::script;

/// The number of partitions that are tried for a heartbeat.
const MAX_HEARTBEATS: usize = 3;

/// The shortest deadline of an extension, for short leases on a busy machine.
const MIN_EXTEND: Duration = Duration::from_millis(250);

/// Keys that were leased, and an error if the outcome is unknown for some partitions.
pub(crate) struct LeasedInPart {
    pub(crate) leased: Leased,
    /// Keys may be leased although their grants did not arrive.
    pub(crate) doubt: Option<Error>,
}

/// Leases keys from all partitions.
///
/// Every partition is asked for an equal share; those that have more are asked again until
/// there are enough keys. `turn` chooses the partition that comes first.
///
/// A node that cannot be reached does not keep the keys of other nodes from being leased.
/// Fails only if no partition answered.
pub(crate) async fn lease(
    client: &Client,
    turn: &AtomicUsize,
    request: &LeaseRequest,
    last_token: Token,
) -> Result<LeasedInPart, Error> {
    let mut states = vec![PartitionState::default(); client.partitions()];
    let (mut grants, mut doubt) = (Vec::new(), None);
    let asking = Asking { client, request, last_token };
    let mut shares = first_shares(client.partitions(), turn, request.max);
    loop {
        let before = grants.len();
        let errors = asking.ask(&shares, &mut states, &mut grants).await?;
        let is_first = before == 0 && doubt.is_none();
        if is_first && errors.len() == shares.len() {
            return Err(worst(errors).unwrap_or_else(|| unexpected_reply("a lease")));
        }
        let unknown = errors.into_iter().filter(|e| e.kind() == ErrorKind::Unknown);
        doubt = doubt.or(worst(unknown));
        shares = next_shares(&states, request.max - grants.len());
        if shares.is_empty() || grants.len() == before {
            break;
        }
    }
    let more_in = states.iter().filter_map(|state| state.more_in).min();
    let paused = states.iter().any(|state| state.is_paused);
    Ok(LeasedInPart { leased: Leased { grants, more_in, paused }, doubt })
}

/// How many keys to lease from a partition.
#[derive(Clone, Copy, Debug)]
struct Share {
    partition: usize,
    max: usize,
}

/// What a partition replied last.
#[derive(Clone, Debug, Default)]
struct PartitionState {
    more_in: Option<Duration>,
    is_paused: bool,
    ready: usize,
}

impl PartitionState {
    /// A partition that must be asked again later.
    fn failed() -> Self {
        Self { more_in: Some(Duration::from_secs(1)), ..Self::default() }
    }
}

fn first_shares(partitions: usize, turn: &AtomicUsize, max: usize) -> Vec<Share> {
    let first = turn.fetch_add(1, Ordering::Relaxed) % partitions;
    let share = |n: usize| {
        let max = max / partitions + usize::from(n < max % partitions);
        Share { partition: (first + n) % partitions, max: max.min(MAX_KEYS) }
    };
    (0..partitions).map(share).collect()
}

fn next_shares(states: &[PartitionState], mut wanted: usize) -> Vec<Share> {
    let mut shares = Vec::new();
    for (partition, state) in states.iter().enumerate() {
        let max = wanted.min(state.ready).min(MAX_KEYS);
        if max > 0 && !state.is_paused {
            shares.push(Share { partition, max });
            wanted -= max;
        }
    }
    shares
}

struct Asking<'a> {
    client: &'a Client,
    request: &'a LeaseRequest,
    last_token: Token,
}

impl Asking<'_> {
    /// Asks partitions for keys. Returns the errors of those that did not answer.
    async fn ask(
        &self,
        shares: &[Share],
        states: &mut [PartitionState],
        grants: &mut Vec<Grant>,
    ) -> Result<Vec<Error>, Error> {
        let calls = shares.iter().map(|share| self.call(share)).collect();
        let replies = self.client.call(calls, self.client.sending()).await;
        let mut errors = Vec::new();
        for (share, reply) in shares.iter().zip(replies) {
            match reply {
                Ok(reply) => states[share.partition] = read_leased(reply, grants)?,
                Err(error) => {
                    states[share.partition] = PartitionState::failed();
                    errors.push(error);
                }
            }
        }
        Ok(errors)
    }

    fn call(&self, share: &Share) -> Call {
        let LeaseRequest { owner, lease, max_deliveries, .. } = self.request;
        let max_deliveries = encode::max_deliveries(*max_deliveries);
        let mut args = self.client.args();
        (owner.as_str(), share.max, micros_of(*lease), max_deliveries, self.last_token.0)
            .write_redis_args(&mut args);
        let partition = share.partition;
        Call { script: &script::LEASE, partition, keys: Vec::new(), args }
    }
}

/// Returns the error that says most: one whose outcome is unknown, or the first.
fn worst(errors: impl IntoIterator<Item = Error>) -> Option<Error> {
    let is_unknown = |error: &Error| error.kind() == ErrorKind::Unknown;
    errors.into_iter().reduce(|worst, error| {
        if is_unknown(&error) && !is_unknown(&worst) { error } else { worst }
    })
}

/// Reads the reply of `lease.lua`.
fn read_leased(reply: Value, grants: &mut Vec<Grant>) -> Result<PartitionState, Error> {
    let mut reply = ReplyReader::new(reply, "a lease");
    let (more_in, ready) = (reply.duration()?, reply.number()?);
    let (mut token, now) = (reply.count()?, reply.count()?);
    while !reply.is_empty() {
        let (key, record) = (reply.key()?, reply.record()?);
        grants.push(Grant {
            key,
            token: Token(token),
            deliveries: record.deliveries.saturating_add(1),
            failures: record.failures,
            priority: record.priority.ok_or_else(|| reply.unexpected())?,
            waited: between(record.since, now),
        });
        token += 1;
    }
    let is_paused = ready < 0;
    Ok(PartitionState {
        more_in,
        is_paused,
        ready: usize::try_from(ready).unwrap_or_default(),
    })
}

pub(crate) async fn extend(
    client: &Client,
    owner: &Owner,
    held: &[Hold],
    lease: Duration,
) -> Vec<Result<bool, Error>> {
    let keys = held.iter().map(|hold| &hold.key);
    let micros = micros_of(lease);
    let push_args = |chunk: &Chunk, args: &mut Args| {
        (owner.as_str(), micros, chunk.items.len()).write_redis_args(args);
        chunk.push_keys(|index| &held[index].key, args);
        let token = |index: &usize| encode::token(held[*index].token).into_bytes();
        args.extend(chunk.items.iter().map(token));
    };
    // Shorter than the interval of heartbeats, a third of the lease: the answers of the nodes
    // that work must not come too late because of one that hangs.
    let mut sending = client.sending();
    sending.deadline = sending.deadline.min((lease / 4).max(MIN_EXTEND));
    client.call_batch(keys, &script::EXTEND, sending, push_args, read_answers).await
}

/// Records that an owner is alive, in any partition that can be reached.
pub(crate) async fn heartbeat(
    client: &Client,
    turn: &AtomicUsize,
    owner: &Owner,
) -> Result<(), Error> {
    let first = turn.fetch_add(1, Ordering::Relaxed);
    let mut last = Ok(());
    for n in 0..client.partitions().min(MAX_HEARTBEATS) {
        let partition = (first + n) % client.partitions();
        let args = (owner.as_str(), 0, 0);
        last = client.call_on(partition, &script::EXTEND, args).await.map(drop);
        if last.is_ok() {
            break;
        }
    }
    last
}

pub(crate) async fn expire(
    client: &Client,
    max_deliveries: Option<NonZeroU32>,
) -> Result<Expired, Error> {
    let max_deliveries = encode::max_deliveries(max_deliveries);
    let mut expired = Expired::default();
    for reply in client.call_on_all(&script::EXPIRE, max_deliveries).await? {
        let mut reply = ReplyReader::new(reply, "expired leases");
        expired.due += reply.count()?;
        expired.returned += reply.count()?;
        expired.dead += reply.count()?;
    }
    Ok(expired)
}

/// Releases the leases of an owner that it does not know of.
pub(crate) async fn reclaim(
    client: &Client,
    owner: &Owner,
    held: &[Hold],
) -> Result<u64, Error> {
    let held: HashSet<_> = held.iter().collect();
    let mut lost = leases(client).await?;
    lost.retain(|(hold, holder)| holder == owner && !held.contains(hold));
    lost.sort_by_key(|(hold, _)| hold.token);
    let release = |(hold, _)| FinishRequest::new(hold, Finish::Release);
    let requests: Vec<_> = lost.into_iter().map(release).collect();
    let finished = finish(client, &requests).await;
    let finished: Vec<_> = finished.into_iter().collect::<Result<_, _>>()?;
    let released = finished.iter().filter(|finished| **finished == Finished::Requeued);
    Ok(released.count() as u64)
}

/// Returns the leases that were held during the whole call, and their owners.
pub(crate) async fn leases(client: &Client) -> Result<Vec<(Hold, Owner)>, Error> {
    let mut all = HashMap::new();
    for partition in 0..client.partitions() {
        let mut cursor = "0".to_owned();
        loop {
            let reply = client.call_on(partition, &script::LEASES, &cursor).await?;
            cursor = read_leases(reply, &mut all)?;
            if cursor == "0" {
                break;
            }
        }
    }
    Ok(all.into_iter().collect())
}

/// Reads a page of leases. Returns the cursor of the next page.
fn read_leases(reply: Value, all: &mut HashMap<Hold, Owner>) -> Result<String, Error> {
    let mut reply = ReplyReader::new(reply, "leases");
    let next = reply.text()?;
    while !reply.is_empty() {
        let (key, record) = (reply.key()?, reply.record()?);
        if let Phase::Processing { owner, token, .. } = record.phase {
            all.insert(Hold { key, token }, owner);
        }
    }
    Ok(next)
}
