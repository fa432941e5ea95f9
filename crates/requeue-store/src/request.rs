//! What a store is asked for.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use requeue::Finish;

use crate::moment::micros_of;
use crate::{Error, ErrorKind, Key};

/// Who holds leases: one process, or one handle of a queue in it.
///
/// People read it in `requeue status`, so it says where the worker is, and it must be
/// different for each.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(Arc<str>);

impl Owner {
    /// An owner of this name. No store can keep an empty one, or one with a zero character:
    /// those become `?`.
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

    /// Its name.
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

/// The number of one grant of one key: the fencing token.
///
/// Of two grants of a key, the later one has the greater token, also after an engine has
/// lost its last writes. Give it to whatever the work changes, and have that refuse a
/// smaller one: then a worker that stalled past its lease cannot undo the work of the
/// next.
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
    /// When it is to be ready.
    pub when: When,
    /// How important it is: a greater number goes first, 0 is usual.
    pub priority: i8,
    /// How long a key that is dead waits after it is added again. It then starts afresh.
    pub revive_after: Duration,
}

impl Add {
    /// An add of usual priority. A key that is dead then waits for as long as the default
    /// [`Backoff`] lets any wait.
    pub fn new(key: Key, when: When) -> Self {
        Self { key, when, priority: 0, revive_after: Backoff::default().max }
    }

    /// The same with another priority, if a store can keep it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`], unless it is from -128 to 127.
    pub fn with_priority(self, priority: i32) -> Result<Self, Error> {
        let priority = i8::try_from(priority).map_err(|_| {
            let text = format!("the priority {priority} is not from -128 to 127");
            Error::new(ErrorKind::Invalid, text)
        })?;
        Ok(Self { priority, ..self })
    }
}

/// When an added key is to be ready.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum When {
    /// Now.
    Now,
    /// Not before this much time has passed on the engine's clock. The earliest of several
    /// wins. Nothing is the same as [`When::Now`].
    After(Duration),
    /// When the backoff says, which counts one more failure of the key.
    RateLimited(Backoff),
}

/// How long a key waits after a failure: for itself, and for its share of a rate that the
/// whole queue has.
///
/// The store keeps the numbers, the failures of each key and the level of the bucket; the
/// parameters come with each call. The delay of a key with `n` failures before this one is
/// `base` doubled `n` times, at most `max`, or what the bucket says, if that is longer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// The delay after the first failure.
    pub base: Duration,
    /// The longest delay of a key for itself.
    pub max: Duration,
    /// The rate of all rate-limited adds and retries of the queue together.
    pub rate: Option<Rate>,
}

/// A rate that a whole queue shares: the bucket of client-go's default limiter, kept as
/// one number, the theoretical arrival time of GCRA.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// The time between two events once the burst is used up: at least a microsecond.
    pub interval: Duration,
    /// How many may come at once.
    pub burst: NonZeroU32,
}

impl Backoff {
    /// The delay that a key has earned for itself after `failures` earlier ones.
    pub fn delay(&self, failures: u32) -> Duration {
        let base = micros_of(self.base);
        let delay =
            1_u64.checked_shl(failures).and_then(|factor| base.checked_mul(factor));
        let longest = micros_of(self.max);
        Duration::from_micros(delay.map_or(longest, |delay| delay.min(longest)))
    }
}

/// client-go's defaults for one key, 5 ms doubling to 1000 s, and no shared rate.
impl Default for Backoff {
    fn default() -> Self {
        Self {
            base: Duration::from_millis(5),
            max: Duration::from_secs(1000),
            rate: None,
        }
    }
}

/// A wish for keys to work on.
#[derive(Clone, Debug)]
pub struct LeaseRequest {
    /// Who asks.
    pub owner: Owner,
    /// The most keys that are wanted.
    pub max: usize,
    /// How long the leases last if they are not extended.
    pub lease: Duration,
    /// Where a key goes to the dead instead of being ready again, when its lease runs out:
    /// after this many grants without an end. `None` tries for ever.
    pub max_deliveries: Option<NonZeroU32>,
}

/// A lease that somebody holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    /// The key.
    pub key: Key,
    /// The token of its grant.
    pub token: Token,
}

/// The end of one lease: what [`Store::finish`](crate::Store::finish) is asked for.
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
    /// The lease that ends.
    pub hold: Hold,
    /// How it ends.
    pub finish: Finish,
    /// Chooses the delay of [`Finish::Retry`]; unused otherwise.
    pub backoff: Backoff,
    /// What people read about a failed or dead key. Used by `Retry`, `RetryAfter` and
    /// `GiveUp`.
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

/// Which dead keys are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Which {
    /// Every one.
    All,
    /// Those of these that are dead.
    Keys(Vec<Key>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_its_longest_delay_and_never_overflows() {
        let backoff = Backoff::default();
        let millis = |failures| backoff.delay(failures).as_millis();
        assert_eq!((millis(0), millis(1), millis(10)), (5, 10, 5120));
        for failures in [18, 63, 64, u32::MAX] {
            assert_eq!(backoff.delay(failures), Duration::from_secs(1000));
        }
    }
}
