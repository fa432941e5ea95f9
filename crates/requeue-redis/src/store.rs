//! The store: each call becomes calls of scripts, and their answers its answer.

use std::fmt;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

use redis::{Cmd, ToRedisArgs, Value};
use requeue_store::{
    Add, Dead, EngineClock, Error, Expired, Failing, FinishRequest, Finished, Hold, Key,
    LeaseRequest, Leased, Look, Owner, Receipt, Reply, Stats, Store, Which, Worker,
    micros_of,
};

use crate::builder::RedisStoreBuilder;
use crate::link::Call;
use crate::name::name_of;
use crate::partition::{Chunk, guard, names, spread};
use crate::people::NOTHING;
use crate::reply::Answer;
use crate::script::{self, PARTS, Script};
use crate::servers::Servers;
use crate::wait::Watch;
use crate::wish;

/// A queue in a Redis or Valkey server or cluster. Clones are the same store and share
/// connections.
///
/// See the [crate](crate) for what it promises and what it needs.
#[derive(Clone)]
pub struct RedisStore {
    pub(crate) servers: Arc<Servers>,
    queue: Arc<str>,
    /// The Redis keys of each partition, and its guard in a cluster.
    names: Arc<[Vec<String>]>,
    clock: Option<EngineClock>,
    pub(crate) watch: Arc<Watch>,
    /// Where the next lease begins.
    pub(crate) turn: Arc<AtomicUsize>,
    /// Whether the last lease may have been another's, or a key may have failures.
    pub(crate) one_of_many: Arc<AtomicBool>,
}

impl RedisStore {
    /// Settings for a queue in the server at `url`, such as
    /// `redis://user:password@host:port/database`, or in the cluster that has these nodes,
    /// `redis-cluster://user:password@host:port,host:port`.
    ///
    /// With TLS it is `rediss://` or `rediss-cluster://`. The server's certificate must be
    /// signed by somebody whom the system trusts, or by the one in the file that
    /// `?ca=FILE` at the end names. If the server asks for a certificate, too, that is
    /// `?cert=FILE&key=FILE`. Each is in PEM format, and read when the queue is opened.
    pub fn builder(url: impl Into<String>) -> RedisStoreBuilder {
        RedisStoreBuilder::new(url)
    }

    /// A store that knows of the first partition only: see [`split`](Self::split).
    ///
    /// Whoever talks to a node of a cluster needs the [`guard`].
    pub(crate) fn new(
        servers: Arc<Servers>,
        settings: &RedisStoreBuilder,
        is_node: bool,
    ) -> Self {
        let queue: Arc<str> = settings.queue.as_str().into();
        let guard = is_node.then(|| guard(&queue, 0));
        let names = [names(&queue, 0).into_iter().chain(guard).collect()].into();
        let watch = watch_on(&servers, &names);
        let clock = settings.clock.clone();
        let (turn, one_of_many) = Default::default();
        Self { servers, queue, names, clock, watch, turn, one_of_many }
    }

    /// The same, of a queue with so many partitions.
    pub(crate) fn split(self, count: usize) -> Self {
        let is_node = self.names[0].len() > PARTS.len();
        let names_of = |partition| {
            let guard = is_node.then(|| guard(&self.queue, partition));
            names(&self.queue, partition).into_iter().chain(guard).collect()
        };
        let names = (0..count).map(names_of).collect();
        let watch = watch_on(&self.servers, &names);
        Self { names, watch, ..self }
    }

    pub(crate) fn partitions(&self) -> usize {
        self.names.len()
    }

    /// The time that is told instead of the server's.
    pub(crate) fn told_time(&self) -> Option<u64> {
        self.clock.as_ref().map(|clock| clock.now().micros())
    }

    /// The beginning of a call: its arguments are still to come.
    pub(crate) fn bare(&self, script: &Script, partition: usize) -> Cmd {
        script.command(&self.names[partition])
    }

    /// As [`bare`](Self::bare), with the time as the first argument.
    pub(crate) fn begin(&self, script: &Script, partition: usize) -> Cmd {
        let mut command = self.bare(script, partition);
        match self.told_time() {
            Some(now) => command.arg(now),
            None => command.arg(""),
        };
        command
    }

