//! Limiters in a tree that borrow from each other.
//!
//! # Waiting
//!
//! The waiters of one node line up; the lines of different nodes are independent. The first
//! waiter in each line sleeps until its tokens are expected to be available. It takes them if
//! they still are, and sleeps again if another node has borrowed them. It takes nothing before
//! that, so a waiter that cannot be served holds up its own node and no other.
//!
//! No clock and no waker is called with the lock held.

mod share;
mod tree;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use self::share::Share;
use self::tree::Tree;
use super::bucket::{At, Refusal, Request};
use super::error::{InvalidShare, ReserveError, WaitError};
use super::limit::Limit;
use super::line::wait::{LineOwner, WaitInLine};
use super::line::{Held, LineStatus, Ticket, WaiterLine};
use super::moment::{Moment, Timeline, duration};
use crate::clock::{AnyClock, Clock};
use crate::wake::{Wake, Wakes};

/// A limiter in a tree, which can borrow unused tokens of the others.
///
/// The root has a limit and a burst for all together. Each [`child`](Self::child) is
/// guaranteed a part of its parent's limit and burst. Tokens that a child does not use spill
/// over to its parent, and the other children can borrow them. A ceiling bounds how much a
/// child can get by borrowing. This is HTB, the hierarchical token bucket of Linux, for events.
///
/// - The whole tree never exceeds the burst and limit of its root.
/// - A child always gets its guaranteed limit and burst.
/// - A child never exceeds its ceiling.
///
/// A value of this type is one limiter of the tree, the root or a child. Clones are handles of
/// the same limiter. A child can be added at any time, and lives as long as the tree.
///
/// The guarantee of a child is taken from its parent, so nothing is guaranteed twice. Tokens
/// that spill over are kept in the part of a parent's burst that is not guaranteed to any
/// child. Leave it at least one token, or there is nothing to borrow.
///
/// Each call takes one lock and visits every limiter of the tree. That is fine for tens of
/// tenants; for thousands, use [`Keyed`](super::Keyed). Rates are counted in billionths of a
/// token per second, and [`Limit::INF`] as 2^64 tokens per second.
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
/// assert!(batch.allow_n(8)); // four guaranteed, four borrowed
/// assert!(!batch.allow()); // others are left, but its ceiling is reached
/// assert!(web.allow_n(12)); // six guaranteed, and the rest
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
    state: Mutex<HierarchyState>,
}

struct HierarchyState {
    tree: Tree,
    /// The time of the tree. It never goes back.
    at: Moment,
    /// The lines of nodes with waiters.
    lines: BTreeMap<usize, WaiterLine<()>>,
}

impl Hierarchy {
    /// Creates a full root: `burst` events may happen at once, then `limit` per second.
    pub fn new(limit: Limit, burst: u32) -> Self {
        Self::on(AnyClock::System, Tree::new(limit, burst))
    }

    /// Creates a root that uses `clock`.
    pub fn with_clock(limit: Limit, burst: u32, clock: impl Clock) -> Self {
        Self::on(AnyClock::new(clock), Tree::new(limit, burst))
    }

    fn on(clock: AnyClock, tree: Tree) -> Self {
        let timeline = Timeline::from(clock.now());
        let state = HierarchyState { tree, at: Moment::START, lines: BTreeMap::new() };
        let state = Mutex::new(state);
        Self { shared: Arc::new(Shared { clock, timeline, state }), node: 0 }
    }

    /// Adds a limiter below this one.
    ///
    /// It starts with a full burst, as far as this limiter has tokens left.
    ///
    /// # Errors
    ///
    /// [`InvalidShare`] if this limiter does not have that much left to guarantee, or if the
    /// ceiling is below the guarantee. The tree is then unchanged.
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue::rate::{Hierarchy, InvalidShare, Limit, Share};
    ///
    /// let all = Hierarchy::new(Limit::per_second(10.0), 10);
    /// let first = all.child(Share::new(Limit::per_second(7.0), 5))?;
    /// let refused = all.child(Share::new(Limit::per_second(7.0), 5)).unwrap_err();
    /// assert_eq!(refused.to_string(), "asked for a limit of 7/s, but only 3/s is left");
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

    /// Takes a token, its own or a borrowed one, if one is available. Returns whether it did.
    pub fn allow(&self) -> bool {
        self.allow_n(1)
    }

    /// Takes `n` tokens if that many are available. Returns whether it did.
    ///
    /// It takes its own tokens first, and borrows the rest from the nearest ancestors. All or
    /// none: a refusal changes nothing. Refused while callers of the same limiter wait.
    pub fn allow_n(&self, n: u32) -> bool {
        let now = self.now();
        let mut state = self.lock();
        state.pass(now);
        !state.lines.contains_key(&self.node) && state.tree.take(self.node, n)
    }

