//! Waiting for the tokens of a key.

use std::borrow::Borrow;
use std::hash::Hash;
use std::time::Instant;

use super::Keyed;
use super::buckets::{BucketSource, Lookup};
use crate::clock::AnyClock;
use crate::key::ToKey;
use crate::rate::bucket::{Claim, Request};
use crate::rate::error::WaitError;
use crate::rate::line::wait::{LineOwner, WaitInLine};
use crate::rate::line::{LineStatus, Ticket, WaiterLine};
use crate::rate::moment::{Moment, Timeline};
use crate::wake::{Wake, Wakes};

impl<K: Eq + Hash> Keyed<K> {
    /// Waits for a token of `key` and takes it.
    ///
    /// Callers for one key line up in the order in which their futures are first polled.
    /// A caller that gives up costs the ones behind it nothing; see
    /// [`Limiter::wait`](crate::rate::Limiter::wait).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line. The token of the first caller goes back, and
    /// the next caller moves up.
    ///
    /// # Errors
    ///
    /// As [`wait_n`](Self::wait_n).
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue::rate::{Keyed, Limit, WaitError};
    ///
    /// # futures_executor::block_on(async {
    /// let keyed = Keyed::new(Limit::per_second(100.0), 1);
    /// for _ in 0..3 {
    ///     keyed.wait(&"key").await?;
    ///     // runs at most once in 10 ms for each key
    /// }
    /// # Ok::<(), WaitError>(())
    /// # }).unwrap();
    /// ```
    pub async fn wait<Q>(&self, key: &Q) -> Result<(), WaitError>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        self.sleep(key, 1, None).await
    }

    /// Waits for `n` tokens of `key` and takes them.
    ///
    /// # Cancel safety
    ///
    /// As [`wait`](Self::wait).
    ///
    /// # Errors
    ///
    /// [`WaitError::ExceedsBurst`] if `n` is more than the burst of `key`, and
    /// [`WaitError::Never`] if the tokens never come. A failed call takes no tokens.
    pub async fn wait_n<Q>(&self, key: &Q, n: u32) -> Result<(), WaitError>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        self.sleep(key, n, None).await
    }

    /// Waits for a token of `key`, unless it comes after `deadline`.
    ///
    /// # Cancel safety
    ///
    /// As [`wait`](Self::wait).
    ///
    /// # Errors
    ///
    /// As [`wait_n_deadline`](Self::wait_n_deadline).
    pub async fn wait_deadline<Q>(
        &self,
        key: &Q,
        deadline: Instant,
    ) -> Result<(), WaitError>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        self.sleep(key, 1, Some(deadline)).await
    }

    /// Waits for `n` tokens of `key`, unless they come after `deadline`.
    ///
    /// # Cancel safety
    ///
    /// As [`wait`](Self::wait).
    ///
    /// # Errors
    ///
    /// [`WaitError::Timeout`], at once, if the deadline has passed or the tokens come too
    /// late, counting the tokens wanted by the callers ahead. Also the errors of
    /// [`wait_n`](Self::wait_n). A failed call takes no tokens.
    pub async fn wait_n_deadline<Q>(
        &self,
        key: &Q,
        n: u32,
        deadline: Instant,
    ) -> Result<(), WaitError>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        self.sleep(key, n, Some(deadline)).await
    }

    /// Blocks this thread until a token of `key` may be used, and takes it.
    ///
    /// # Errors
    ///
    /// As [`wait_n`](Self::wait_n).
    pub fn wait_blocking<Q>(&self, key: &Q) -> Result<(), WaitError>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        self.block(key, 1, None)
    }

    /// Blocks this thread until `n` tokens of `key` may be used, and takes them.
    ///
    /// # Errors
    ///
    /// As [`wait_n`](Self::wait_n).
    pub fn wait_n_blocking<Q>(&self, key: &Q, n: u32) -> Result<(), WaitError>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        self.block(key, n, None)
    }

    /// Blocks this thread until a token of `key` may be used, unless that is after
    /// `deadline`.
    ///
    /// # Errors
    ///
    /// As [`wait_n_deadline`](Self::wait_n_deadline).
    pub fn wait_blocking_deadline<Q>(
        &self,
        key: &Q,
        deadline: Instant,
    ) -> Result<(), WaitError>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        self.block(key, 1, Some(deadline))
    }

    /// Blocks this thread until `n` tokens of `key` may be used, unless that is after
    /// `deadline`.
    ///
    /// # Errors
    ///
    /// As [`wait_n_deadline`](Self::wait_n_deadline).
    pub fn wait_n_blocking_deadline<Q>(
        &self,
        key: &Q,
        n: u32,
        deadline: Instant,
    ) -> Result<(), WaitError>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        self.block(key, n, Some(deadline))
    }

    async fn sleep<Q>(
        &self,
        key: &Q,
        n: u32,
        deadline: Option<Instant>,
    ) -> Result<(), WaitError>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        match self.line_up(key, n, deadline) {
            Some(wait) => wait.tokens().await,
            None => Ok(()),
        }
    }

    fn block<Q>(
        &self,
        key: &Q,
        n: u32,
        deadline: Option<Instant>,
    ) -> Result<(), WaitError>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        match self.line_up(key, n, deadline) {
            Some(wait) => wait.tokens_blocking(),
            None => Ok(()),
        }
    }

    /// Takes available tokens, or returns a wait for them.
    pub(in crate::rate) fn line_up<'a, Q>(
        &'a self,
        key: &'a Q,
        n: u32,
        deadline: Option<Instant>,
    ) -> Option<WaitInLine<KeyedLine<'a, K, Q>>>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        let (lookup, now) = (self.lookup(key), self.now());
        let deadline = deadline.map(|t| self.shared.timeline.moment(t));
        let request = Request::by(now, n, deadline);
        let in_time = request.deadline() >= now;
        if in_time && self.take(lookup, Request::at_once(request.at, n)).is_ok() {
            return None;
        }
        Some(WaitInLine::new(KeyedLine { keyed: self, lookup }, request))
    }
}

