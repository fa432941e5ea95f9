//! Requests to a store.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use requeue::Finish;

use crate::engine_time::micros_of;
use crate::{Error, ErrorKind, Key};

/// The holder of leases: one [`SharedQueue`](crate::SharedQueue) and its clones.
///
/// Its name is shown to people, for example by `requeue status`. It should say where the
/// worker runs, and it must be unique.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(Arc<str>);

impl Owner {
    /// Creates an owner with this name.
    ///
    /// An empty name becomes `?`, and so does each zero character, because not every store
    /// can keep them.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        let name = name.into();
        if name.is_empty() {
            return Self("?".into());
        }
        if name.contains('\0') {
            return Self(name.replace('\0', "?").into());
        }
        Self(name)
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &self.0)
    }
}

/// The fencing token of one lease.
///
/// Each lease of a key has a greater token than the leases before it; rule 5 of
/// [`Store`](crate::Store) says what holds if the engine lost its last writes. Pass the token to the systems that the work changes and
/// let them refuse smaller ones: then a worker that stalled past its lease cannot overwrite
/// the work of the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One key to add.
#[derive(Clone, Debug, PartialEq)]
pub struct Add {
    /// The key.
    pub key: Key,
    /// When the key becomes ready.
    pub when: When,
    /// The priority. Greater numbers are leased first; the default is 0.
    pub priority: i8,
    /// The shortest delay if the key is dead. The add revives it without failures.
    pub revive_after: Duration,
}

impl Add {
    /// Creates an add with priority 0. A dead key is delayed for as long as the default
    /// [`Backoff`] allows.
    pub fn new(key: Key, when: When) -> Self {
        Self { key, when, priority: 0, revive_after: Backoff::default().max }
    }

    /// Sets the priority.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the priority is not from -128 to 127.
    pub fn with_priority(self, priority: i32) -> Result<Self, Error> {
        let priority = i8::try_from(priority).map_err(|_| {
            let text = format!("the priority {priority} is not from -128 to 127");
            Error::new(ErrorKind::Invalid, text)
        })?;
        Ok(Self { priority, ..self })
    }
}

/// When an added key becomes ready.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum When {
    /// At once.
    Now,
    /// After this delay on the engine's clock. The earliest of several delays wins, and a
    /// zero delay is [`When::Now`].
    After(Duration),
    /// After the delay that the backoff chooses. Counts a failure of the key.
    RateLimited(Backoff),
}

/// How long a key is delayed after a failure.
///
/// The delay of a key with `n` earlier failures is `base` doubled `n` times, but at most
/// `max`. If the shared rate asks for a longer delay, that wins.
///
/// The store keeps the failures of each key and the state of the shared rate. The parameters
/// are part of each request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// The delay after the first failure.
    pub base: Duration,
    /// The longest delay. The shared rate may exceed it.
    pub max: Duration,
    /// The rate of all rate-limited adds and retries of the queue together.
    pub rate: Option<Rate>,
}

/// A rate that is shared by the whole queue.
///
/// This is the bucket of client-go's default limiter. A store keeps it as one number, the
/// theoretical arrival time of GCRA.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// The time between two events after the burst is used up. At least a microsecond.
    pub interval: Duration,
    /// The number of events that may happen at once.
    pub burst: NonZeroU32,
}

impl Backoff {
    /// Returns the delay of a key with this many earlier failures, without the shared rate.
    pub fn delay(&self, failures: u32) -> Duration {
        let base = micros_of(self.base);
        let delay =
            1_u64.checked_shl(failures).and_then(|factor| base.checked_mul(factor));
        let longest = micros_of(self.max);
        Duration::from_micros(delay.map_or(longest, |delay| delay.min(longest)))
    }
}

/// client-go's defaults for one key, 5 ms doubling to 1000 s, without a shared rate.
impl Default for Backoff {
    fn default() -> Self {
        Self {
            base: Duration::from_millis(5),
            max: Duration::from_secs(1000),
            rate: None,
        }
    }
}

/// A request for leases.
#[derive(Clone, Debug)]
pub struct LeaseRequest {
    /// The owner of the leases.
    pub owner: Owner,
    /// The maximum number of keys.
    pub max: usize,
    /// How long a lease lasts if it is not extended.
    pub lease: Duration,
    /// A key that has been delivered this often becomes dead when its lease expires. `None`
    /// sets no limit.
    pub max_deliveries: Option<NonZeroU32>,
}

/// A request for tokens of a shared limiter; see [`Store::take`](crate::Store::take).
#[derive(Clone, Debug, PartialEq)]
pub struct TakeRequest {
    /// The name of the limiter. Each name has its own tokens.
    pub limiter: String,
    /// The rate at which tokens become available. Users of a limiter should agree on it.
    pub rate: Rate,
    /// The number of tokens.
    pub n: u32,
    /// The longest time that the caller would wait for them.
    pub max_wait: Duration,
}

/// One held lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    /// The key.
    pub key: Key,
    /// The token of the lease.
    pub token: Token,
}

/// A request to end one lease; see [`Store::finish`](crate::Store::finish).
///
/// # Examples
///
/// ```
/// use requeue::Finish;
/// use requeue_store::{FinishRequest, Hold, Key, Token};
///
/// let hold = Hold { key: Key::new(*b"a")?, token: Token(7) };
/// let failed = FinishRequest::new(hold, Finish::Retry).with_error("connection refused");
/// assert_eq!(failed.error_text(), "connection refused");
/// # Ok::<(), requeue_store::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct FinishRequest {
    /// The lease.
    pub hold: Hold,
    /// How it ends.
    pub finish: Finish,
    /// Chooses the delay of `Retry`. Other finishes ignore it.
    pub backoff: Backoff,
    /// The error that people read about a failed or dead key. Only `Retry`, `RetryAfter` and
    /// `GiveUp` use it.
    pub error: String,
}

impl FinishRequest {
    /// The number of bytes of an error that stores keep.
    pub const MAX_ERROR_LEN: usize = 1024;

    /// Creates a request with the default [`Backoff`] and no error.
    pub fn new(hold: Hold, finish: Finish) -> Self {
        Self { hold, finish, backoff: Backoff::default(), error: String::new() }
    }

    /// Sets the error that people read.
    #[must_use]
    pub fn with_error(self, error: impl Into<String>) -> Self {
        Self { error: error.into(), ..self }
    }

    /// Returns the part of the error that a store keeps: at most
    /// [`MAX_ERROR_LEN`](Self::MAX_ERROR_LEN) bytes, cut between two characters.
    pub fn error_text(&self) -> &str {
        let fits = |end: &usize| self.error.is_char_boundary(*end);
        let end = (0..=self.error.len().min(Self::MAX_ERROR_LEN)).rev().find(fits);
        &self.error[..end.unwrap_or(0)]
    }
}

/// Selects dead keys.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Which {
    /// All dead keys.
    All,
    /// These keys, as far as they are dead.
    Keys(Vec<Key>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_its_maximum_and_never_overflows() {
        let backoff = Backoff::default();
        let millis = |failures| backoff.delay(failures).as_millis();
        assert_eq!((millis(0), millis(1), millis(10)), (5, 10, 5120));
        for failures in [18, 63, 64, u32::MAX] {
            assert_eq!(backoff.delay(failures), Duration::from_secs(1000));
        }
    }
}