    /// Calls a script with the same arguments in one partition.
    pub(crate) async fn one(
        &self,
        script: &'static Script,
        partition: usize,
        args: impl ToRedisArgs,
    ) -> Result<Value, Error> {
        let mut command = self.begin(script, partition);
        command.arg(args);
        let answers =
            self.servers.call(vec![Call { script, partition, command }]).await?;
        Ok(answers.into_iter().next().unwrap_or(Value::Nil))
    }

    /// Calls a script with the same arguments in every partition.
    pub(crate) async fn all(
        &self,
        script: &'static Script,
        args: impl ToRedisArgs,
    ) -> Result<Vec<Value>, Error> {
        let calls = (0..self.partitions()).map(|partition| {
            let mut command = self.begin(script, partition);
            command.arg(&args);
            Call { script, partition, command }
        });
        self.servers.call(calls.collect()).await
    }

    /// Calls a script for each chunk of a batch: what it answered about each.
    pub(crate) async fn batch(
        &self,
        chunks: Vec<Chunk>,
        script: impl Fn(&Chunk) -> &'static Script,
        give: impl Fn(&Chunk, &mut Cmd),
    ) -> Result<Vec<(Chunk, Value)>, Error> {
        let calls = chunks.iter().map(|chunk| {
            let script = script(chunk);
            let mut command = self.begin(script, chunk.partition);
            give(chunk, &mut command);
            Call { script, partition: chunk.partition, command }
        });
        let answers = self.servers.call(calls.collect()).await?;
        Ok(chunks.into_iter().zip(answers).collect())
    }

    /// As [`batch`](Self::batch), where the answer is a letter for each key.
    async fn letters<T: Clone>(
        &self,
        keys: impl Iterator<Item = &Key> + Clone,
        script: &'static Script,
        give: impl Fn(&Chunk, &mut Cmd),
        read: impl Fn(u8) -> Option<T>,
    ) -> Result<Vec<T>, Error> {
        let chunks = spread(keys.clone(), self.partitions());
        let answers = self.batch(chunks, |_| script, give).await?;
        let mut all = vec![None; keys.count()];
        for (chunk, value) in answers {
            let mut answer = Answer::new(value, "keys");
            let letters = answer.bytes()?;
            for (place, letter) in chunk.places.iter().zip(letters) {
                all[*place] = read(letter);
            }
        }
        let all: Option<Vec<T>> = all.into_iter().collect();
        all.ok_or_else(|| crate::fault::senseless("keys"))
    }

    /// The version and the partitions of the queue, which is made of these if there is
    /// none; `None` if none is made.
    pub(crate) async fn declare(
        &self,
        version: u32,
        partitions: Option<NonZeroUsize>,
    ) -> Result<Option<(u64, u64)>, Error> {
        let settings = (version, partitions.map_or(0, NonZeroUsize::get));
        let value = self.one(&script::OPEN, 0, settings).await?;
        if value == Value::Nil {
            return Ok(None);
        }
        let mut answer = Answer::new(value, "the queue");
        Ok(Some((answer.count()?, answer.count()?)))
    }

    pub(crate) async fn load_ballast(&self) -> Result<(), Error> {
        self.all(&script::BALLAST, NOTHING).await.map(drop)
    }

    async fn extend_leases(
        &self,
        owner: &Owner,
        held: &[Hold],
        lease: Duration,
    ) -> Result<Vec<bool>, Error> {
        let lease = micros_of(lease);
        if held.is_empty() {
            self.one(&script::EXTEND, 0, (owner.as_str(), lease, 0)).await?;
            return Ok(Vec::new());
        }
        let give = |chunk: &Chunk, command: &mut Cmd| {
            command.arg(owner.as_str()).arg(lease).arg(chunk.places.len());
            for place in &chunk.places {
                command.arg(name_of(&held[*place].key));
            }
            for place in &chunk.places {
                command.arg(wish::token(held[*place].token));
            }
        };
        let keys = held.iter().map(|hold| &hold.key);
        self.letters(keys, &script::EXTEND, give, yes_or_no).await
    }

    async fn expire_leases(&self, most: Option<NonZeroU32>) -> Result<Expired, Error> {
        let mut expired = Expired::default();
        for value in self.all(&script::EXPIRE, wish::most(most)).await? {
            let mut answer = Answer::new(value, "what is due");
            expired.due += answer.count()?;
            expired.returned += answer.count()?;
            expired.dead += answer.count()?;
        }
        Ok(expired)
    }

