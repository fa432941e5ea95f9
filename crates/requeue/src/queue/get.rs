//! Waiting for keys: one loop for threads, one future for tasks, the same steps in both.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use super::batch::Batch;
use super::finish::FinishRequest;
use super::lease::Lease;
use super::park::ParkedId;
use super::shared::Shared;
use super::state::{State, Taken};
use crate::clock::Timer;
use crate::error::GetTimeoutError;
use crate::sync::thread;
use crate::wake::{DeferredDrop, Wake};

/// The result of a look.
enum Look<T> {
    Taken(T),
    Closed,
    /// No key. The getter is parked; as the leader it looks again at this moment.
    Parked {
        until: Option<Instant>,
    },
}

/// A thread or task that waits for a key.
pub(super) struct Getter<K> {
    shared: Arc<Shared<K>>,
    /// Its registration in `park`, from when it parks until it arrives.
    parked: Option<ParkedId>,
}

impl<K> Getter<K> {
    pub(super) fn new(shared: Arc<Shared<K>>) -> Self {
        Self { shared, parked: None }
    }

    /// Looks for a key and parks if none is ready, in one lock scope.
    ///
    /// The registration ends before `take` runs: should user code panic there, this getter
    /// has arrived, and the lock's guard wakes another one.
    fn look<T>(
        &mut self,
        take: impl FnOnce(&mut State<K>) -> Option<T>,
        wake: Wake,
    ) -> Look<T> {
        let Self { shared, parked } = self;
        // Declared before the lock, so that they are dropped after it.
        let mut wake = DeferredDrop::new(Some(wake));
        let _arrived;
        let mut locked = shared.lock_to_take();
        let id = parked.take();
        _arrived = id.map(|id| locked.park.arrive(id));
        let look = match take(&mut locked.state) {
            Some(taken) => Look::Taken(taken),
            None if locked.state.is_closed() => Look::Closed,
            None => {
                let next = locked.state.next_deadline();
                let (id, until) = locked.park.park(id, wake.take(), next);
                *parked = Some(id);
                Look::Parked { until: until.and_then(|until| shared.moment(until)) }
            }
        };
        locked.unlock();
        look
    }

    /// Waits on this thread, until `deadline` if there is one.
    pub(super) fn block<T>(
        &mut self,
        deadline: Option<Instant>,
        take: impl Fn(&mut State<K>) -> Option<T>,
    ) -> Result<T, GetTimeoutError> {
        loop {
            let until = match self.look(&take, Wake::Thread(thread::current())) {
                Look::Taken(taken) => return Ok(taken),
                Look::Closed => return Err(GetTimeoutError::Closed),
                Look::Parked { until } => until,
            };
            if deadline.is_some_and(|deadline| deadline <= self.shared.clock.now()) {
                self.leave();
                return Err(GetTimeoutError::Timeout);
            }
            match until.into_iter().chain(deadline).min() {
                Some(moment) => self.shared.clock.park_until(moment),
                None => thread::park(),
            }
        }
    }

    /// Looks for a key for a task. `alarm` is the timer of the leader.
    fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        alarm: &mut Option<LeaderAlarm>,
        take: impl Fn(&mut State<K>) -> Option<T>,
    ) -> Poll<Option<T>> {
        loop {
            let until = match self.look(&take, Wake::Task(cx.waker().clone())) {
                Look::Taken(taken) => return Poll::Ready(Some(taken)),
                Look::Closed => return Poll::Ready(None),
                Look::Parked { until } => until,
            };
            if !LeaderAlarm::rings(alarm, until, &self.shared, cx) {
                return Poll::Pending;
            }
        }
    }

    /// Leaves. If this getter was in transit, another one is woken instead.
    fn leave(&mut self) {
        if let Some(id) = self.parked.take() {
            let _arrived;
            let mut locked = self.shared.lock_timeless();
            _arrived = locked.park.arrive(id);
            locked.unlock();
        }
    }
}

impl<K> Drop for Getter<K> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The timer of a task that is the leader.
struct LeaderAlarm {
    moment: Instant,
    timer: Timer,
}

impl LeaderAlarm {
    /// Sets the alarm to `until`. Returns whether it rings already.
    fn rings<K>(
        alarm: &mut Option<Self>,
        until: Option<Instant>,
        shared: &Shared<K>,
        cx: &mut Context<'_>,
    ) -> bool {
        let Some(moment) = until else {
            *alarm = None;
            return false;
        };
        if alarm.as_ref().is_none_or(|alarm| alarm.moment != moment) {
            *alarm = Some(Self { moment, timer: shared.clock.timer(moment) });
        }
        let timer = alarm.as_mut().map(|alarm| Pin::new(&mut alarm.timer));
        let rings = timer.is_some_and(|timer| timer.poll(cx).is_ready());
        if rings {
            // A timer that has returned must not be polled again, should its clock be
            // early.
            *alarm = None;
        }
        rings
    }
}

/// The future of [`Queue::get`](crate::Queue::get) and
/// [`Lease::next`](crate::Lease::next).
///
/// It can be moved to another task, and does not keep the queue open. If user code panics in
/// a poll, the future can be polled again.
///
/// # Cancel safety
///
/// Dropping it loses no key: a key is leased only when it is returned. If the future had been
/// woken for a key, another getter is woken instead.
#[must_use = "futures do nothing unless polled"]
pub struct Get<K>(GetStage<K>);

