//! Adding, leasing and ending: what workers and producers do all day.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::{Cmd, Value};
use requeue::Added;
use requeue_store::{
    Add, Error, ErrorKind, FinishRequest, Finished, Grant, LeaseRequest, Leased, Receipt,
    Token, When, micros_of,
};

use crate::fault::senseless;
use crate::link::Call;
use crate::name::name_of;
use crate::partition::{Chunk, MOST_KEYS, spread};
use crate::reply::Answer;
use crate::script;
use crate::store::RedisStore;
use crate::wish;

/// Adding.
impl RedisStore {
    pub(crate) async fn add_keys(&self, adds: &[Add]) -> Result<Vec<Receipt>, Error> {
        if let Some(receipt) = self.add_one(adds).await? {
            return Ok(vec![receipt]);
        }
        let chunks = spread(adds.iter().map(|add| &add.key), self.partitions());
        let mut receipts = vec![None; adds.len()];
        for (chunk, value) in self.add_chunks(chunks, adds).await? {
            let mut answer = Answer::new(value, "added keys");
            let same = same_wish(&chunk, adds);
            for (place, letter) in chunk.places.iter().zip(answer.bytes()?) {
                let waits = (letter == b'w').then_some(same).flatten();
                let delay = match same {
                    Some(_) => waits.unwrap_or_default(),
                    None => answer.span()?.unwrap_or_default(),
                };
                receipts[*place] = added(letter).map(|added| Receipt { added, delay });
            }
        }
        gather(receipts)
    }

    async fn add_chunks(
        &self,
        chunks: Vec<Chunk>,
        adds: &[Add],
    ) -> Result<Vec<(Chunk, Value)>, Error> {
        let script = |chunk: &Chunk| match same_wish(chunk, adds) {
            Some(_) => &*script::ADD,
            None => &*script::ADD_LATER,
        };
        let give = |chunk: &Chunk, command: &mut Cmd| match same_wish(chunk, adds) {
            Some(revive_after) => {
                command.arg(micros_of(revive_after));
                for place in &chunk.places {
                    command.arg(name_of(&adds[*place].key));
                }
            }
            None => self.give_wishes(chunk, adds, command),
        };
        self.batch(chunks, script, give).await
    }

    fn give_wishes(&self, chunk: &Chunk, adds: &[Add], command: &mut Cmd) {
        for place in &chunk.places {
            let add = &adds[*place];
            command.arg(name_of(&add.key)).arg(wish::when(add, self.partitions()));
            command.arg(micros_of(add.revive_after));
        }
    }
}

/// How long dead keys of a chunk wait, if all of it is for now, of priority 0, and that is
/// the same.
fn same_wish(chunk: &Chunk, adds: &[Add]) -> Option<Duration> {
    let first = adds[*chunk.places.first()?].revive_after;
    let is_now = |add: &Add| match add.when {
        When::Now => true,
        When::After(delay) => delay.is_zero(),
        When::RateLimited(_) | _ => false,
    };
    let simple =
        |add: &Add| is_now(add) && add.priority == 0 && add.revive_after == first;
    chunk.places.iter().all(|place| simple(&adds[*place])).then_some(first)
}

pub(crate) fn added(letter: u8) -> Option<Added> {
    match letter {
        b'r' => Some(Added::Ready),
        b'd' => Some(Added::Dirty),
        b'w' => Some(Added::Delayed),
        b'u' => Some(Added::Duplicate),
        _ => None,
    }
}

fn gather<T>(answers: Vec<Option<T>>) -> Result<Vec<T>, Error> {
    let all: Option<Vec<T>> = answers.into_iter().collect();
    all.ok_or_else(|| senseless("a batch"))
}

/// Leasing.
impl RedisStore {
    pub(crate) async fn lease_keys(
        &self,
        request: &LeaseRequest,
    ) -> Result<Leased, Error> {
        if let Some(leased) = self.lease_one(request).await? {
            return Ok(leased);
        }
        let waited = self.watch.take_waited();
        let leased = self.lease_many(request).await;
        self.one_of_many.store(false, Ordering::Relaxed);
        if leased.is_err() {
            self.watch.put_waited(waited);
        }
        leased
    }

    /// Visits every partition, each with its share of what is wanted, and then those that
    /// have more, until there is enough.
    ///
    /// A node of a cluster that is not there keeps nobody from the keys of the others.
    async fn lease_many(&self, request: &LeaseRequest) -> Result<Leased, Error> {
        let mut visits = vec![Visit::default(); self.partitions()];
        let mut grants = Vec::new();
        let mut shares = self.first_shares(request.max);
        loop {
            let before = grants.len();
            let trouble = self.visit(request, &shares, &mut visits, &mut grants).await;
            match trouble {
                Err(error)
                    if grants.is_empty() || error.kind() != ErrorKind::Unavailable =>
                {
                    return Err(error);
                }
                Ok(()) | Err(_) => {}
            }
            shares = next_shares(&visits, request.max - grants.len());
            if shares.is_empty() || grants.len() == before {
                break;
            }
        }
        let more_in = visits.iter().filter_map(|visit| visit.more_in).min();
        let paused = visits.iter().any(|visit| visit.paused);
        Ok(Leased { grants, more_in, paused })
    }