    async fn forget_keys(&self, keys: &[Key]) -> Result<(), Error> {
        let chunks = spread(keys.iter(), self.partitions());
        let give = |chunk: &Chunk, command: &mut Cmd| give_keys(chunk, keys, command);
        self.batch(chunks, |_| &script::FORGET, give).await.map(drop)
    }

    async fn remove_keys(&self, keys: &[Key]) -> Result<Vec<bool>, Error> {
        let give = |chunk: &Chunk, command: &mut Cmd| give_keys(chunk, keys, command);
        self.letters(keys.iter(), &script::REMOVE, give, yes_or_no).await
    }

    async fn set_paused(&self, paused: bool) -> Result<(), Error> {
        self.all(&script::PAUSE, u8::from(paused)).await.map(drop)
    }
}

fn watch_on(servers: &Arc<Servers>, names: &Arc<[Vec<String>]>) -> Arc<Watch> {
    let wake = PARTS.iter().position(|(part, _)| *part == "wake");
    let wake = wake.expect("the mark is one of the parts");
    let marks = names.iter().map(|names| names[wake].clone()).collect();
    Watch::new(Arc::clone(servers), marks)
}

/// Gives the keys of a chunk to a command.
pub(crate) fn give_keys(chunk: &Chunk, keys: &[Key], command: &mut Cmd) {
    for place in &chunk.places {
        command.arg(name_of(&keys[*place]));
    }
}

fn yes_or_no(letter: u8) -> Option<bool> {
    match letter {
        b'y' => Some(true),
        b'n' => Some(false),
        _ => None,
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisStore").field(&self.describe()).finish()
    }
}

impl Store for RedisStore {
    fn describe(&self) -> String {
        format!("{}, queue {}", self.servers.place(), self.queue)
    }

    fn add<'a>(&'a self, adds: &'a [Add]) -> Reply<'a, Vec<Receipt>> {
        Box::pin(self.add_keys(adds))
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest) -> Reply<'a, Leased> {
        Box::pin(self.lease_keys(request))
    }

    fn extend<'a>(
        &'a self,
        owner: &'a Owner,
        held: &'a [Hold],
        lease: Duration,
    ) -> Reply<'a, Vec<bool>> {
        Box::pin(self.extend_leases(owner, held, lease))
    }

    fn finish<'a>(&'a self, requests: &'a [FinishRequest]) -> Reply<'a, Vec<Finished>> {
        Box::pin(self.finish_leases(requests))
    }

    fn reclaim<'a>(&'a self, owner: &'a Owner, held: &'a [Hold]) -> Reply<'a, u64> {
        Box::pin(self.reclaim_leases(owner, held))
    }

    fn expire(&self, max_deliveries: Option<NonZeroU32>) -> Reply<'_, Expired> {
        Box::pin(self.expire_leases(max_deliveries))
    }

    fn forget<'a>(&'a self, keys: &'a [Key]) -> Reply<'a, ()> {
        Box::pin(self.forget_keys(keys))
    }

    fn remove<'a>(&'a self, keys: &'a [Key]) -> Reply<'a, Vec<bool>> {
        Box::pin(self.remove_keys(keys))
    }

    fn look<'a>(&'a self, keys: &'a [Key]) -> Reply<'a, Vec<Look>> {
        Box::pin(self.look_at(keys))
    }

    fn stats(&self) -> Reply<'_, Stats> {
        Box::pin(self.count())
    }

    fn failing(&self, limit: usize) -> Reply<'_, Vec<Failing>> {
        Box::pin(self.list_failing(limit))
    }

    fn workers(&self) -> Reply<'_, Vec<Worker>> {
        Box::pin(self.list_workers())
    }

    fn dead(&self, limit: usize) -> Reply<'_, Vec<Dead>> {
        Box::pin(self.list_dead(limit))
    }

    fn revive<'a>(&'a self, which: &'a Which) -> Reply<'a, u64> {
        Box::pin(self.exhume(which, "r"))
    }

    fn drop_dead<'a>(&'a self, which: &'a Which) -> Reply<'a, u64> {
        Box::pin(self.exhume(which, "d"))
    }

    fn pause(&self) -> Reply<'_, ()> {
        Box::pin(self.set_paused(true))
    }

    fn resume(&self) -> Reply<'_, ()> {
        Box::pin(self.set_paused(false))
    }

    fn wait(&self, at_most: Duration) -> Reply<'_, ()> {
        Box::pin(self.watch.wait(at_most))
    }
}
