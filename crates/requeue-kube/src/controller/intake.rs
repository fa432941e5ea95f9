//! The queue as the pool sees it: with an overall rate, and only while this process leads.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use kube::runtime::reflector::ObjectRef;
use requeue::pool::{Expiry, Failure, Source, Stopped, Work};
use requeue::rate::Limiter;
use requeue::{Clock, Finish, Get, Lease, Queue};
use tokio::sync::watch;

use crate::election::Term;
use crate::object::Object;

/// A queue whose keys are delivered under a limit and a term.
pub(crate) struct Intake<K: Object> {
    queue: Queue<ObjectRef<K>>,
    gate: Option<Arc<Gate>>,
}

/// What a key waits for after it was taken from the queue.
pub(super) struct Gate {
    pub(super) limiter: Option<Limiter>,
    pub(super) terms: Option<watch::Receiver<Option<Term>>>,
    pub(super) clock: Arc<dyn Clock>,
}

/// How often a limiter without tokens is asked again.
const LIMIT_CHECK: Duration = Duration::from_secs(1);

impl Gate {
    /// Waits for a token and for a term. A worker that is to leave drops this future.
    async fn pass(self: Arc<Self>) -> Option<Term> {
        if let Some(limiter) = &self.limiter {
            while limiter.wait().await.is_err() {
                // No token at this limit, which may be raised later.
                if let Some(deadline) = self.clock.now().checked_add(LIMIT_CHECK) {
                    self.clock.timer(deadline).await;
                }
            }
        }
        let mut terms = self.terms.clone()?;
        let held = |term: &Option<Term>| term.as_ref().is_some_and(Term::is_held);
        let term = terms.wait_for(held).await.ok().and_then(|term| term.clone());
        match term {
            Some(term) => Some(term),
            None => std::future::pending().await, // the election has ended
        }
    }
}

impl<K: Object> Intake<K> {
    pub(super) fn new(queue: Queue<ObjectRef<K>>, gate: Gate) -> Self {
        let used = gate.limiter.is_some() || gate.terms.is_some();
        Self { queue, gate: used.then(|| Arc::new(gate)) }
    }
}

impl<K: Object> Clone for Intake<K> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), gate: self.gate.clone() }
    }
}

impl<K: Object> fmt::Debug for Intake<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Intake").field(&self.queue).finish()
    }
}

impl<K: Object> Source for Intake<K> {
    type Key = ObjectRef<K>;
    type Work = Task<K>;
    type Get = NextTask<K>;

    fn name(&self) -> &str {
        self.queue.name()
    }

    fn get(&self) -> NextTask<K> {
        NextTask { state: NextState::Queued(self.queue.get()), gate: self.gate.clone() }
    }

    fn close(&self) {
        self.queue.close();
    }

    fn close_now(&self) -> Stopped<ObjectRef<K>> {
        Source::close_now(&self.queue)
    }
}

/// A future of the next key.
pub(crate) struct NextTask<K: Object> {
    state: NextState<K>,
    gate: Option<Arc<Gate>>,
}

enum NextState<K: Object> {
    Queued(Get<ObjectRef<K>>),
    Gated(Held<K>, Pin<Box<dyn Future<Output = Option<Term>> + Send>>),
}

/// A lease on a key that no handler has seen: dropping it is not a failure.
struct Held<K: Object>(Option<Lease<ObjectRef<K>>>);

impl<K: Object> Drop for Held<K> {
    fn drop(&mut self) {
        if let Some(lease) = self.0.take() {
            lease.release();
        }
    }
}

impl<K: Object> Future for NextTask<K> {
    type Output = Option<Task<K>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let this = &mut *self;
            match &mut this.state {
                NextState::Queued(get) => {
                    let Some(lease) = ready!(Pin::new(get).poll(cx)) else {
                        return Poll::Ready(None);
                    };
                    let Some(gate) = &this.gate else {
                        return Poll::Ready(Some(Task { lease, term: None, gate: None }));
                    };
                    let pass = Box::pin(Arc::clone(gate).pass());
                    this.state = NextState::Gated(Held(Some(lease)), pass);
                }
                NextState::Gated(held, pass) => {
                    let term = ready!(pass.as_mut().poll(cx));
                    let Some(lease) = held.0.take() else { return Poll::Ready(None) };
                    let gate = this.gate.clone();
                    return Poll::Ready(Some(Task { lease, term, gate }));
                }
            }
        }
    }
}

/// A leased key, under a term if there is an election.
pub(crate) struct Task<K: Object> {
    lease: Lease<ObjectRef<K>>,
    term: Option<Term>,
    gate: Option<Arc<Gate>>,
}

impl<K: Object> Work for Task<K> {
    type Key = ObjectRef<K>;
    type Next = NextTask<K>;

    fn key(&self) -> &ObjectRef<K> {
        self.lease.key()
    }

    fn num_requeues(&self) -> u32 {
        self.lease.num_requeues()
    }

    fn priority(&self) -> i32 {
        self.lease.priority()
    }

    fn expiry(&self) -> Option<Arc<dyn Expiry>> {
        let term = self.term.clone()?;
        Some(Arc::new(TermExpiry(term)))
    }

    fn next(self, finish: Finish, _failure: Option<&Failure>) -> NextTask<K> {
        let state = NextState::Queued(self.lease.next_with(finish));
        NextTask { state, gate: self.gate }
    }
}

/// A run ends with the term that it began in. The pool then cancels and releases it.
struct TermExpiry(Term);

impl Expiry for TermExpiry {
    fn token(&self) -> u64 {
        self.0.number()
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn is_lost(&self) -> bool {
        !self.0.is_held()
    }

    fn lost(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let term = self.0.clone();
        Box::pin(async move { term.ended().await })
    }
}
