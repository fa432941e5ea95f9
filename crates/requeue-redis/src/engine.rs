//! The engine of a store: one server, or a cluster.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};
use requeue_store::{Error, ErrorKind};

use crate::cluster::Cluster;
use crate::durability::Confirmation;
use crate::error::{Stage, breaks_connection, store_error};
use crate::node::{Node, ScriptCommand, Sending};

#[derive(Debug)]
pub(crate) enum Engine {
    Server(Arc<Node>),
    Cluster(Arc<Cluster>),
}

impl Engine {
    /// Returns the address for messages, without a password.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Server(node) => node.name(),
            Self::Cluster(cluster) => cluster.name(),
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Calls scripts, those of one partition in order. Returns a result for each.
    ///
    /// The parts of a call for different partitions of a cluster are independent.
    pub(crate) async fn call(
        &self,
        calls: Vec<ScriptCommand>,
        sending: Sending,
    ) -> Vec<Result<Value, Error>> {
        match self {
            Self::Server(node) => {
                let results = node.call(&calls, sending).await.into_iter();
                results.map(|result| result.map_err(|error| node.error(error))).collect()
            }
            Self::Cluster(cluster) => cluster.call(calls, sending).await,
        }
    }

    /// Sends one command that is not a script, with a Redis key of this partition.
    pub(crate) async fn send(
        &self,
        partition: usize,
        command: Cmd,
    ) -> Result<Value, Error> {
        match self {
            Self::Server(node) => {
                node.send(command).await.map_err(|error| node.error(error))
            }
            Self::Cluster(cluster) => cluster.send(partition, command).await,
        }
    }

    /// Sends one command without a Redis key to any server.
    pub(crate) async fn send_to_any(&self, command: Cmd) -> Result<Value, Error> {
        match self {
            Self::Server(_) => self.send(0, command).await,
            Self::Cluster(cluster) => cluster.send_to_any(&command).await,
        }
    }

    /// Returns the node of a partition, as far as known.
    pub(crate) fn node_of(&self, partition: usize) -> Arc<Node> {
        match self {
            Self::Server(node) => Arc::clone(node),
            Self::Cluster(cluster) => cluster.node_of(partition),
        }
    }

    /// Returns the servers of all known partitions.
    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        match self {
            Self::Server(node) => vec![Arc::clone(node)],
            Self::Cluster(cluster) => cluster.homes(),
        }
    }

    /// Returns how calls are sent by default.
    pub(crate) fn sending(&self, confirmation: Option<Confirmation>) -> Sending {
        Sending { deadline: self.timeout(), confirmation }
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.node_of(0).timeout
    }

    /// Opens another connection to a node, for blocking commands.
    pub(crate) async fn connect(
        &self,
        node: &Arc<Node>,
    ) -> Result<MultiplexedConnection, Error> {
        let connected = node.connect().await;
        if let (Err(_), Self::Cluster(cluster)) = (&connected, self) {
            cluster.forget(node);
        }
        connected
    }

    /// Returns the error for a blocking command that was not answered.
    pub(crate) fn lost_connection(&self, node: &Arc<Node>) -> Error {
        if let Self::Cluster(cluster) = self {
            cluster.forget(node);
        }
        let text = format!("{}: the connection was lost", node.name());
        Error::new(ErrorKind::Unavailable, text)
    }

    /// Converts the error of a blocking command, which changes nothing if it fails. Returns
    /// `None` if the command must be sent to another node.
    pub(crate) fn blocking_error(
        &self,
        partition: usize,
        node: &Arc<Node>,
        error: RedisError,
    ) -> Option<Error> {
        if breaks_connection(&error) {
            return Some(self.lost_connection(node).because(error));
        }
        match self {
            Self::Cluster(cluster) if cluster.redirect(partition, node, &error) => None,
            Self::Cluster(_) | Self::Server(_) => {
                Some(store_error(node.name(), error, Stage::Calling))
            }
        }
    }
}
