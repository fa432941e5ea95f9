//! One Redis server: standalone, or a node of a cluster.
//!
//! All calls share one connection. It is opened when it is needed, and again after it broke.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ConnectionAddr, Pipeline, RedisError, Value};
use requeue_store::Error;

use crate::error::{Stage, breaks_connection, in_part, store_error};
use crate::script::Script;

/// The number of commands that are sent before their replies are awaited. The timeout is for
/// all of them together.
const PIPELINE_LEN: usize = 16;

/// A command that calls a script in a partition.
#[derive(Clone)]
pub(crate) struct ScriptCommand {
    pub(crate) script: &'static Script,
    pub(crate) partition: usize,
    pub(crate) command: Cmd,
}

pub(crate) struct Node {
    client: redis::Client,
    timeout: Duration,
    /// The address for messages, without a password.
    name: String,
    /// The connection and its number. Not locked while anything is awaited.
    current: Mutex<(u64, Option<MultiplexedConnection>)>,
    /// Locked while connecting.
    connecting: tokio::sync::Mutex<()>,
}

impl Node {
    pub(crate) fn new(client: redis::Client, timeout: Duration) -> Self {
        let name = name_of(&client);
        let current = Mutex::new((0, None));
        Self { client, timeout, name, current, connecting: tokio::sync::Mutex::new(()) }
    }

