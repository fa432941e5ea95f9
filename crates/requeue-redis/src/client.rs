//! The client side of one queue: calls scripts on its partitions.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::{ToRedisArgs, Value};
use requeue_store::{EngineClock, Error, Key};

use crate::chunk::{Chunk, split};
use crate::engine::Engine;
use crate::error::unexpected_reply;
use crate::node::{ScriptCommand, Sending};
use crate::partition::{guard, names, old_names};
use crate::reply::ReplyReader;
use crate::script::{self, PARTS, Script, VERSION};

/// The arguments of a call.
pub(crate) type Args = Vec<Vec<u8>>;

/// No arguments but the time.
pub(crate) const NO_ARGS: &[&str] = &[];

/// Reads a reply with `y` or `n` for each key.
pub(crate) fn read_answers(reply: Value) -> Result<Vec<bool>, Error> {
    let letters = ReplyReader::new(reply, "keys").bytes()?;
    Ok(letters.into_iter().map(|letter| letter == b'y').collect())
}

/// One call of a script.
pub(crate) struct Call {
    pub(crate) script: &'static Script,
    pub(crate) partition: usize,
    /// Redis keys that are not parts.
    pub(crate) keys: Vec<String>,
    pub(crate) args: Args,
}

#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) engine: Arc<Engine>,
    pub(crate) queue: Arc<str>,
    /// The Redis keys of each partition, followed by its guard in a cluster.
    names: Arc<[Vec<String>]>,
    clock: Option<EngineClock>,
    /// Whether the server refused a write because of the user's permissions.
    is_read_only: Arc<AtomicBool>,
}

impl Client {
    /// Creates a client that knows only the first partition.
    pub(crate) fn new(engine: Engine, queue: &str, clock: Option<EngineClock>) -> Self {
        let names = [names(queue, 0)].into();
        let (engine, queue) = (Arc::new(engine), queue.into());
        Self { engine, queue, names, clock, is_read_only: Arc::default() }
    }

    /// Adds the [`guard`] to each partition. Required on every node of a cluster.
    pub(crate) fn with_guards(self) -> Self {
        let with_guard = |(partition, names): (usize, &Vec<String>)| {
            let mut names = names.clone();
            names.truncate(PARTS.len());
            names.push(guard(&self.queue, partition));
            names
        };
        let names = self.names.iter().enumerate().map(with_guard).collect();
        Self { names, ..self }
    }

    pub(crate) fn with_partitions(self, count: usize) -> Self {
        let has_guards = self.names[0].len() > PARTS.len();
        let names = (0..count).map(|partition| names(&self.queue, partition)).collect();
        let client = Self { names, ..self };
        if has_guards { client.with_guards() } else { client }
    }

    pub(crate) fn partitions(&self) -> usize {
        self.names.len()
    }

    /// Returns the Redis key of one part in each partition.
    pub(crate) fn names_of(&self, part: &str) -> Vec<String> {
        let index = PARTS.iter().position(|(name, _)| *name == part);
        let index = index.expect("it is one of the parts");
        self.names.iter().map(|names| names[index].clone()).collect()
    }

    /// Returns whether looking may move due keys.
    pub(crate) fn may_write(&self) -> bool {
        !self.is_read_only.load(Ordering::Relaxed)
    }

    pub(crate) fn set_read_only(&self) {
        self.is_read_only.store(true, Ordering::Relaxed);
    }

    /// Returns the time to use instead of the server's.
    pub(crate) fn test_time(&self) -> Option<u64> {
        self.clock.as_ref().map(|clock| clock.now().micros())
    }

    /// Starts a list of arguments: the first is the time.
    pub(crate) fn args(&self) -> Args {
        let time = self.test_time().map(|time| time.to_string().into_bytes());
        vec![time.unwrap_or_default()]
    }

    /// Calls scripts. Returns a result for each, in the order of the calls.
    pub(crate) async fn call(
        &self,
        calls: Vec<Call>,
        sending: Sending,
    ) -> Vec<Result<Value, Error>> {
        self.engine.call(self.commands(calls), sending).await
    }

