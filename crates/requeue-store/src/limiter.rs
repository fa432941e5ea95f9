//! A rate limit that all users of a store share.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use requeue::{Clock, SystemClock};
use tokio::sync::Mutex;

use crate::client::outage::Outage;
use crate::race::race;
use crate::{Error, ErrorKind, Rate, Store, TakeRequest, Taken};

/// How long a wait repeats calls while the store cannot be reached.
const PATIENCE: Duration = Duration::from_secs(10);

/// One rate limit across all processes that use a store.
///
/// All limiters with the same store and name share their tokens, and should have the same
/// [`Rate`]. The store's clock counts. Use it for the rate at which runs start, or for
/// anything that a handler does, such as calls of a service.
///
/// Waiting takes no tokens in advance. In one process, waiting callers line up, and only the
/// first one asks the store. Between processes there is no order. A caller that stops
/// waiting costs no tokens, unless the store was just asked.
///
/// Clones share one line.
///
/// # Examples
///
/// At most ten calls per second, by all workers together:
///
/// ```
/// use std::num::NonZeroU32;
/// use std::time::Duration;
/// use requeue_store::{Error, MemoryStore, Rate, SharedLimiter};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let store = MemoryStore::new();
/// let burst = NonZeroU32::new(2).expect("not zero");
/// let rate = Rate { interval: Duration::from_millis(100), burst };
/// let limiter = SharedLimiter::new(store.clone(), "api", rate);
/// limiter.wait().await?; // then call the service
///
/// let elsewhere = SharedLimiter::new(store, "api", rate);
/// assert!(elsewhere.allow().await?);
/// assert!(!elsewhere.allow().await?, "the burst is used up");
/// # Ok::<(), Error>(())
/// # }).unwrap();
/// ```
pub struct SharedLimiter<S> {
    shared: Arc<Shared<S>>,
}

struct Shared<S> {
    store: S,
    name: String,
    rate: Rate,
    clock: Arc<dyn Clock>,
    /// Held by the first caller in line.
    line: Mutex<()>,
}

impl<S: Store> SharedLimiter<S> {
    /// Creates a limiter with this name on `store`.
    pub fn new(store: S, name: impl Into<String>, rate: Rate) -> Self {
        Self::with_clock(store, name, rate, SystemClock)
    }

    /// As [`new`](Self::new), with the clock that waits in this process use.
    pub fn with_clock(
        store: S,
        name: impl Into<String>,
        rate: Rate,
        clock: impl Clock,
    ) -> Self {
        let (name, clock) = (name.into(), Arc::new(clock));
        let line = Mutex::new(());
        Self { shared: Arc::new(Shared { store, name, rate, clock, line }) }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Returns the rate.
    pub fn rate(&self) -> Rate {
        self.shared.rate
    }

    /// Takes a token if one is available now. Returns whether it was.
    ///
    /// # Errors
    ///
    /// Errors of the store. If the kind is [`Unknown`](ErrorKind::Unknown), the token may
    /// have been taken.
    pub async fn allow(&self) -> Result<bool, Error> {
        self.allow_n(1).await
    }

    /// Takes `n` tokens if they are available now. Returns whether they were.
    ///
    /// # Errors
    ///
    /// As [`allow`](Self::allow), and [`Invalid`](ErrorKind::Invalid) if `n` exceeds the
    /// burst.
    pub async fn allow_n(&self, n: u32) -> Result<bool, Error> {
        Ok(self.shared.take(n).await?.is_none())
    }

    /// Waits for a token and takes it.
    ///
    /// # Errors
    ///
    /// Errors of the store: at once if a repetition cannot help, otherwise after ten
    /// seconds.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in the line. A token that was just taken is
    /// lost.
    pub async fn wait(&self) -> Result<(), Error> {
        self.wait_n(1).await
    }

    /// Waits for `n` tokens and takes them.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait), and [`Invalid`](ErrorKind::Invalid) if `n` exceeds the
    /// burst.
    ///
    /// # Cancel safety
    ///
    /// As that of [`wait`](Self::wait).
    pub async fn wait_n(&self, n: u32) -> Result<(), Error> {
        let _first = self.shared.line.lock().await;
        self.shared.take_patiently(n, None).await
    }

    /// Waits for a token until `deadline`, on the clock of this process.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait), and [`Timeout`](ErrorKind::Timeout) if no token is available
    /// in time: at once for the first in line, and at the deadline for the others. Then no
    /// token was taken.
    ///
    /// # Cancel safety
    ///
    /// As that of [`wait`](Self::wait).
    pub async fn wait_deadline(&self, deadline: Instant) -> Result<(), Error> {
        let clock = &self.shared.clock;
        let turn = race(self.shared.line.lock(), Some(clock.timer(deadline))).await;
        let Some(_first) = turn else { return Err(self.shared.too_late()) };
        self.shared.take_patiently(1, Some(deadline)).await
    }
}

impl<S: Store> Shared<S> {
    /// Takes `n` tokens. Returns `None`, or the time until they are available.
    async fn take(&self, n: u32) -> Result<Option<Duration>, Error> {
        let burst = self.rate.burst.get();
        if n > burst {
            let text = format!("{n} tokens exceed the burst of {burst}");
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let (limiter, rate) = (self.name.clone(), self.rate);
        let request = TakeRequest { limiter, rate, n, max_wait: Duration::ZERO };
        match self.store.take(&request).await? {
            Taken::Granted { .. } => Ok(None),
            Taken::Refused { retry_in } => Ok(Some(retry_in)),
        }
    }

    async fn take_patiently(
        &self,
        n: u32,
        deadline: Option<Instant>,
    ) -> Result<(), Error> {
        let (mut outage, asked) = (Outage::default(), self.clock.now());
        loop {
            let taken = self.take(n).await;
            let now = self.clock.now();
            let (pause, error) = match taken {
                Ok(None) => return Ok(()),
                Ok(Some(retry_in)) => {
                    outage = Outage::default();
                    (retry_in, None)
                }
                Err(error) if error.is_transient() => {
                    (outage.next_pause(now), Some(error))
                }
                Err(error) => return Err(error),
            };
            let next = now.checked_add(pause);
            if let Some(error) = error.filter(|_| outage.exceeds(PATIENCE, asked, next)) {
                return Err(error);
            }
            if deadline.is_some_and(|end| next.is_none_or(|next| next > end)) {
                return Err(self.too_late());
            }
            match next {
                Some(next) => self.clock.timer(next).await,
                None => std::future::pending().await,
            }
        }
    }

    fn too_late(&self) -> Error {
        let text = format!("no token of the limiter {:?} in time", self.name);
        Error::new(ErrorKind::Timeout, text)
    }
}

impl<S> Clone for SharedLimiter<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<S> fmt::Debug for SharedLimiter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedLimiter")
            .field("name", &self.shared.name)
            .field("rate", &self.shared.rate)
            .finish_non_exhaustive()
    }
}
