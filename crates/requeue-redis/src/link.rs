//! A connection that all callers of a server share.
//!
//! It is opened when it is first used, and again after it was discarded.
//!
//! # Invariants
//!
//! 1. Callers without a connection share one attempt to connect. Its result goes to all of
//!    them at the same time.
//! 2. A caller that gives up in the middle of a call, or of an attempt, discards it: no reply
//!    came in time, so none may come at all. The next caller starts anew. Callers that use
//!    the discarded connection keep it until their own call ends.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use requeue_store::{Error, ErrorKind};
use tokio::sync::watch;

use crate::endpoint::Endpoint;

/// The result of an attempt; `None` while it is under way.
type Attempt = watch::Receiver<Option<Result<MultiplexedConnection, Error>>>;

#[derive(Default)]
pub(crate) struct Link {
    state: Mutex<State>,
}

/// The last attempt, and its number. `None` after it failed or was discarded.
#[derive(Default)]
struct State {
    number: u64,
    attempt: Option<Attempt>,
    /// The result of the attempt, which is cheaper to copy.
    open: Option<MultiplexedConnection>,
}

impl Link {
    /// Joins the current connection or attempt, or starts an attempt.
    pub(crate) fn join(
        self: &Arc<Self>,
        endpoint: &Arc<Endpoint>,
        timeout: Duration,
    ) -> Usage {
        let mut state = self.state();
        if let Some(connection) = state.open.clone() {
            let source = Source::Open(connection);
            return Usage {
                link: Arc::clone(self),
                number: state.number,
                source,
                is_kept: false,
            };
        }
        let attempt = state.attempt.clone().unwrap_or_else(|| {
            let (sender, attempt) = watch::channel(None);
            let endpoint = Arc::clone(endpoint);
            tokio::spawn(async move {
                // All callers may have left.
                drop(sender.send(Some(endpoint.connect(timeout).await)));
            });
            state.number += 1;
            state.attempt = Some(attempt.clone());
            attempt
        });
        let source = Source::Attempt(attempt);
        Usage { link: Arc::clone(self), number: state.number, source, is_kept: false }
    }

    fn opened(&self, number: u64, connection: &MultiplexedConnection) {
        let mut state = self.state();
        if state.number == number && state.attempt.is_some() {
            state.open = Some(connection.clone());
        }
    }

    fn discard(&self, number: u64) {
        let mut state = self.state();
        if state.number == number {
            (state.attempt, state.open) = (None, None);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One caller of a [`Link`]. Discards the connection when it is dropped, unless it was
/// [kept](Self::keep): invariant 2.
pub(crate) struct Usage {
    link: Arc<Link>,
    number: u64,
    source: Source,
    is_kept: bool,
}

enum Source {
    Open(MultiplexedConnection),
    Attempt(Attempt),
}

impl Usage {
    pub(crate) async fn connection(&mut self) -> Result<MultiplexedConnection, Error> {
        let attempt = match &mut self.source {
            Source::Open(connection) => return Ok(connection.clone()),
            Source::Attempt(attempt) => attempt,
        };
        let result = attempt.wait_for(Option::is_some).await;
        let result = result.ok().and_then(|result| result.clone());
        // Without a result, the runtime of the attempt was shut down.
        let connection = result.unwrap_or_else(|| {
            let text = "the runtime that was connecting to redis has ended";
            Err(Error::new(ErrorKind::Unavailable, text))
        })?;
        self.link.opened(self.number, &connection);
        Ok(connection)
    }

    pub(crate) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Usage {
    fn drop(&mut self) {
        if !self.is_kept {
            self.link.discard(self.number);
        }
    }
}
