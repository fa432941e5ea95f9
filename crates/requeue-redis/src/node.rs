//! One Redis server: standalone, behind sentinels, or a node of a cluster.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, Value};
use requeue_store::{Error, ErrorKind};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::durability::Confirmation;
use crate::endpoint::Endpoint;
use crate::error::{Stage, breaks_connection, needs_reconnect, store_error};
use crate::link::Link;
use crate::script::Script;

/// The number of commands that are sent before their replies are awaited. The deadline is for
/// all of them together.
const PIPELINE_LEN: usize = 16;

/// A command that calls a script in a partition.
#[derive(Clone)]
pub(crate) struct ScriptCommand {
    pub(crate) script: &'static Script,
    pub(crate) partition: usize,
    pub(crate) command: Cmd,
}

/// How to execute calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sending {
    /// How long to wait for a connection and the replies.
    pub(crate) deadline: Duration,
    /// What to wait for before the calls succeed.
    pub(crate) confirmation: Option<Confirmation>,
}

pub(crate) struct Node {
    endpoint: Arc<Endpoint>,
    pub(crate) timeout: Duration,
    /// The address for messages, without a password.
    name: String,
    link: Arc<Link>,
    /// For calls with a confirmation, which block their connection.
    confirmed_link: Arc<Link>,
    /// Whether the last call had no answer in time.
    is_hung: watch::Sender<bool>,
    /// Whether a task asks until the node answers.
    is_probed: AtomicBool,
}

impl Node {
    pub(crate) fn new(endpoint: Endpoint, timeout: Duration) -> Self {
        Self {
            name: endpoint.name(),
            endpoint: Arc::new(endpoint),
            timeout,
            link: Arc::default(),
            confirmed_link: Arc::default(),
            is_hung: watch::Sender::new(false),
            is_probed: AtomicBool::new(false),
        }
    }

    /// Returns a node at another address, with the same settings and TLS certificates.
    pub(crate) fn at(&self, host: String, port: u16) -> Self {
        Self::new(self.endpoint.at(host, port), self.timeout)
    }

    /// Returns the address for messages, without a password.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns host and port; `None` for a socket or for sentinels.
    pub(crate) fn host_and_port(&self) -> Option<(&str, u16)> {
        self.endpoint.host_and_port()
    }

    /// Opens another connection, for blocking commands.
    pub(crate) async fn connect(&self) -> Result<MultiplexedConnection, Error> {
        self.endpoint.connect(self.timeout).await.map_err(|error| {
            let is_timeout = error.kind() == ErrorKind::Timeout;
            if is_timeout {
                self.no_answer(self.timeout, Stage::Connecting)
            } else {
                error
            }
        })
    }

    pub(crate) fn is_hung(&self) -> bool {
        *self.is_hung.borrow()
    }

    /// Waits until a call has no answer in time.
    pub(crate) async fn hung(&self) {
        // The sender lives as long as `self`.
        drop(self.is_hung.subscribe().wait_for(|is_hung| *is_hung).await);
    }

    /// Starts a task that asks a hung node until it answers.
    pub(crate) fn probe(self: &Arc<Self>) {
        if !self.is_probed.swap(true, Ordering::AcqRel) {
            tokio::spawn(probe(Probe(Arc::downgrade(self))));
        }
    }

    /// Calls scripts one after the other. Returns a result for each.
    ///
    /// After a failure of the connection, the remaining calls are not sent.
    pub(crate) async fn call(
        &self,
        calls: &[ScriptCommand],
        sending: Sending,
    ) -> Vec<Result<Value, RedisOrStore>> {
        let mut results = Vec::with_capacity(calls.len());
        for part in calls.chunks(PIPELINE_LEN) {
            match self.call_pipelined(part, sending).await {
                Ok(replies) => results.extend(replies),
                Err(error) => {
                    let text = format!("{error}; the call was not sent");
                    let unsent = Error::new(ErrorKind::Unavailable, text);
                    let sent = results.len() + part.len();
                    results.extend(part.iter().map(|_| Err(error.clone().into())));
                    results
                        .extend((sent..calls.len()).map(|_| Err(unsent.clone().into())));
                    return results;
                }
            }
        }
        results
    }

    /// Sends one command that is not a script.
    pub(crate) async fn send(&self, command: Cmd) -> Result<Value, RedisOrStore> {
        let command = pipeline(std::iter::once(command));
        let replies = self.send_pipeline(&self.link, &command, self.timeout).await?;
        let reply = replies.into_iter().next().unwrap_or(Value::Nil);
        Ok(reply.extract_error()?)
    }

    async fn call_pipelined(
        &self,
        calls: &[ScriptCommand],
        sending: Sending,
    ) -> Result<Vec<Result<Value, RedisOrStore>>, Error> {
        let mut replies = self.send_all(calls, sending).await?;
        self.call_missing(calls, sending, &mut replies).await?;
        Ok(replies)
    }

    /// Loads the scripts that the server does not have, and calls these again.
    ///
    /// A server forgets its scripts when it is restarted or fails over.
    async fn call_missing(
        &self,
        calls: &[ScriptCommand],
        sending: Sending,
        replies: &mut [Result<Value, RedisOrStore>],
    ) -> Result<(), Error> {
        let missing: Vec<_> =
            (0..calls.len()).filter(|index| is_missing(&replies[*index])).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let loads = pipeline(missing.iter().map(|index| calls[*index].script.load()));
        self.send_pipeline(&self.link, &loads, sending.deadline).await?;
        let again: Vec<_> = missing.iter().map(|index| calls[*index].clone()).collect();
        for (index, reply) in missing.iter().zip(self.send_all(&again, sending).await?) {
            replies[*index] = reply;
        }
        Ok(())
    }

