//! Limits that share what others leave.
//!
//! # Waiting
//!
//! The waiters of one node line up; the lines of different nodes are independent. The first
//! in each line sleeps until its tokens would be available, takes them if they still are,
//! and sleeps again if another node has borrowed them. It takes nothing before that, so a
//! waiter that cannot be served holds up its own node and no other.
//!
//! No clock and no waker is called with the lock held.

mod tree;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::bucket::{Ask, At, Patience, Refusal};
use super::error::{InvalidShare, ReserveError, WaitError};
use super::limit::Limit;
use super::limiter::refused;
use super::line::{Held, Line, Look, Ticket};
use super::moment::{FOREVER, Moment, Timeline, duration};
use super::waiting::{Host, Waiting};
use crate::clock::{AnyClock, Clock};
use crate::wake::{Wake, Wakes};
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
    /// The waiters of each node that has some.
    lines: BTreeMap<usize, Line<()>>,
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
        let state = State { tree, at: Moment::START, lines: BTreeMap::new() };
        let state = Mutex::new(state);
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
    /// or none: a refusal changes nothing. Refused while callers of the same limiter wait.
    pub fn allow_n(&self, n: u32) -> bool {
        let now = self.now();
        let mut state = self.lock();
        state.pass(now);
        !state.lines.contains_key(&self.node) && state.tree.take(self.node, n)
    }

    /// Returns how long a token takes to come, if no other caller takes any meanwhile.
    ///
    /// # Errors
    ///
    /// As [`peek_n`](Self::peek_n).
    pub fn peek(&self) -> Result<Duration, ReserveError> {
        self.peek_n(1)
    }

    /// Returns how long `n` tokens take to come, if no other caller takes any meanwhile.
    ///
    /// # Errors
    ///
    /// [`ReserveError::ExceedsBurst`] if `n` is more than this limiter can ever have at
    /// once, [`ReserveError::Never`] if the tokens never come.
    pub fn peek_n(&self, n: u32) -> Result<Duration, ReserveError> {
        let now = self.now();
        let mut state = self.lock();
        let at = state.pass(now);
        let ready = state.ready(self.node, n).map_err(|refusal| refused(refusal, n))?;
        Ok(duration(ready.since(now.min(at))))
    }

    /// Returns how many whole tokens are available now, its own and borrowed ones.
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

    /// Waits for a token, its own or a borrowed one, and takes it.
    ///
    /// Callers of one limiter line up in the order in which their futures are first polled.
    /// Different limiters of a tree compete for tokens that can be borrowed: a request for
    /// several may be overtaken by smaller ones of other limiters until its own limiter has
    /// gained them.
    ///
    /// # Cancel safety
    ///
    /// Nothing is taken before the future is ready. Dropping it leaves the line.
    ///
    /// # Errors
    ///
    /// As [`wait_n`](Self::wait_n).
    pub async fn wait(&self) -> Result<(), WaitError> {
        self.wait_n(1).await
    }

    /// Waits for `n` tokens and takes them.
    ///
    /// # Cancel safety
    ///
    /// As [`wait`](Self::wait).
    ///
    /// # Errors
    ///
    /// [`WaitError::ExceedsBurst`] if `n` is more than this limiter can ever have at once,
    /// and [`WaitError::Never`] if the tokens never come. Both are returned at once, or
    /// later if a new child has taken over that much of the burst or limit.
    pub async fn wait_n(&self, n: u32) -> Result<(), WaitError> {
        let waited = Waiting::new(self, self.ask(n)).await;
        waited.map(drop).map_err(|refusal| refused(refusal, n).into())
    }

    /// Blocks this thread until a token is available, and takes it.
    ///
    /// # Errors
    ///
    /// As [`wait_n`](Self::wait_n).
    pub fn wait_blocking(&self) -> Result<(), WaitError> {
        self.wait_n_blocking(1)
    }

    /// Blocks this thread until `n` tokens are available, and takes them.
    ///
    /// # Errors
    ///
    /// As [`wait_n`](Self::wait_n).
    pub fn wait_n_blocking(&self, n: u32) -> Result<(), WaitError> {
        let waited = Waiting::new(self, self.ask(n)).block();
        waited.map(drop).map_err(|refusal| refused(refusal, n).into())
    }

    fn ask(&self, n: u32) -> Ask {
        Ask { at: At::Now(self.now()), n, patience: Patience::UpTo(FOREVER) }
    }

    fn now(&self) -> Moment {
        self.shared.timeline.moment(self.shared.clock.now())
    }

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
    fn ready(&self, node: usize, n: u32) -> Result<Moment, Refusal> {
        let burst = self.tree.most(node);
        if n > burst {
            return Err(Refusal::ExceedsBurst(burst));
        }
        let wait = self.tree.wait(node, n).ok_or(Refusal::Never)?;
        Ok(self.at.plus(wait))
    }

    /// Takes `n` tokens for `node`, or returns when they would be available.
    fn take(&mut self, node: usize, n: u32) -> Result<Result<Held<()>, Moment>, Refusal> {
        if self.tree.take(node, n) {
            return Ok(Ok(Held { ready: self.at, claim: () }));
        }
        self.ready(node, n).map(Err)
    }

    /// Answers a waiter that looks at the line of `node`.
    fn answer(
        &mut self,
        (node, ticket): (usize, Ticket),
        ask: Ask,
        wake: Wake,
    ) -> (Look<()>, Wakes) {
        let line = self.lines.get_mut(&node).expect("a waiter has a line");
        if !line.is_first(ticket) {
            return line.rest(ticket, Moment::END, wake);
        }
        let answer = match self.take(node, ask.n) {
            Ok(Ok(held)) => Ok(held),
            Ok(Err(until)) => {
                let line = self.lines.get_mut(&node).expect("as above");
                return line.rest(ticket, until, wake);
            }
            Err(refusal) => Err(refusal),
        };
        let mut wakes = self.leave(node, ticket);
        wakes.discard(Some(wake));
        (Look::Done(answer), wakes)
    }

    /// Takes a waiter out of the line of `node`, and wakes the next one.
    fn leave(&mut self, node: usize, ticket: Ticket) -> Wakes {
        let Some(line) = self.lines.get_mut(&node) else { return Wakes::default() };
        let wakes = line.step_aside(ticket);
        if line.is_unused() {
            self.lines.remove(&node);
        }
        wakes
    }
}

impl Host for Hierarchy {
    type Claim = ();

    fn clock(&self) -> &AnyClock {
        &self.shared.clock
    }

    fn timeline(&self) -> Timeline {
        self.shared.timeline
    }

    fn join(&self, ask: Ask, wake: Wake) -> (Look<()>, Wakes) {
        let mut state = self.lock();
        state.pass(ask.at.given());
        if let Err(refusal) = state.ready(self.node, ask.n) {
            let mut wakes = Wakes::default();
            wakes.discard(Some(wake));
            return (Look::Done(Err(refusal)), wakes);
        }
        let line = state.lines.entry(self.node).or_insert_with(Line::new);
        let ticket = line.push(ask, Moment::END);
        state.answer((self.node, ticket), ask, wake)
    }

    fn look(&self, ticket: Ticket, now: Moment, wake: Wake) -> (Look<()>, Wakes) {
        let mut state = self.lock();
        state.pass(now);
        let ask = state.lines[&self.node].ask(ticket);
        state.answer((self.node, ticket), ask, wake)
    }

    fn leave(&self, ticket: Ticket, _now: Moment) -> Wakes {
        self.lock().leave(self.node, ticket)
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
