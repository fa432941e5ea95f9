//! Limits that share what others leave.

mod tree;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::error::{InvalidShare, ReserveError, WaitError};
use super::limit::Limit;
use super::moment::{Moment, Timeline, duration};
use crate::clock::{AnyClock, Clock};
use tree::Tree;

/// A limiter in a tree: it has a rate of its own and may borrow what others leave.
///
/// The root has a limit and a burst for all together. Each [`child`](Self::child) is
/// guaranteed a part of its parent's, and has more than that as long as others leave
/// theirs: what a child does not use spills over to its parent, from which the other
/// children borrow. A ceiling bounds how much a child can have by borrowing. This is what
/// HTB, the hierarchical token bucket of Linux, does for packets.
///
/// - The whole tree never lets through more than the root's burst and limit, exactly.
/// - A child always has its guaranteed limit and burst, whatever the others do.
/// - A child never has more than its ceiling.
///
/// A value of this type is one limiter of the tree, the root or a child; clones are the
/// same limiter. Guarantees of children are taken from their parent's, so they cannot be
/// promised twice, and what is not promised to a child is there to be borrowed at once.
/// What spills over is kept in the part of a parent's burst that no child was promised:
/// leave it at least one token, or there is nothing to borrow from. A child can be added at
/// any time, and lives as long as the tree.
///
/// Each call takes one lock and looks at every limiter of the tree: meant for tens of
/// tenants, not for thousands ([`Keyed`](super::Keyed) is for those). Rates are counted in
/// billionths of a token a second, and [`Limit::INF`] as 2^64 tokens a second.
///
/// # Examples
///
/// ```
/// use requeue::rate::{Hierarchy, Limit, Share};
///
/// let per_second = Limit::per_second;
/// let all = Hierarchy::new(per_second(10.0), 20);
/// let web = all.child(Share::new(per_second(6.0), 6))?;
/// let batch = all.child(Share::new(per_second(4.0), 4).ceil(per_second(8.0), 8))?;
///
/// assert!(batch.allow_n(8)); // four of its own, and four borrowed
/// assert!(!batch.allow()); // more are there, but its ceiling is reached
/// assert!(web.allow_n(12)); // six of its own, and the rest
/// assert!(!web.allow());
/// # Ok::<(), requeue::rate::InvalidShare>(())
/// ```
#[doc(alias = "HTB")]
#[derive(Clone)]
pub struct Hierarchy {
    shared: Arc<Shared>,
    node: usize,
}

struct Shared {
    clock: AnyClock,
    timeline: Timeline,
    state: Mutex<State>,
}

struct State {
    tree: Tree,
    /// The time as of which the tree stands. It never goes back.
    at: Moment,
}

/// What a child of a [`Hierarchy`] is promised, and what it may have at the most.
///
/// # Examples
///
/// ```
/// use requeue::rate::{Limit, Share};
///
/// // Guaranteed 10 a second; up to 100 a second if others leave that much.
/// let share = Share::new(Limit::per_second(10.0), 5).ceil(Limit::per_second(100.0), 20);
/// // Nothing guaranteed: only what others leave.
/// let rest = Share::new(Limit::ZERO, 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "a share is for `Hierarchy::child`"]
pub struct Share {
    limit: Limit,
    burst: u32,
    ceil: Option<(Limit, u32)>,
}

impl Share {
    /// Guarantees `limit` tokens a second, and `burst` of them at once; without a ceiling.
    #[doc(alias = "rate")]
    pub fn new(limit: Limit, burst: u32) -> Self {
        Self { limit, burst, ceil: None }
    }

    /// Lets no more through than `limit` tokens a second and `burst` of them at once, its
    /// own and borrowed ones together.
    pub fn ceil(mut self, limit: Limit, burst: u32) -> Self {
        self.ceil = Some((limit, burst));
        self
    }

