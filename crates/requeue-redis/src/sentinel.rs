//! Finding the primary server through Redis Sentinel.
//!
//! All sentinels are asked at the same time, each time a connection is opened. An answer is
//! used only if the named server says that it is a primary: a sentinel may not know yet that
//! it was replaced.

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};
use requeue_store::{Error, ErrorKind};
use tokio::task::JoinSet;

use crate::endpoint::{client_at, connect};

pub(crate) struct Sentinels {
    /// The sentinels; at least one.
    pub(crate) hosts: Vec<redis::Client>,
    /// The name of the primary in the configuration of the sentinels.
    pub(crate) primary: String,
    /// Any client with the settings of the server.
    pub(crate) server: redis::Client,
}

impl Sentinels {
    pub(crate) fn name(&self) -> String {
        let address =
            |client: &redis::Client| client.get_connection_info().addr().to_string();
        let addresses: Vec<_> = self.hosts.iter().map(address).collect();
        let db = self.server.get_connection_info().redis_settings().db();
        let primary = &self.primary;
        format!("redis {primary:?}/{db} of the sentinels at {}", addresses.join(","))
    }

    /// Connects to the primary. The caller limits the time.
    pub(crate) async fn connect(&self) -> Result<MultiplexedConnection, Error> {
        let mut asking = JoinSet::new();
        for sentinel in &self.hosts {
            asking.spawn(ask(sentinel.clone(), self.primary.clone()));
        }
        let mut last = None;
        while let Some(answer) = asking.join_next().await {
            let connected = match answer {
                Ok(Ok(Some((host, port)))) => self.connect_to(host, port).await,
                Ok(Ok(None)) => Err(self.unknown_primary()),
                Ok(Err(error)) => Err(error),
                Err(_) => continue,
            };
            match connected {
                Ok(connection) => return Ok(connection),
                // A refused password says more than a sentinel that is down.
                Err(error) if error.kind() == ErrorKind::Denied => return Err(error),
                Err(error) => last = Some(error),
            }
        }
        Err(self.no_primary(last))
    }

    async fn connect_to(
        &self,
        host: String,
        port: u16,
    ) -> Result<MultiplexedConnection, Error> {
        let mut connection =
            connect(&client_at(&self.server, host.clone(), port)).await?;
        let role = connection.send_packed_command(&redis::cmd("ROLE")).await;
        if is_primary(role.and_then(Value::extract_error)) {
            return Ok(connection);
        }
        let text = format!("redis at {host}:{port} is not a primary");
        Err(Error::new(ErrorKind::Unavailable, text))
    }

    fn unknown_primary(&self) -> Error {
        let text =
            format!("the sentinels do not know a primary named {:?}", self.primary);
        Error::new(ErrorKind::Unavailable, text)
    }

    fn no_primary(&self, cause: Option<Error>) -> Error {
        let error = Error::new(
            ErrorKind::Unavailable,
            format!("{}: found no primary", self.name()),
        );
        match cause {
            Some(cause) => error.because(cause),
            None => error,
        }
    }
}

/// Asks a sentinel for the address of the primary.
async fn ask(
    sentinel: redis::Client,
    primary: String,
) -> Result<Option<(String, u16)>, Error> {
    let mut connection = connect(&sentinel).await?;
    let mut command = Cmd::new();
    command.arg("SENTINEL").arg("get-master-addr-by-name").arg(primary);
    command.query_async(&mut connection).await.map_err(|error: RedisError| {
        let address = sentinel.get_connection_info().addr();
        let text = format!("the sentinel at {address} replied with an error");
        Error::new(ErrorKind::Unavailable, text).because(error)
    })
}

/// A user who may not ask for the role finds out by the first write.
fn is_primary(role: Result<Value, RedisError>) -> bool {
    match role {
        Ok(Value::Array(parts)) => match parts.first() {
            Some(Value::BulkString(role)) => role == b"master",
            Some(Value::SimpleString(role)) => role == "master",
            _ => false,
        },
        Ok(_) => false,
        Err(error) => error.code() == Some("NOPERM"),
    }
}
