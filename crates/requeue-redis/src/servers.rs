//! Where the partitions of a queue are: on one server, or in a cluster.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};
use requeue_store::{Error, ErrorKind};

use crate::cluster::{Answered, Cluster};
use crate::fault::{Stage, breaks_connection, fault};
use crate::link::{Call, Link};

#[derive(Debug)]
pub(crate) enum Servers {
    One(Arc<Link>),
    Many(Cluster),
}

impl Servers {
    /// What people are told, without a password.
    pub(crate) fn place(&self) -> &str {
        match self {
            Self::One(link) => link.place(),
            Self::Many(cluster) => cluster.place(),
        }
    }

    /// Calls scripts, in each partition one after the other, and gives their answers in the
    /// order of the calls.
    pub(crate) async fn call(&self, calls: Vec<Call>) -> Result<Vec<Value>, Error> {
        let cluster = match self {
            Self::One(link) => return link.call(calls).await,
            Self::Many(cluster) => cluster,
        };
        together(cluster.call_each(&calls).await)
    }

    /// As [`call`](Self::call), but nodes may fail by themselves. If there are fewer
    /// answers than calls, the last is an error that is about the rest, too.
    pub(crate) async fn call_each(&self, calls: Vec<Call>) -> Vec<Answered> {
        match self {
            Self::One(link) => match link.call(calls).await {
                Ok(values) => values.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error)],
            },
            Self::Many(cluster) => cluster.call_each(&calls).await,
        }
    }

    /// Sends one command that is no script and has a key of this partition.
    pub(crate) async fn ask(&self, partition: usize, command: Cmd) -> Answered {
        match self {
            Self::One(link) => link.ask(command).await,
            Self::Many(cluster) => cluster.ask(partition, command).await,
        }
    }

    /// Sends one command that has no key, to any server.
    pub(crate) async fn ask_any(&self, command: Cmd) -> Answered {
        match self {
            Self::One(link) => link.ask(command).await,
            Self::Many(cluster) => cluster.ask_any(&command).await,
        }
    }

    /// The server that has a partition, as far as is known.
    pub(crate) fn home(&self, partition: usize) -> Arc<Link> {
        match self {
            Self::One(link) => Arc::clone(link),
            Self::Many(cluster) => cluster.home(partition),
        }
    }

    /// A connection of its own to a server, on which an answer may take up to `patience`
    /// longer.
    pub(crate) async fn connect(
        &self,
        node: &Arc<Link>,
        patience: Duration,
    ) -> Result<MultiplexedConnection, Error> {
        let connected = node.connect(patience).await;
        if let (Err(_), Self::Many(cluster)) = (&connected, self) {
            cluster.forget(node);
        }
        connected
    }

    /// What the failure of a command means that changes nothing: `None`, if it has to be
    /// sent to another node, which is known now.
    pub(crate) fn lost(
        &self,
        partition: usize,
        node: &Arc<Link>,
        error: RedisError,
    ) -> Option<Error> {
        if let Self::Many(cluster) = self {
            if breaks_connection(&error) {
                cluster.forget(node);
            } else if cluster.learn(partition, node, &error) {
                return None;
            }
        }
        let error = fault(node.place(), error, Stage::Calling);
        if error.kind() != ErrorKind::Unknown {
            return Some(error);
        }
        let text = format!("{}: the connection was lost", node.place());
        Some(Error::new(ErrorKind::Unavailable, text).because(error))
    }
}

/// The answers of several nodes, or the first error. It says that nothing was carried out
/// only if that goes for all of them.
fn together(answers: Vec<Answered>) -> Result<Vec<Value>, Error> {
    let may_be_done = |answer: &Answered| match answer {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::Unknown,
    };
    let in_part = answers.iter().any(may_be_done);
    let answers: Result<_, Error> = answers.into_iter().collect();
    answers.map_err(|error| if in_part { error.in_part() } else { error })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind_of(answers: Vec<Answered>) -> ErrorKind {
        together(answers).unwrap_err().kind()
    }

    /// A slot that moved hid that another node had not answered: ends that it may have
    /// carried out were repeated, and then told to be those of lost leases.
    #[test]
    fn nothing_was_done_only_if_no_node_may_have_done_anything() {
        let refused = || Err(Error::new(ErrorKind::Unavailable, "not now"));
        let silent = || Err(Error::new(ErrorKind::Unknown, "no answer"));
        assert_eq!(kind_of(vec![refused(), refused()]), ErrorKind::Unavailable);
        assert_eq!(kind_of(vec![refused(), silent()]), ErrorKind::Unknown);
        assert_eq!(kind_of(vec![silent(), refused()]), ErrorKind::Unknown);
        assert_eq!(kind_of(vec![refused(), Ok(Value::Nil)]), ErrorKind::Unknown);
    }
}