    /// Returns a node at another address, with the same settings and TLS certificates.
    pub(crate) fn at(&self, host: String, port: u16) -> Self {
        let info = self.client.get_connection_info().clone();
        let address = match info.addr().clone() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure, tls_params }
            }
            ConnectionAddr::Tcp(..) | ConnectionAddr::Unix(_) | _ => {
                ConnectionAddr::Tcp(host, port)
            }
        };
        let info = info.set_addr(address);
        // This cannot fail: the settings were accepted before, and only the address changed.
        let client = redis::Client::open(info).unwrap_or_else(|_| self.client.clone());
        Self::new(client, self.timeout)
    }

    /// Returns the address for messages, without a password.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn address(&self) -> String {
        self.client.get_connection_info().addr().to_string()
    }

    pub(crate) fn host(&self) -> String {
        match self.client.get_connection_info().addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => {
                host.clone()
            }
            other @ (ConnectionAddr::Unix(_) | _) => other.to_string(),
        }
    }

    /// Opens another connection, for commands that block for up to `blocking`.
    pub(crate) async fn connect(
        &self,
        blocking: Duration,
    ) -> Result<MultiplexedConnection, Error> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(Some(self.timeout.saturating_add(blocking)))
            .set_pipeline_buffer_size(1024)
            .set_write_backpressure_boundary(64 * 1024);
        let connected = self.client.get_multiplexed_async_connection_with_config(&config);
        connected.await.map_err(|error| store_error(&self.name, error, Stage::Connecting))
    }

    /// Calls scripts one after the other. Returns their replies in the same order.
    pub(crate) async fn call(
        &self,
        calls: Vec<ScriptCommand>,
    ) -> Result<Vec<Value>, Error> {
        let replies = self.try_call(calls).await?;
        let is_executed = |reply: &Value| !matches!(reply, Value::ServerError(_));
        let any_executed = replies.iter().any(is_executed);
        let replies = replies.into_iter().map(Value::extract_error);
        let replies: Result<_, RedisError> = replies.collect();
        replies.map_err(|error| {
            let error = self.error(error);
            if any_executed { in_part(error) } else { error }
        })
    }

    /// As [`call`](Self::call), but returns errors of the server as replies.
    pub(crate) async fn try_call(
        &self,
        calls: Vec<ScriptCommand>,
    ) -> Result<Vec<Value>, Error> {
        let mut replies = Vec::with_capacity(calls.len());
        let mut calls = calls.into_iter().peekable();
        while calls.peek().is_some() {
            let is_first = replies.is_empty();
            let more = self.call_pipelined(calls.by_ref().take(PIPELINE_LEN)).await;
            let in_part = |error: Error| if is_first { error } else { in_part(error) };
            replies.extend(more.map_err(in_part)?);
        }
        Ok(replies)
    }

    /// Sends one command that is not a script.
    pub(crate) async fn send(&self, command: Cmd) -> Result<Value, Error> {
        let replies = self.send_pipeline(&pipeline(std::iter::once(command))).await?;
        let reply = replies.into_iter().next().unwrap_or(Value::Nil);
        reply.extract_error().map_err(|error| self.error(error))
    }

    async fn call_pipelined(
        &self,
        calls: impl Iterator<Item = ScriptCommand>,
    ) -> Result<Vec<Value>, Error> {
        let (scripts, commands): (Vec<_>, Vec<_>) =
            calls.map(|call| (call.script, call.command)).unzip();
        let commands = pipeline(commands.into_iter());
        let mut replies = self.send_pipeline(&commands).await?;
        self.load_missing(&scripts, &commands, &mut replies).await?;
        Ok(replies)
    }

    /// Loads the scripts that the server does not have, and calls these again.
    ///
    /// A server forgets its scripts when it is restarted or fails over.
    async fn load_missing(
        &self,
        scripts: &[&'static Script],
        commands: &Pipeline,
        replies: &mut [Value],
    ) -> Result<(), Error> {
        let missing: Vec<_> =
            (0..scripts.len()).filter(|index| is_missing(&replies[*index])).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let loads = missing.iter().map(|index| scripts[*index].load());
        let again = commands.cmd_iter().enumerate();
        let again = again.filter(|(index, _)| missing.contains(index));
        let again = again.map(|(_, command)| command.clone());
        let later = self.send_pipeline(&pipeline(loads.chain(again))).await?;
        for (index, reply) in missing.iter().zip(later.into_iter().skip(missing.len())) {
            replies[*index] = reply;
        }
        Ok(())
    }

    pub(crate) async fn send_pipeline(
        &self,
        commands: &Pipeline,
    ) -> Result<Vec<Value>, Error> {
        let (number, mut connection) = self.connection().await?;
        let sent = connection.send_packed_commands(commands, 0, commands.len()).await;
        sent.map_err(|error| {
            if breaks_connection(&error) {
                self.drop_connection(number);
            }
            self.error(error)
        })
    }

    async fn connection(&self) -> Result<(u64, MultiplexedConnection), Error> {
        if let Some(current) = self.current() {
            return Ok(current);
        }
        let _connecting = self.connecting.lock().await;
        if let Some(current) = self.current() {
            return Ok(current);
        }
        let connection = self.connect(Duration::ZERO).await?;
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        *current = (current.0 + 1, Some(connection.clone()));
        Ok((current.0, connection))
    }

    fn current(&self) -> Option<(u64, MultiplexedConnection)> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.1.clone().map(|connection| (current.0, connection))
    }

    /// Drops the connection with this number, unless it was replaced already.
    fn drop_connection(&self, number: u64) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.0 == number {
            current.1 = None;
        }
    }

    pub(crate) fn error(&self, error: RedisError) -> Error {
        store_error(&self.name, error, Stage::Calling)
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("name", &self.name).finish_non_exhaustive()
    }
}

pub(crate) fn pipeline(commands: impl Iterator<Item = Cmd>) -> Pipeline {
    let mut pipeline = Pipeline::new();
    for command in commands {
        pipeline.add_command(command);
    }
    pipeline
}

fn is_missing(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == "NOSCRIPT")
}

fn name_of(client: &redis::Client) -> String {
    let info = client.get_connection_info();
    let db = info.redis_settings().db();
    match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            format!("redis at {host}:{port}/{db}")
        }
        other @ (ConnectionAddr::Unix(_) | _) => format!("redis at {other}/{db}"),
    }
}