/// The line of one key.
pub(in crate::rate) struct KeyedLine<'a, K, Q: ?Sized> {
    keyed: &'a Keyed<K>,
    lookup: Lookup<'a, Q>,
}

impl<K, Q> KeyedLine<'_, K, Q>
where
    K: Borrow<Q> + Eq + Hash,
    Q: ToKey<K> + ?Sized,
{
    fn with_line<R>(
        &self,
        now: Moment,
        step: impl FnOnce(&mut WaiterLine<Option<Claim>>, &mut BucketSource<'_>) -> R,
    ) -> R {
        let (result, removed) = self.keyed.lock().with_line(self.lookup, now, step);
        drop(removed);
        result
    }
}

impl<K, Q> LineOwner for KeyedLine<'_, K, Q>
where
    K: Borrow<Q> + Eq + Hash,
    Q: ToKey<K> + ?Sized,
{
    type Claim = Option<Claim>;

    fn clock(&self) -> &AnyClock {
        &self.keyed.shared.clock
    }

    fn timeline(&self) -> Timeline {
        self.keyed.shared.timeline
    }

    fn join(&self, request: Request, wake: Wake) -> (LineStatus<Option<Claim>>, Wakes) {
        let now = request.at.given();
        self.with_line(now, |line, source| line.join(source, request, wake))
    }

    fn poll(
        &self,
        ticket: Ticket,
        now: Moment,
        wake: Wake,
    ) -> (LineStatus<Option<Claim>>, Wakes) {
        self.with_line(now, |line, source| line.poll(source, ticket, now, wake))
    }

    fn leave(&self, ticket: Ticket, now: Moment) -> Wakes {
        self.with_line(now, |line, source| line.leave(source, ticket, now))
    }
}
