//! Where to connect to: the address of a server, or the sentinels that know it.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionAddr};
use requeue_store::{Error, ErrorKind, within};

use crate::error::{Stage, store_error};
use crate::sentinel::Sentinels;

pub(crate) enum Endpoint {
    Server(redis::Client),
    Sentinels(Sentinels),
}

impl Endpoint {
    /// Opens a connection. Fails with `Timeout` if nothing answers in time.
    pub(crate) async fn connect(
        &self,
        timeout: Duration,
    ) -> Result<MultiplexedConnection, Error> {
        let connecting = async {
            match self {
                Self::Server(client) => connect(client).await,
                Self::Sentinels(sentinels) => sentinels.connect().await,
            }
        };
        within(timeout, connecting).await.unwrap_or_else(|| {
            let text = format!("{}: cannot connect within {timeout:?}", self.name());
            Err(Error::new(ErrorKind::Timeout, text))
        })
    }

    /// Returns the address for messages, without a password.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Server(client) => server_name(client),
            Self::Sentinels(sentinels) => sentinels.name(),
        }
    }

    /// Returns the endpoint of another server with the same settings and TLS certificates.
    pub(crate) fn at(&self, host: String, port: u16) -> Self {
        match self {
            Self::Server(client) => Self::Server(client_at(client, host, port)),
            Self::Sentinels(sentinels) => {
                Self::Server(client_at(&sentinels.server, host, port))
            }
        }
    }

    /// Returns host and port; `None` for a socket.
    pub(crate) fn host_and_port(&self) -> Option<(&str, u16)> {
        let Self::Server(client) = self else { return None };
        match client.get_connection_info().addr() {
            ConnectionAddr::Tcp(host, port)
            | ConnectionAddr::TcpTls { host, port, .. } => Some((host, *port)),
            ConnectionAddr::Unix(_) | _ => None,
        }
    }
}

/// Connects to a server. The caller limits the time.
pub(crate) async fn connect(
    client: &redis::Client,
) -> Result<MultiplexedConnection, Error> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(1024)
        .set_write_backpressure_boundary(64 * 1024);
    let connected = client.get_multiplexed_async_connection_with_config(&config).await;
    connected.map_err(|error| store_error(&server_name(client), error, Stage::Connecting))
}

/// Returns a client for another address, with the same settings and TLS certificates.
pub(crate) fn client_at(
    client: &redis::Client,
    host: String,
    port: u16,
) -> redis::Client {
    let info = client.get_connection_info().clone();
    let address = match info.addr().clone() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure, tls_params }
        }
        ConnectionAddr::Tcp(..) | ConnectionAddr::Unix(_) | _ => {
            ConnectionAddr::Tcp(host, port)
        }
    };
    // This cannot fail: the settings were accepted before, and only the address changed.
    redis::Client::open(info.set_addr(address)).unwrap_or_else(|_| client.clone())
}

fn server_name(client: &redis::Client) -> String {
    let info = client.get_connection_info();
    let db = info.redis_settings().db();
    match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            format!("redis at {host}:{port}/{db}")
        }
        other @ (ConnectionAddr::Unix(_) | _) => format!("redis at {other}/{db}"),
    }
}
