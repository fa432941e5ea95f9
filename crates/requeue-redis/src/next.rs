//! Waiting for a key and leasing it, asked for at once.
//!
//! On a connection of its own, the blocking command that takes the mark is followed by the
//! script that leases. The server goes on to that as soon as there is a mark: who waits
//! hears of a key when it has it, and not a round trip before.
//!
//! # Invariants
//!
//! 1. A connection carries one such pair at a time.
//! 2. Keys that were leased for one who is gone are released.
//! 3. A mark that was taken without a lease after it makes the next lease pass it on.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, Value};
use requeue_store::{End, Ending, Error, Grant, Hold, LeaseRequest, Leased, Reply};

use crate::fault::breaks_connection;
use crate::link::{Link, pipeline};
use crate::servers::Servers;
use crate::store::RedisStore;
use crate::wait::LASTS;
use crate::work::read_leased;

/// Servers look at what blocks a few times in a second.
const LATER: Duration = Duration::from_secs(1);

/// A connection that nobody waits on.
pub(crate) type Spare = Mutex<Option<MultiplexedConnection>>;

impl RedisStore {
    /// Only one server with one partition can be asked for both at once, and no script can
    /// be told in advance what the time will be.
    pub(crate) fn leases_after_wait(&self) -> bool {
        let alone = matches!(*self.servers, Servers::One(_)) && self.partitions() == 1;
        alone && self.told_time().is_none()
    }

    pub(crate) async fn lease_after_wait(
        &self,
        request: &LeaseRequest,
        at_most: Duration,
    ) -> Result<Leased, Error> {
        let (store, request) = (self.clone(), request.clone());
        let leasing = async move { store.next_keys(&request, at_most.min(LASTS)).await };
        Next { leasing: Some(Box::pin(leasing)), store: self.clone() }.await
    }

    async fn next_keys(
        &self,
        request: &LeaseRequest,
        at_most: Duration,
    ) -> Result<Leased, Error> {
        let link = self.servers.home(0);
        let mut connection = self.spare(&link).await?;
        let commands = self.next_commands(request, at_most);
        let sent = connection.send_packed_commands(&commands, 0, commands.len()).await;
        let mut answers = sent.map_err(|error| link.fault(error))?.into_iter();
        self.keep_spare(connection);
        let (mark, leased) = (answers.next(), answers.next().unwrap_or(Value::Nil));
        match leased.extract_error() {
            Ok(value) => judge(&link, mark, read_leased(value)?),
            // Most likely the server does not know the script.
            Err(error) if !breaks_connection(&error) => {
                self.watch.put_waited(true);
                self.lease_keys(request).await
            }
            Err(error) => Err(link.fault(error)),
        }
    }

    fn next_commands(&self, request: &LeaseRequest, at_most: Duration) -> Pipeline {
        let lease = self.lease_command(request, 0, request.max);
        pipeline([self.watch.take_mark(at_most), lease].into_iter())
    }

    async fn spare(&self, link: &Link) -> Result<MultiplexedConnection, Error> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).take();
        match spare {
            Some(connection) => Ok(connection),
            None => link.connect(LASTS + LATER).await,
        }
    }

    fn keep_spare(&self, connection: MultiplexedConnection) {
        *self.spare.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection);
    }

    async fn release(&self, grants: Vec<Grant>) {
        let end = |Grant { key, token, .. }| End {
            hold: Hold { key, token },
            ending: Ending::Release,
        };
        let ends: Vec<_> = grants.into_iter().map(end).collect();
        // If that fails, their leases run out.
        drop(self.finish_leases(&ends).await);
    }
}

/// A server that will not be waited on must not be asked again at once.
fn judge(link: &Link, mark: Option<Value>, leased: Leased) -> Result<Leased, Error> {
    match mark.unwrap_or(Value::Nil).extract_error() {
        Err(error) if leased.grants.is_empty() => Err(link.fault(error)),
        Ok(_) | Err(_) => Ok(leased),
    }
}

/// What is leased for one who waits.
struct Next {
    /// Until it has come.
    leasing: Option<Reply<'static, Leased>>,
    store: RedisStore,
}

impl Future for Next {
    type Output = Result<Leased, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(leasing) = &mut self.leasing else { return Poll::Pending };
        let leased = ready!(leasing.as_mut().poll(cx));
        self.leasing = None;
        Poll::Ready(leased)
    }
}

/// Keeps invariant 2: a task waits in the stead of who has gone.
impl Drop for Next {
    fn drop(&mut self) {
        let Some(leasing) = self.leasing.take() else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let store = self.store.clone();
            runtime.spawn(async move {
                if let Ok(leased) = leasing.await {
                    store.release(leased.grants).await;
                }
            });
        }
    }
}
