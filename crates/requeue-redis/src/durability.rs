//! Waiting until replicas or disks have an add.

use std::time::Duration;

use redis::{Cmd, Value};
use requeue_store::{Error, ErrorKind};

use crate::error::unexpected_reply;

/// What an add waits for after the server has executed it.
///
/// Other calls never wait. If one of them is lost in a failover, a key is at worst processed
/// once more; only a lost add is a run that never happens.
///
/// An add without enough confirmations fails with [`ErrorKind::Unknown`]: it was executed,
/// but may be lost. A [`SharedQueue`](requeue_store::SharedQueue) repeats it. Confirmations
/// make a loss less likely, but Redis does not guarantee that a confirmed write survives a
/// failover: a replica that does not have it may be promoted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// Waits for nothing: an add is as durable as the settings of the server make it.
    #[default]
    Server,
    /// Waits until this many replicas have received the add, with `WAIT`.
    Replicas {
        /// The number of replicas.
        count: u32,
        /// How long to wait for them.
        within: Duration,
    },
    /// Waits until the server and this many replicas have written the add to their disks,
    /// with `WAITAOF`. Needs Redis 7.2 or Valkey, and `appendonly yes`.
    Disk {
        /// The number of replicas; may be zero.
        replicas: u32,
        /// How long to wait for the disks.
        within: Duration,
    },
}

/// What [`Durability`] means for one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Confirmation {
    replicas: u32,
    is_on_disk: bool,
    pub(crate) within: Duration,
}

impl Durability {
    pub(crate) fn confirmation(self) -> Option<Confirmation> {
        match self {
            Self::Server => None,
            Self::Replicas { count, within } => {
                Some(Confirmation { replicas: count, is_on_disk: false, within })
            }
            Self::Disk { replicas, within } => {
                Some(Confirmation { replicas, is_on_disk: true, within })
            }
        }
    }
}

impl Confirmation {
    pub(crate) fn command(self) -> Cmd {
        // Zero would wait forever.
        let millis = self.within.as_millis().clamp(1, i32::MAX as u128);
        let millis = u64::try_from(millis).unwrap_or(u64::MAX);
        let mut command = if self.is_on_disk {
            let mut command = redis::cmd("WAITAOF");
            command.arg(1);
            command
        } else {
            redis::cmd("WAIT")
        };
        command.arg(self.replicas).arg(millis);
        command
    }

    /// Reads the reply: the number of replicas, for disks after that of the server.
    pub(crate) fn check(self, reply: &Value) -> Result<(), Error> {
        let numbers = reply.as_sequence().unwrap_or(std::slice::from_ref(reply));
        let (local, replicas) = match (self.is_on_disk, numbers) {
            (true, [Value::Int(local), Value::Int(replicas)]) => (*local, *replicas),
            (false, [Value::Int(replicas)]) => (1, *replicas),
            _ => return Err(unexpected_reply("replicas")),
        };
        if local >= 1 && replicas >= i64::from(self.replicas) {
            return Ok(());
        }
        let server = if local >= 1 { "" } else { "the server has not written it, and " };
        let text = format!(
            "the add was executed, but after {:?} {server}{replicas} of {} replicas have \
             confirmed it",
            self.within, self.replicas
        );
        Err(Error::new(ErrorKind::Unknown, text))
    }
}