    /// Equal shares for all partitions, the first of which is another one each time.
    fn first_shares(&self, max: usize) -> Vec<(usize, usize)> {
        let count = self.partitions();
        let first = self.turn.fetch_add(1, Ordering::Relaxed) % count;
        let share = |turn: usize| {
            let share = max / count + usize::from(turn < max % count);
            ((first + turn) % count, share.min(MOST_KEYS))
        };
        (0..count).map(share).collect()
    }

    fn lease_command(
        &self,
        request: &LeaseRequest,
        partition: usize,
        share: usize,
    ) -> Cmd {
        let mut command = self.begin(&script::LEASE, partition);
        command.arg(request.owner.as_str()).arg(share.min(MOST_KEYS));
        command.arg(micros_of(request.lease)).arg(wish::most(request.max_deliveries));
        command
    }

    async fn visit(
        &self,
        request: &LeaseRequest,
        shares: &[(usize, usize)],
        visits: &mut [Visit],
        grants: &mut Vec<Grant>,
    ) -> Result<(), Error> {
        let calls = shares.iter().map(|(partition, share)| {
            let command = self.lease_command(request, *partition, *share);
            Call { script: &script::LEASE, partition: *partition, command }
        });
        let answers = self.servers.call_each(calls.collect()).await;
        let mut trouble = Ok(());
        for ((partition, _), answer) in shares.iter().zip(answers) {
            match answer {
                Ok(value) => visits[*partition] = read_visit(value, grants)?,
                Err(error) => {
                    visits[*partition] = Visit::failed();
                    trouble = worse(trouble, error);
                }
            }
        }
        trouble
    }
}

/// What a partition said when it was last asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Visit {
    more_in: Option<Duration>,
    paused: bool,
    left: usize,
}

impl Visit {
    /// One that has to be made again.
    fn failed() -> Self {
        Self { more_in: Some(Duration::from_secs(1)), ..Self::default() }
    }
}

/// The error that tells more: one whose outcome is unknown goes before others.
fn worse(so_far: Result<(), Error>, error: Error) -> Result<(), Error> {
    match so_far {
        Err(first) if error.kind() == ErrorKind::Unavailable => Err(first),
        Ok(()) | Err(_) => Err(error),
    }
}

/// The partitions that have more, and how much of it is wanted.
fn next_shares(visits: &[Visit], mut wanted: usize) -> Vec<(usize, usize)> {
    let mut shares = Vec::new();
    for (partition, visit) in visits.iter().enumerate() {
        let share = wanted.min(visit.left).min(MOST_KEYS);
        if share > 0 && !visit.paused {
            shares.push((partition, share));
            wanted -= share;
        }
    }
    shares
}

pub(crate) fn read_visit(value: Value, grants: &mut Vec<Grant>) -> Result<Visit, Error> {
    let mut answer = Answer::new(value, "a lease");
    let more_in = answer.span()?;
    let left = answer.number()?;
    let (first, odd) = (answer.count()?, answer.count()?);
    let mut counts = HashMap::new();
    for _ in 0..odd {
        let place = answer.count()?;
        let counted = (answer.small()?, answer.small()?, answer.priority()?);
        counts.insert(place, counted);
    }
    let mut times = HashMap::new();
    for _ in 0..answer.count()? {
        times.insert(answer.count()?, answer.span()?.unwrap_or_default());
    }
    let mut waited = Duration::ZERO;
    for place in 0..answer.things_of(1) as u64 {
        let counted = counts.remove(&(place + 1));
        let (deliveries, failures, priority) = counted.unwrap_or((1, 0, 0));
        waited = times.remove(&(place + 1)).unwrap_or(waited);
        let (key, token) = (answer.key()?, Token(first + place));
        grants.push(Grant { key, token, deliveries, failures, priority, waited });
    }
    let paused = left < 0;
    Ok(Visit { more_in, paused, left: usize::try_from(left).unwrap_or_default() })
}

/// Finishing leases.
impl RedisStore {
    pub(crate) async fn finish_leases(
        &self,
        requests: &[FinishRequest],
    ) -> Result<Vec<Finished>, Error> {
        if let Some(finished) = self.finish_one(requests).await? {
            return Ok(vec![finished]);
        }
        let give = |chunk: &Chunk, command: &mut Cmd| {
            command.arg(chunk.places.len());
            for place in &chunk.places {
                command.arg(name_of(&requests[*place].hold.key));
            }
            for place in &chunk.places {
                let token = wish::token(requests[*place].hold.token);
                command.arg(token + &wish::finish(&requests[*place], self.partitions()));
            }
        };
        let chunks = spread(requests.iter().map(|it| &it.hold.key), self.partitions());
        let mut all = vec![None; requests.len()];
        for (chunk, value) in self.batch(chunks, |_| &script::FINISH, give).await? {
            let mut answer = Answer::new(value, "ended leases");
            for (place, letter) in chunk.places.iter().zip(answer.bytes()?) {
                all[*place] = finished(letter, &mut answer)?;
            }
        }
        gather(all)
    }
}

fn finished(letter: u8, answer: &mut Answer) -> Result<Option<Finished>, Error> {
    Ok(match letter {
        b'd' => Some(Finished::Done),
        b'r' => Some(Finished::Requeued),
        b'w' => Some(Finished::Delayed(answer.span()?.unwrap_or_default())),
        b'b' => Some(Finished::Dead),
        b'l' => Some(Finished::LeaseLost),
        _ => None,
    })
}