/// The progress of a [`Get`].
enum GetStage<K> {
    /// Not polled yet. Carries the lease that ends with the first poll, if any.
    Fresh(Arc<Shared<K>>, Option<FinishRequest<K>>),
    /// Has found no key so far.
    Waiting(Getter<K>, Option<LeaderAlarm>),
    /// Has returned.
    Over,
}

impl<K> Get<K> {
    pub(super) fn new(shared: Arc<Shared<K>>, request: Option<FinishRequest<K>>) -> Self {
        Self(GetStage::Fresh(shared, request))
    }
}

impl<K> Unpin for Get<K> {}

impl<K: Clone> Future for Get<K> {
    type Output = Option<Lease<K>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // User code may panic in here. The stage is left such that the next poll goes on.
        //
        // A getter that finds no key locks twice: here and to park. Parking needs a clone of
        // the waker, which is user code, and one per poll would cost more than the lock.
        if let GetStage::Fresh(shared, request) = &mut self.0 {
            let taken = shared.exchange(request.take());
            let GetStage::Fresh(shared, _) =
                std::mem::replace(&mut self.0, GetStage::Over)
            else {
                unreachable!("it was fresh")
            };
            if let Some(taken) = taken {
                return Poll::Ready(Some(Lease::new(shared, taken)));
            }
            self.0 = GetStage::Waiting(Getter::new(shared), None);
        }
        let GetStage::Waiting(getter, alarm) = &mut self.0 else {
            panic!("a future of a queue was polled after it had returned")
        };
        let taken = ready!(getter.poll(cx, alarm, State::take));
        let lease = taken.map(|taken| Lease::new(Arc::clone(&getter.shared), taken));
        self.0 = GetStage::Over;
        Poll::Ready(lease)
    }
}

impl<K> Drop for Get<K> {
    fn drop(&mut self) {
        if let GetStage::Fresh(shared, Some(request)) =
            std::mem::replace(&mut self.0, GetStage::Over)
        {
            shared.finish(request);
        }
    }
}

impl<K> fmt::Debug for Get<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parked = matches!(self.0, GetStage::Waiting(..));
        f.debug_struct("Get").field("parked", &parked).finish_non_exhaustive()
    }
}

/// The future of [`Queue::get_many`](crate::Queue::get_many).
///
/// # Cancel safety
///
/// As that of [`Get`]: keys are leased only when the batch is returned.
#[must_use = "futures do nothing unless polled"]
pub struct GetMany<K> {
    getter: Getter<K>,
    alarm: Option<LeaderAlarm>,
    max: usize,
}

impl<K> GetMany<K> {
    pub(super) fn new(shared: Arc<Shared<K>>, max: usize) -> Self {
        Self { getter: Getter::new(shared), alarm: None, max }
    }
}

impl<K> Unpin for GetMany<K> {}

impl<K: Clone> Future for GetMany<K> {
    type Output = Option<Batch<K>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { getter, alarm, max } = &mut *self;
        getter
            .poll(cx, alarm, take_many(*max))
            .map(|taken| taken.map(|taken| Batch::new(Arc::clone(&getter.shared), taken)))
    }
}

impl<K> fmt::Debug for GetMany<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GetMany").field("max", &self.max).finish_non_exhaustive()
    }
}

/// Takes up to `max` keys; `None` if no key is ready.
pub(super) fn take_many<K: Clone>(
    max: usize,
) -> impl Fn(&mut State<K>) -> Option<Vec<Taken<K>>> {
    move |state| {
        let taken = state.take_many(max);
        (!taken.is_empty() || max == 0).then_some(taken)
    }
}

impl<K: Clone> Shared<K> {
    /// Ends a lease, if there is one, and leases the next ready key, in one lock.
    #[inline(always)]
    pub(super) fn exchange(&self, request: Option<FinishRequest<K>>) -> Option<Taken<K>> {
        let Some(request) = request else {
            return self.with_next(State::take);
        };
        // Declared before the lock: if `take` panics, its keys are dropped after it.
        let finished;
        let mut locked =
            self.lock_to_end(|state| request.catch_up(state).or_to_next_key());
        let now = locked.now;
        finished = self.end(&mut locked.state, request, now);
        let taken = locked.state.take();
        locked.unlock();
        self.report(finished);
        taken
    }

    /// As [`exchange`](Self::exchange), but waits for a key, blocking this thread.
    #[inline(always)]
    pub(super) fn exchange_blocking(
        self: Arc<Self>,
        request: Option<FinishRequest<K>>,
    ) -> Option<Lease<K>> {
        if let Some(taken) = self.exchange(request) {
            return Some(Lease::new(self, taken));
        }
        self.wait_blocking()
    }

    #[inline(never)]
    fn wait_blocking(self: Arc<Self>) -> Option<Lease<K>> {
        let taken = Getter::new(Arc::clone(&self)).block(None, State::take).ok()?;
        Some(Lease::new(self, taken))
    }
}
