//! The connection that calls share, made when it is needed and again when it broke.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, Pipeline, RedisError, Value,
};
use requeue_store::Error;

use crate::fault::{Stage, breaks_connection, fault};
use crate::script::Script;

/// How many calls are sent before their answers are awaited: the time limit is for all of
/// them together.
const WINDOW: usize = 16;

/// One call of a script.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) script: &'static Script,
    pub(crate) partition: usize,
    pub(crate) command: Cmd,
}

pub(crate) struct Link {
    client: Client,
    timeout: Duration,
    place: String,
    /// The connection with its number. The lock is never held over a wait.
    current: Mutex<(u64, Option<MultiplexedConnection>)>,
    /// Held by the one who connects.
    connecting: tokio::sync::Mutex<()>,
}

impl Link {
    pub(crate) fn new(client: Client, timeout: Duration) -> Self {
        let place = place_of(&client);
        let current = Mutex::new((0, None));
        Self { client, timeout, place, current, connecting: tokio::sync::Mutex::new(()) }
    }

    /// The same settings, TLS included, for a server at another place.
    pub(crate) fn elsewhere(&self, host: String, port: u16) -> Self {
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
        // A client is made of an address that was read before: it is not read again.
        let client = Client::open(info).unwrap_or_else(|_| self.client.clone());
        Self::new(client, self.timeout)
    }

    /// Where the server is, without its password.
    pub(crate) fn place(&self) -> &str {
        &self.place
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

    /// A connection of its own, on which an answer may take up to `patience` longer.
    pub(crate) async fn connect(
        &self,
        patience: Duration,
    ) -> Result<MultiplexedConnection, Error> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(Some(self.timeout.saturating_add(patience)))
            .set_pipeline_buffer_size(1024)
            .set_write_backpressure_boundary(64 * 1024);
        let connected = self.client.get_multiplexed_async_connection_with_config(&config);
        connected.await.map_err(|error| fault(&self.place, error, Stage::Connecting))
    }

    /// Calls scripts one after the other, and gives their answers in this order.
    pub(crate) async fn call(&self, calls: Vec<Call>) -> Result<Vec<Value>, Error> {
        let answers = self.try_call(calls).await?;
        let answered =
            answers.iter().any(|answer| !matches!(answer, Value::ServerError(_)));
        let answers = answers.into_iter().map(Value::extract_error);
        let answers: Result<_, RedisError> = answers.collect();
        answers.map_err(|error| {
            let error = self.fault(error);
            if answered { error.in_part() } else { error }
        })
    }

    /// As [`call`](Self::call); errors of the server are answers.
    pub(crate) async fn try_call(&self, calls: Vec<Call>) -> Result<Vec<Value>, Error> {
        let mut answers = Vec::with_capacity(calls.len());
        let mut calls = calls.into_iter().peekable();
        while calls.peek().is_some() {
            let first = answers.is_empty();
            let more = self.call_together(calls.by_ref().take(WINDOW)).await;
            let in_part = |error: Error| if first { error } else { error.in_part() };
            answers.extend(more.map_err(in_part)?);
        }
        Ok(answers)
    }

    /// Sends one command that is no script.
    pub(crate) async fn ask(&self, command: Cmd) -> Result<Value, Error> {
        let answers = self.send(&pipeline(std::iter::once(command))).await?;
        let answer = answers.into_iter().next().unwrap_or(Value::Nil);
        answer.extract_error().map_err(|error| self.fault(error))
    }

    async fn call_together(
        &self,
        calls: impl Iterator<Item = Call>,
    ) -> Result<Vec<Value>, Error> {
        let (scripts, commands): (Vec<_>, Vec<_>) =
            calls.map(|call| (call.script, call.command)).unzip();
        let commands = pipeline(commands.into_iter());
        let mut answers = self.send(&commands).await?;
        self.teach(&scripts, &commands, &mut answers).await?;
        Ok(answers)
    }

    /// Loads the scripts that the server did not know, and calls those once more.
    async fn teach(
        &self,
        scripts: &[&'static Script],
        commands: &Pipeline,
        answers: &mut [Value],
    ) -> Result<(), Error> {
        let unknown: Vec<_> =
            (0..scripts.len()).filter(|place| is_unknown(&answers[*place])).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let loads = unknown.iter().map(|place| scripts[*place].load());
        let again = commands.cmd_iter().enumerate();
        let again = again.filter(|(place, _)| unknown.contains(place));
        let again = again.map(|(_, command)| command.clone());
        let later = self.send(&pipeline(loads.chain(again))).await?;
        for (place, answer) in unknown.iter().zip(later.into_iter().skip(unknown.len())) {
            answers[*place] = answer;
        }
        Ok(())
    }

    pub(crate) async fn send(&self, commands: &Pipeline) -> Result<Vec<Value>, Error> {
        let (number, mut connection) = self.connection().await?;
        let sent = connection.send_packed_commands(commands, 0, commands.len()).await;
        sent.map_err(|error| {
            if breaks_connection(&error) {
                self.forget(number);
            }
            self.fault(error)
        })
    }

    async fn connection(&self) -> Result<(u64, MultiplexedConnection), Error> {
        if let Some(current) = self.current() {
            return Ok(current);
        }
        let _turn = self.connecting.lock().await;
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

    /// Drops the connection of this number, if no later one has taken its place.
    fn forget(&self, number: u64) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.0 == number {
            current.1 = None;
        }
    }

    pub(crate) fn fault(&self, error: RedisError) -> Error {
        fault(&self.place, error, Stage::Calling)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("place", &self.place).finish_non_exhaustive()
    }
}

pub(crate) fn pipeline(commands: impl Iterator<Item = Cmd>) -> Pipeline {
    let mut pipeline = Pipeline::new();
    for command in commands {
        pipeline.add_command(command);
    }
    pipeline
}

/// Whether the server does not know the script, be it that it was restarted or told to
/// forget it.
fn is_unknown(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.code() == "NOSCRIPT")
}

fn place_of(client: &Client) -> String {
    let info = client.get_connection_info();
    let db = info.redis_settings().db();
    match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            format!("redis at {host}:{port}/{db}")
        }
        other @ (ConnectionAddr::Unix(_) | _) => format!("redis at {other}/{db}"),
    }
}