    /// Sends calls, followed by the command that waits for their confirmation. These must be
    /// on one connection: a server waits only for the writes of the same connection.
    async fn send_all(
        &self,
        calls: &[ScriptCommand],
        sending: Sending,
    ) -> Result<Vec<Result<Value, RedisOrStore>>, Error> {
        let commands = calls.iter().map(|call| call.command.clone());
        let Sending { deadline, confirmation } = sending;
        let wait = confirmation.map(Confirmation::command);
        let commands = pipeline(commands.chain(wait));
        let Some(confirmation) = confirmation else {
            let replies = self.send_pipeline(&self.link, &commands, deadline).await?;
            return Ok(replies.into_iter().map(extract).collect());
        };
        let deadline = deadline.saturating_add(confirmation.within);
        let link = &self.confirmed_link;
        let mut replies = self.send_pipeline(link, &commands, deadline).await?;
        let confirmed = replies.pop().map_or(Ok(Value::Nil), Value::extract_error);
        let confirmed = confirmed.map_err(|error| self.error(error));
        let confirmed = confirmed.and_then(|reply| confirmation.check(&reply));
        let replies = replies.into_iter().map(extract);
        let replies = replies.map(|reply| match (reply, &confirmed) {
            (Ok(_), Err(error)) => Err(error.clone().into()),
            (reply, _) => reply,
        });
        Ok(replies.collect())
    }

    async fn send_pipeline(
        &self,
        link: &Arc<Link>,
        commands: &Pipeline,
        deadline: Duration,
    ) -> Result<Vec<Value>, Error> {
        let mut usage = link.join(&self.endpoint, self.timeout);
        let mut stage = Stage::Connecting;
        let sending = async {
            let mut connection = usage.connection().await?;
            stage = Stage::Calling;
            let count = commands.len();
            let sent = connection.send_packed_commands(commands, 0, count).await;
            Ok::<_, RedisOrStore>(sent?)
        };
        // Less precise than the clock of the library, and cheaper.
        let sent = timeout(deadline, sending).await.ok();
        match sent {
            Some(Ok(replies)) => {
                self.set_hung(false);
                if !replies.iter().any(ends_connection) {
                    usage.keep();
                }
                Ok(replies)
            }
            Some(Err(RedisOrStore::Redis(error))) => {
                self.set_hung(false);
                if !breaks_connection(&error) {
                    usage.keep();
                }
                Err(self.error(error))
            }
            Some(Err(RedisOrStore::Store(error)))
                if error.kind() != ErrorKind::Timeout =>
            {
                self.set_hung(false);
                Err(error)
            }
            Some(Err(RedisOrStore::Store(_))) | None => {
                self.set_hung(true);
                Err(self.no_answer(deadline, stage))
            }
        }
    }

    fn set_hung(&self, is_hung: bool) {
        self.is_hung.send_if_modified(|before| {
            let is_changed = *before != is_hung;
            *before = is_hung;
            is_changed
        });
    }

    fn no_answer(&self, deadline: Duration, stage: Stage) -> Error {
        let name = &self.name;
        match stage {
            Stage::Connecting => {
                let text = format!("{name}: cannot connect within {deadline:?}");
                Error::new(ErrorKind::Unavailable, text)
            }
            Stage::Calling => {
                let text = format!(
                    "{name}: no answer within {deadline:?}, the call may have been executed"
                );
                Error::new(ErrorKind::Unknown, text)
            }
        }
    }

    pub(crate) fn error(&self, error: impl Into<RedisOrStore>) -> Error {
        match error.into() {
            RedisOrStore::Redis(error) => store_error(&self.name, error, Stage::Calling),
            RedisOrStore::Store(error) => error,
        }
    }
}

/// A task that probes a node. Another one can start when it ends.
struct Probe(Weak<Node>);

impl Drop for Probe {
    fn drop(&mut self) {
        if let Some(node) = self.0.upgrade() {
            node.is_probed.store(false, Ordering::Release);
        }
    }
}

/// Sends commands until one is answered in time. Each waits for the timeout.
async fn probe(probe: Probe) {
    while let Some(node) = probe.0.upgrade().filter(|node| node.is_hung()) {
        // Any answer ends the hang, also an error.
        drop(node.send(redis::cmd("PING")).await);
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("name", &self.name).finish_non_exhaustive()
    }
}

/// An error reply of the server, or any other error.
#[derive(Clone, Debug)]
pub(crate) enum RedisOrStore {
    Redis(RedisError),
    Store(Error),
}

impl From<RedisError> for RedisOrStore {
    fn from(error: RedisError) -> Self {
        Self::Redis(error)
    }
}

impl From<Error> for RedisOrStore {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

pub(crate) fn pipeline(commands: impl Iterator<Item = Cmd>) -> Pipeline {
    let mut pipeline = Pipeline::new();
    for command in commands {
        pipeline.add_command(command);
    }
    pipeline
}

fn extract(reply: Value) -> Result<Value, RedisOrStore> {
    reply.extract_error().map_err(RedisOrStore::Redis)
}

fn is_missing(reply: &Result<Value, RedisOrStore>) -> bool {
    matches!(reply, Err(RedisOrStore::Redis(error)) if error.code() == Some("NOSCRIPT"))
}

fn ends_connection(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if needs_reconnect(error))
}