    /// Returns how long a caller would have to wait for a token, without taking one.
    ///
    /// The wait is longer if others take tokens meanwhile.
    ///
    /// # Errors
    ///
    /// As [`peek_n`](Self::peek_n).
    pub fn peek(&self) -> Result<Duration, ReserveError> {
        self.peek_n(1)
    }

    /// Returns how long a caller would have to wait for `n` tokens, without taking them.
    ///
    /// # Errors
    ///
    /// [`ReserveError::ExceedsBurst`] if `n` is more than this limiter can ever have at once,
    /// and [`ReserveError::Never`] if the tokens never come.
    pub fn peek_n(&self, n: u32) -> Result<Duration, ReserveError> {
        let now = self.now();
        let mut state = self.lock();
        let at = state.pass(now);
        let ready = state.ready(self.node, n);
        let ready = ready.map_err(|refusal| ReserveError::new(refusal, n))?;
        Ok(duration(ready.since(now.min(at))))
    }

    /// Returns how many tokens are available now, its own and borrowed ones.
    ///
    /// A snapshot; do not base decisions on it.
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue::rate::{Hierarchy, Limit, Share};
    ///
    /// let all = Hierarchy::new(Limit::ZERO, 10);
    /// let child = all.child(Share::new(Limit::ZERO, 4))?;
    /// assert_eq!((child.available(), all.available()), (10, 6));
    /// assert!(child.allow_n(5)); // four guaranteed, one borrowed
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
    /// Different limiters of a tree compete for tokens to borrow. A request for several tokens
    /// may be overtaken by smaller requests of other limiters, until its own limiter has gained
    /// enough.
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
    /// and [`WaitError::Never`] if the tokens never come. Both are returned at once, or later
    /// if a new child takes that much of the burst or limit.
    pub async fn wait_n(&self, n: u32) -> Result<(), WaitError> {
        WaitInLine::new(self, self.request(n)).tokens().await
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
        WaitInLine::new(self, self.request(n)).tokens_blocking()
    }

    fn request(&self, n: u32) -> Request {
        Request::patient(At::Now(self.now()), n)
    }

    fn now(&self) -> Moment {
        self.shared.timeline.moment(self.shared.clock.now())
    }

    fn lock(&self) -> MutexGuard<'_, HierarchyState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HierarchyState {
    /// Records that it is `now`, and returns the effective time.
    fn pass(&mut self, now: Moment) -> Moment {
        if now > self.at {
            self.tree.advance(now.since(self.at));
            self.at = now;
        }
        self.at
    }

    /// Returns when `node` can have `n` tokens.
    fn ready(&self, node: usize, n: u32) -> Result<Moment, Refusal> {
        let burst = self.tree.max_tokens(node);
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

    /// Serves the waiter if it is first in the line of `node`, or lets it sleep.
    fn serve(
        &mut self,
        (node, ticket): (usize, Ticket),
        request: Request,
        wake: Wake,
    ) -> (LineStatus<()>, Wakes) {
        let line = self.lines.get_mut(&node).expect("a waiter has a line");
        if !line.is_first(ticket) {
            return line.sleep_until(ticket, Moment::END, wake);
        }
        let answer = match self.take(node, request.n) {
            Ok(Ok(held)) => Ok(held),
            Ok(Err(until)) => {
                let line = self.lines.get_mut(&node).expect("as above");
                return line.sleep_until(ticket, until, wake);
            }
            Err(refusal) => Err(refusal),
        };
        let mut wakes = self.leave(node, ticket);
        wakes.discard(Some(wake));
        (LineStatus::Done(answer), wakes)
    }

    /// Removes a waiter from the line of `node`, and wakes the next one.
    fn leave(&mut self, node: usize, ticket: Ticket) -> Wakes {
        let Some(line) = self.lines.get_mut(&node) else { return Wakes::default() };
        let wakes = line.withdraw(ticket);
        if line.is_unused() {
            self.lines.remove(&node);
        }
        wakes
    }
}

impl LineOwner for Hierarchy {
    type Claim = ();

    fn clock(&self) -> &AnyClock {
        &self.shared.clock
    }

    fn timeline(&self) -> Timeline {
        self.shared.timeline
    }

    fn join(&self, request: Request, wake: Wake) -> (LineStatus<()>, Wakes) {
        let mut state = self.lock();
        state.pass(request.at.given());
        if let Err(refusal) = state.ready(self.node, request.n) {
            let mut wakes = Wakes::default();
            wakes.discard(Some(wake));
            return (LineStatus::Done(Err(refusal)), wakes);
        }
        let line = state.lines.entry(self.node).or_insert_with(WaiterLine::new);
        let ticket = line.push(request, Moment::END);
        state.serve((self.node, ticket), request, wake)
    }

    fn poll(&self, ticket: Ticket, now: Moment, wake: Wake) -> (LineStatus<()>, Wakes) {
        let mut state = self.lock();
        state.pass(now);
        let request = state.lines[&self.node].request(ticket);
        state.serve((self.node, ticket), request, wake)
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
