//! The client side of one queue: calls scripts on its partitions.

use std::num::NonZeroUsize;
use std::sync::Arc;

use redis::{ToRedisArgs, Value};
use requeue_store::{EngineClock, Error, Key};

use crate::chunk::{Chunk, split};
use crate::engine::Engine;
use crate::error::unexpected_reply;
use crate::node::ScriptCommand;
use crate::partition::{guard, names};
use crate::reply::ReplyReader;
use crate::script::{self, PARTS, Script, VERSION};

/// The arguments of a call.
pub(crate) type Args = Vec<Vec<u8>>;

/// No arguments but the time.
pub(crate) const NO_ARGS: &[&str] = &[];

/// One call of a script.
pub(crate) struct Call {
    pub(crate) script: &'static Script,
    pub(crate) partition: usize,
    pub(crate) args: Args,
}

#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) engine: Arc<Engine>,
    pub(crate) queue: Arc<str>,
    /// The Redis keys of each partition, followed by its guard in a cluster.
    names: Arc<[Vec<String>]>,
    clock: Option<EngineClock>,
}

impl Client {
    /// Creates a client that knows only the first partition.
    pub(crate) fn new(engine: Engine, queue: &str, clock: Option<EngineClock>) -> Self {
        let names = [names(queue, 0)].into();
        Self { engine: Arc::new(engine), queue: queue.into(), names, clock }
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

    /// Returns the time to use instead of the server's.
    pub(crate) fn test_time(&self) -> Option<u64> {
        self.clock.as_ref().map(|clock| clock.now().micros())
    }

    /// Starts a list of arguments: the first is the time.
    pub(crate) fn args(&self) -> Args {
        let time = self.test_time().map(|time| time.to_string().into_bytes());
        vec![time.unwrap_or_default()]
    }

    /// Calls scripts. Returns their replies in the order of the calls.
    pub(crate) async fn call(&self, calls: Vec<Call>) -> Result<Vec<Value>, Error> {
        self.engine.call(self.commands(calls)).await
    }

    /// As [`call`](Self::call), but with a result per call: see [`Engine::call_each`].
    pub(crate) async fn call_each(&self, calls: Vec<Call>) -> Vec<Result<Value, Error>> {
        self.engine.call_each(self.commands(calls)).await
    }

    fn commands(&self, calls: Vec<Call>) -> Vec<ScriptCommand> {
        let command = |Call { script, partition, args }| {
            let mut command = script.command(&self.names[partition]);
            command.arg(args);
            ScriptCommand { script, partition, command }
        };
        calls.into_iter().map(command).collect()
    }

    pub(crate) async fn call_one(&self, call: Call) -> Result<Value, Error> {
        let replies = self.call(vec![call]).await?;
        Ok(replies.into_iter().next().unwrap_or(Value::Nil))
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
        self.call_one(Call { script, partition, args: all }).await
    }

    /// Calls a script with the same arguments in every partition.
    pub(crate) async fn call_on_all(
        &self,
        script: &'static Script,
        args: impl ToRedisArgs,
    ) -> Result<Vec<Value>, Error> {
        let calls = (0..self.partitions()).map(|partition| {
            let mut all = self.args();
            args.write_redis_args(&mut all);
            Call { script, partition, args: all }
        });
        self.call(calls.collect()).await
    }

    /// Calls a script for each chunk of a batch. Returns the chunks and the replies.
    pub(crate) async fn call_batch<'a, I: Iterator<Item = &'a Key>>(
        &self,
        keys: I,
        script: &'static Script,
        push_args: impl Fn(&Chunk, &mut Args),
    ) -> Result<Vec<(Chunk, Value)>, Error> {
        let chunks = split(keys, self.partitions());
        let calls = chunks.iter().map(|chunk| {
            let mut args = self.args();
            push_args(chunk, &mut args);
            Call { script, partition: chunk.partition, args }
        });
        let replies = self.call(calls.collect()).await?;
        Ok(chunks.into_iter().zip(replies).collect())
    }

    /// Calls a script that replies with `y` or `n` for each key of a batch.
    pub(crate) async fn ask_batch<'a, I: Iterator<Item = &'a Key> + Clone>(
        &self,
        keys: I,
        script: &'static Script,
        push_args: impl Fn(&Chunk, &mut Args),
    ) -> Result<Vec<bool>, Error> {
        let mut answers = vec![false; keys.clone().count()];
        for (chunk, reply) in self.call_batch(keys, script, push_args).await? {
            let letters = ReplyReader::new(reply, "keys").bytes()?;
            let yes = letters.into_iter().map(|letter| letter == b'y');
            chunk.scatter(yes.collect(), &mut answers)?;
        }
        Ok(answers)
    }

    /// Returns the version and the number of partitions of the queue. A queue that does not
    /// exist is created with `partitions`, or `None` is returned.
    pub(crate) async fn open(
        &self,
        partitions: Option<NonZeroUsize>,
    ) -> Result<Option<(u64, usize)>, Error> {
        let settings = (VERSION, partitions.map_or(0, NonZeroUsize::get));
        let reply = self.call_on(0, &script::OPEN, settings).await?;
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