    /// Returns an error if the ceiling is below the guarantee.
    fn check_ceil(&self) -> Result<(), InvalidShare> {
        match self.ceil {
            Some((ceil, _)) if ceil < self.limit => {
                Err(InvalidShare::CeilBelowLimit { ceil, limit: self.limit })
            }
            Some((_, ceil)) if ceil < self.burst => {
                Err(InvalidShare::CeilBelowBurst { ceil, burst: self.burst })
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl Hierarchy {
    /// Makes the root of a tree, full: `burst` events may happen at once, then `limit` a
    /// second.
    pub fn new(limit: Limit, burst: u32) -> Self {
        Self::on(AnyClock::System, Tree::new(limit, burst))
    }

    /// Makes a root that asks `clock` for the time.
    pub fn with_clock(limit: Limit, burst: u32, clock: impl Clock) -> Self {
        Self::on(AnyClock::new(clock), Tree::new(limit, burst))
    }

    fn on(clock: AnyClock, tree: Tree) -> Self {
        let timeline = Timeline::from(clock.now());
        let state = Mutex::new(State { tree, at: Moment::START });
        Self { shared: Arc::new(Shared { clock, timeline, state }), node: 0 }
    }

    /// Adds a limiter below this one.
    ///
    /// It starts with as many of its tokens as this one has left.
    ///
    /// # Errors
    ///
    /// [`InvalidShare`] if this limiter does not have that much left to promise, or if the
    /// limit or the burst of the ceiling is below the guaranteed one. The tree is then
    /// unchanged.
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue::rate::{Hierarchy, InvalidShare, Limit, Share};
    ///
    /// let all = Hierarchy::new(Limit::per_second(10.0), 10);
    /// let first = all.child(Share::new(Limit::per_second(7.0), 5))?;
    /// let refused = all.child(Share::new(Limit::per_second(7.0), 5)).unwrap_err();
    /// assert_eq!(refused.to_string(), "asked for 7/s of a limit of which 3/s is left");
    /// let below_first = first.child(Share::new(Limit::per_second(7.0), 5))?;
    /// # Ok::<(), InvalidShare>(())
    /// ```
    pub fn child(&self, share: Share) -> Result<Self, InvalidShare> {
        let now = self.now();
        let mut state = self.lock();
        state.pass(now);
        let node = state.tree.add(self.node, share)?;
        Ok(Self { shared: Arc::clone(&self.shared), node })
    }

    /// Takes a token, its own or a borrowed one, if there is one, and says whether.
    pub fn allow(&self) -> bool {
        self.allow_n(1)
    }

    /// Takes `n` tokens if there are that many, and says whether.
    ///
    /// Its own first, then what is missing from the nearest ancestors that have some. All
    /// or none: a refusal changes nothing.
    pub fn allow_n(&self, n: u32) -> bool {
        let now = self.now();
        let mut state = self.lock();
        state.pass(now);
        state.tree.take(self.node, n)
    }

    /// How long until a token can be had, if nobody else takes any meanwhile.
    ///
    /// # Errors
    ///
    /// As [`peek_n`](Self::peek_n).
    pub fn peek(&self) -> Result<Duration, ReserveError> {
        self.peek_n(1)
    }

    /// How long until `n` tokens can be had, if nobody else takes any meanwhile.
    ///
    /// # Errors
    ///
    /// [`ReserveError::ExceedsBurst`] if `n` is more than this limiter can ever have at
    /// once, [`ReserveError::Never`] if the tokens never come.
    pub fn peek_n(&self, n: u32) -> Result<Duration, ReserveError> {
        let now = self.now();
        let mut state = self.lock();
        let at = state.pass(now);
        let ready = state.ready(self.node, n)?;
        Ok(duration(ready.since(now.min(at))))
    }

    /// How many whole tokens can be had now, its own and borrowed ones.
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue::rate::{Hierarchy, Limit, Share};
    ///
    /// let all = Hierarchy::new(Limit::ZERO, 10);
    /// let child = all.child(Share::new(Limit::ZERO, 4))?;
    /// assert_eq!((child.available(), all.available()), (10, 6));
    /// assert!(child.allow_n(5)); // four of its own, one borrowed
    /// assert_eq!((child.available(), all.available()), (5, 5));
    /// # Ok::<(), requeue::rate::InvalidShare>(())
    /// ```
    pub fn available(&self) -> u32 {
        let now = self.now();
        let mut state = self.lock();
        state.pass(now);
        state.tree.tokens(self.node)
    }

    /// Waits until a token can be had, and takes it.
    ///
    /// Waiters are served in no particular order: who finds a token takes it.
    ///
    /// # Cancel safety
    ///
    /// Nothing is taken before the future is ready.
    ///
    /// # Errors
    ///
    /// As [`wait_n`](Self::wait_n).
    pub async fn wait(&self) -> Result<(), WaitError> {
        self.wait_n(1).await
    }

    /// Waits until `n` tokens can be had, and takes them.
    ///
    /// # Cancel safety
    ///
    /// Nothing is taken before the future is ready.
    ///
    /// # Errors
    ///
    /// At once: [`WaitError::ExceedsBurst`] if `n` is more than this limiter can ever have
    /// at once, [`WaitError::Never`] if the tokens never come.
    pub async fn wait_n(&self, n: u32) -> Result<(), WaitError> {
        while let Some(until) = self.take_or_when(n)? {
            self.shared.clock.timer(until).await;
        }
        Ok(())
    }

    /// Blocks this thread until a token can be had, and takes it.
    ///
    /// # Errors
    ///
    /// As [`wait_n`](Self::wait_n).
    pub fn wait_blocking(&self) -> Result<(), WaitError> {
        self.wait_n_blocking(1)
    }

    /// Blocks this thread until `n` tokens can be had, and takes them.
    ///
    /// # Errors
    ///
    /// As [`wait_n`](Self::wait_n).
    pub fn wait_n_blocking(&self, n: u32) -> Result<(), WaitError> {
        while let Some(until) = self.take_or_when(n)? {
            self.shared.clock.sleep_until(until);
        }
        Ok(())
    }

    /// Takes the tokens, or says when to ask again.
    fn take_or_when(&self, n: u32) -> Result<Option<Instant>, WaitError> {
        let now = self.now();
        let mut state = self.lock();
        state.pass(now);
        if state.tree.take(self.node, n) {
            return Ok(None);
        }
        let ready = state.ready(self.node, n)?;
        Ok(Some(self.shared.timeline.instant(ready)))
    }

    fn now(&self) -> Moment {
        self.shared.timeline.moment(self.shared.clock.now())
    }

    /// Under this lock runs no user code.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Lets time pass up to `now`, and gives the time that counts.
    fn pass(&mut self, now: Moment) -> Moment {
        if now > self.at {
            self.tree.advance(now.since(self.at));
            self.at = now;
        }
        self.at
    }

    /// When `node` can have `n` tokens.
    fn ready(&self, node: usize, n: u32) -> Result<Moment, ReserveError> {
        let burst = self.tree.most(node);
        if n > burst {
            return Err(ReserveError::ExceedsBurst { asked: n, burst });
        }
        let wait = self.tree.wait(node, n).ok_or(ReserveError::Never { asked: n })?;
        Ok(self.at.plus(wait))
    }
}

impl fmt::Debug for Hierarchy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hierarchy")
            .field("node", &self.node)
            .field("available", &self.available())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
