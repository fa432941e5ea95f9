//! The engine of a store: one server, or a cluster.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};
use requeue_store::{Error, ErrorKind};

use crate::cluster::Cluster;
use crate::error::{Stage, breaks_connection, in_part, store_error};
use crate::node::{Node, ScriptCommand};

#[derive(Debug)]
pub(crate) enum Engine {
    Server(Arc<Node>),
    Cluster(Cluster),
}

impl Engine {
    /// Returns the address for messages, without a password.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Server(node) => node.name(),
            Self::Cluster(cluster) => cluster.name(),
        }
    }

    /// Calls scripts, those of one partition in order. Returns their replies in the order of
    /// the calls.
    pub(crate) async fn call(
        &self,
        calls: Vec<ScriptCommand>,
    ) -> Result<Vec<Value>, Error> {
        match self {
            Self::Server(node) => node.call(calls).await,
            Self::Cluster(cluster) => all_or_error(cluster.call_each(&calls).await),
        }
    }

    /// As [`call`](Self::call), but with a result per call. If there are fewer results than
    /// calls, the last one is an error that applies to the missing ones, too.
    pub(crate) async fn call_each(
        &self,
        calls: Vec<ScriptCommand>,
    ) -> Vec<Result<Value, Error>> {
        match self {
            Self::Server(node) => match node.call(calls).await {
                Ok(replies) => replies.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error)],
            },
            Self::Cluster(cluster) => cluster.call_each(&calls).await,
        }
    }

    /// Sends one command that is not a script, with a Redis key of this partition.
    pub(crate) async fn send(
        &self,
        partition: usize,
        command: Cmd,
    ) -> Result<Value, Error> {
        match self {
            Self::Server(node) => node.send(command).await,
            Self::Cluster(cluster) => cluster.send(partition, command).await,
        }
    }

    /// Sends one command without a Redis key to any server.
    pub(crate) async fn send_to_any(&self, command: Cmd) -> Result<Value, Error> {
        match self {
            Self::Server(node) => node.send(command).await,
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

    /// Opens another connection to a node, for commands that block for up to `blocking`.
    pub(crate) async fn connect(
        &self,
        node: &Arc<Node>,
        blocking: Duration,
    ) -> Result<MultiplexedConnection, Error> {
        let connected = node.connect(blocking).await;
        if let (Err(_), Self::Cluster(cluster)) = (&connected, self) {
            cluster.forget(node);
        }
        connected
    }

    /// Converts the error of a blocking command, which changes nothing if it fails. Returns
    /// `None` if the command must be sent to another node.
    pub(crate) fn blocking_error(
        &self,
        partition: usize,
        node: &Arc<Node>,
        error: RedisError,
    ) -> Option<Error> {
        if let Self::Cluster(cluster) = self {
            if breaks_connection(&error) {
                cluster.forget(node);
            } else if cluster.redirect(partition, node, &error) {
                return None;
            }
        }
        let error = store_error(node.name(), error, Stage::Calling);
        if error.kind() != ErrorKind::Unknown {
            return Some(error);
        }
        let text = format!("{}: the connection was lost", node.name());
        Some(Error::new(ErrorKind::Unavailable, text).because(error))
    }
}

/// Returns all replies, or the first error. The error says that nothing was executed only if
/// that is true for every call.
fn all_or_error(results: Vec<Result<Value, Error>>) -> Result<Vec<Value>, Error> {
    let may_be_executed = |result: &Result<Value, Error>| match result {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::Unknown,
    };
    let any_executed = results.iter().any(may_be_executed);
    let results: Result<_, Error> = results.into_iter().collect();
    results.map_err(|error| if any_executed { in_part(error) } else { error })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind_of(results: Vec<Result<Value, Error>>) -> ErrorKind {
        all_or_error(results).unwrap_err().kind()
    }

    /// A moved slot hid that another node had not answered. Its finishes, which may have been
    /// executed, were repeated and then reported as lost leases.
    #[test]
    fn an_error_is_unknown_if_any_node_may_have_executed_its_call() {
        let refused = || Err(Error::new(ErrorKind::Unavailable, "not now"));
        let silent = || Err(Error::new(ErrorKind::Unknown, "no answer"));
        assert_eq!(kind_of(vec![refused(), refused()]), ErrorKind::Unavailable);
        assert_eq!(kind_of(vec![refused(), silent()]), ErrorKind::Unknown);
        assert_eq!(kind_of(vec![silent(), refused()]), ErrorKind::Unknown);
        assert_eq!(kind_of(vec![refused(), Ok(Value::Nil)]), ErrorKind::Unknown);
    }
}