    /// Returns how calls are sent by default.
    pub(crate) fn sending(&self) -> Sending {
        self.engine.sending(None)
    }

    fn commands(&self, calls: Vec<Call>) -> Vec<ScriptCommand> {
        let command = |Call { script, partition, keys, args }| {
            let mut command = script.command(&self.names[partition], &keys);
            command.arg(args);
            ScriptCommand { script, partition, command }
        };
        calls.into_iter().map(command).collect()
    }

    pub(crate) async fn call_one(
        &self,
        call: Call,
        sending: Sending,
    ) -> Result<Value, Error> {
        let mut results = self.call(vec![call], sending).await;
        results.pop().unwrap_or_else(|| Err(unexpected_reply("a call")))
    }

    /// Calls a script in one partition.
    pub(crate) async fn call_on(
        &self,
        partition: usize,
        script: &'static Script,
        args: impl ToRedisArgs,
    ) -> Result<Value, Error> {
        let mut all = self.args();
        args.write_redis_args(&mut all);
        let call = Call { script, partition, keys: Vec::new(), args: all };
        self.call_one(call, self.sending()).await
    }

    /// Calls a script with the same arguments in every partition. Returns the first error.
    pub(crate) async fn call_on_all(
        &self,
        script: &'static Script,
        args: impl ToRedisArgs,
    ) -> Result<Vec<Value>, Error> {
        let calls = (0..self.partitions()).map(|partition| {
            let mut all = self.args();
            args.write_redis_args(&mut all);
            Call { script, partition, keys: Vec::new(), args: all }
        });
        self.call(calls.collect(), self.sending()).await.into_iter().collect()
    }

    /// Calls a script for each chunk of a batch. `read` turns a reply into the answers for
    /// the keys of its chunk. Returns a result for each key.
    pub(crate) async fn call_batch<'a, T, I: ExactSizeIterator<Item = &'a Key>>(
        &self,
        keys: I,
        script: &'static Script,
        sending: Sending,
        push_args: impl Fn(&Chunk, &mut Args),
        read: impl Fn(Value) -> Result<Vec<T>, Error>,
    ) -> Vec<Result<T, Error>> {
        let count = keys.len();
        let chunks = split(keys, self.partitions());
        let calls = chunks.iter().map(|chunk| {
            let mut args = self.args();
            push_args(chunk, &mut args);
            Call { script, partition: chunk.partition, keys: Vec::new(), args }
        });
        let results = self.call(calls.collect(), sending).await;
        let mut answers: Vec<Option<_>> = (0..count).map(|_| None).collect();
        for (chunk, result) in chunks.iter().zip(results) {
            chunk.scatter(result.and_then(&read), &mut answers);
        }
        let answer = |answer: Option<_>| {
            answer.unwrap_or_else(|| Err(unexpected_reply("a batch")))
        };
        answers.into_iter().map(answer).collect()
    }

    /// Returns the version and the number of partitions of the queue. A queue that does not
    /// exist is created with `partitions`, or `None` is returned.
    pub(crate) async fn open(
        &self,
        partitions: Option<NonZeroUsize>,
    ) -> Result<Option<(u64, usize)>, Error> {
        let mut args = self.args();
        (VERSION, partitions.map_or(0, NonZeroUsize::get)).write_redis_args(&mut args);
        let keys = vec![old_names(&self.queue, 0).swap_remove(0).0];
        let call = Call { script: &script::OPEN, partition: 0, keys, args };
        let reply = self.call_one(call, self.sending()).await?;
        if reply == Value::Nil {
            return Ok(None);
        }
        let mut reply = ReplyReader::new(reply, "the queue");
        let (version, partitions) = (reply.count()?, reply.count()?);
        let partitions = usize::try_from(partitions);
        Ok(Some((version, partitions.map_err(|_| unexpected_reply("the queue"))?)))
    }

    pub(crate) async fn load_ballast(&self) -> Result<(), Error> {
        self.call_on_all(&script::BALLAST, NO_ARGS).await.map(drop)
    }
}
