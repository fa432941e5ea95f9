//! Waiting for keys: one loop for threads, one future for tasks, the same steps in both.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::batch::Batch;
use super::lease::Lease;
use super::park::{ParkedId, Spent, Wake};
use super::shared::{Finish, Return, Shared};
use super::state::{State, Taken};
use crate::clock::Timer;
use crate::error::TryGetError;
use crate::sync::thread;

/// What a getter found.
enum Look<T> {
    Taken(T),
    Closed,
    /// Nothing: it is parked, and if it leads it must look again at this moment.
    Parked {
        until: Option<Instant>,
    },
}

/// Someone who waits for a key.
pub(super) struct Getter<K> {
    shared: Arc<Shared<K>>,
    parked: Option<ParkedId>,
}

impl<K> Getter<K> {
    pub(super) fn new(shared: Arc<Shared<K>>) -> Self {
        Self { shared, parked: None }
    }

    /// Looks for a key and parks if there is none: in one lock.
    fn look<T>(
        &mut self,
        take: impl FnOnce(&mut State<K>) -> Option<T>,
        wake: Wake,
    ) -> Look<T> {
        let Self { shared, parked } = self;
        let (mut wake, mut spent) = (Some(wake), Spent::default());
        let (mut core, _) = shared.lock();
        if let Some(id) = *parked {
            core.park.arrive(id);
        }
        let look = match take(&mut core.state) {
            Some(taken) => Look::Taken(taken),
            None if core.state.is_closed() => Look::Closed,
            None => {
                let until;
                (until, spent) = core.park(parked, wake.take().expect("it parks once"));
                Look::Parked { until: until.and_then(|until| shared.moment(until)) }
            }
        };
        if !matches!(look, Look::Parked { .. }) {
            spent = parked.take().map(|id| core.park.unpark(id)).unwrap_or_default();
        }
        shared.unlock(core);
        drop((wake, spent));
        look
    }

    /// Waits on this thread, until `deadline` if there is one.
    pub(super) fn block<T>(
        &mut self,
        deadline: Option<Instant>,
        take: impl Fn(&mut State<K>) -> Option<T>,
    ) -> Result<T, TryGetError> {
        loop {
            let until = match self.look(&take, Wake::Thread(thread::current())) {
                Look::Taken(taken) => return Ok(taken),
                Look::Closed => return Err(TryGetError::Closed),
                Look::Parked { until } => until,
            };
            if deadline.is_some_and(|deadline| deadline <= self.shared.clock.now()) {
                self.leave();
                return Err(TryGetError::Empty);
            }
            match until.into_iter().chain(deadline).min() {
                Some(moment) => self.shared.clock.park_until(moment),
                None => thread::park(),
            }
        }
    }

    /// Looks for a key on behalf of a task; `alarm` is the timer of a getter that leads.
    fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        alarm: &mut Option<Alarm>,
        take: impl Fn(&mut State<K>) -> Option<T>,
    ) -> Poll<Option<T>> {
        loop {
            let until = match self.look(&take, Wake::Task(cx.waker().clone())) {
                Look::Taken(taken) => return Poll::Ready(Some(taken)),
                Look::Closed => return Poll::Ready(None),
                Look::Parked { until } => until,
            };
            if !Alarm::rings(alarm, until, &self.shared, cx) {
                return Poll::Pending;
            }
        }
    }

    /// Gives up. If this getter was on its way to a key, another is woken for it.
    fn leave(&mut self) {
        if let Some(id) = self.parked.take() {
            let (mut core, _) = self.shared.lock();
            core.park.arrive(id);
            let spent = core.park.unpark(id);
            self.shared.unlock(core);
            drop(spent);
        }
    }
}

impl<K> Drop for Getter<K> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The timer of a task that leads.
struct Alarm {
    moment: Instant,
    timer: Timer,
}

impl Alarm {
    /// Sets the alarm to `until`: whether it rings already.
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
/// It belongs to nobody: it can be moved to another task, and it does not keep the queue
/// open.
///
/// # Cancel safety
///
/// Dropping it loses no key: none is taken before it is returned, and if it had been
/// woken for a key, another getter is woken instead.
#[must_use = "futures do nothing unless polled"]
pub struct Get<K>(Stage<K>);

/// How far a [`Get`] has come.
enum Stage<K> {
    /// Not polled; with a key to bring back if a lease asks for the next.
    Fresh(Arc<Shared<K>>, Option<Return<K>>),
    /// Has found no key so far.
    Waiting(Getter<K>, Option<Alarm>),
    /// Has returned.
    Over,
}

impl<K> Get<K> {
    pub(super) fn new(shared: Arc<Shared<K>>, back: Option<Return<K>>) -> Self {
        Self(Stage::Fresh(shared, back))
    }
}

impl<K> Unpin for Get<K> {}

impl<K: Clone> Future for Get<K> {
    type Output = Option<Lease<K>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (mut getter, mut alarm) = match std::mem::replace(&mut self.0, Stage::Over) {
            Stage::Fresh(shared, back) => {
                if let Some(taken) = shared.exchange(back) {
                    return Poll::Ready(Some(Lease::new(shared, taken)));
                }
                (Getter::new(shared), None)
            }
            Stage::Waiting(getter, alarm) => (getter, alarm),
            Stage::Over => panic!("a future of a queue was polled after it had returned"),
        };
        match getter.poll(cx, &mut alarm, State::take) {
            Poll::Ready(taken) => {
                let lease = |taken| Lease::new(Arc::clone(&getter.shared), taken);
                Poll::Ready(taken.map(lease))
            }
            Poll::Pending => {
                self.0 = Stage::Waiting(getter, alarm);
                Poll::Pending
            }
        }
    }
}

impl<K> Drop for Get<K> {
    fn drop(&mut self) {
        if let Stage::Fresh(shared, Some(back)) =
            std::mem::replace(&mut self.0, Stage::Over)
        {
            shared.finish(back);
        }
    }
}

impl<K> fmt::Debug for Get<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parked = matches!(self.0, Stage::Waiting(..));
        f.debug_struct("Get").field("parked", &parked).finish_non_exhaustive()
    }
}

/// The future of [`Queue::get_many`](crate::Queue::get_many).
///
/// # Cancel safety
///
/// As that of [`Get`]: no key is taken before the batch is returned.
#[must_use = "futures do nothing unless polled"]
pub struct GetMany<K> {
    getter: Getter<K>,
    alarm: Option<Alarm>,
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

/// Takes up to `max` keys; `None` if there is not even one.
pub(super) fn take_many<K: Clone>(
    max: usize,
) -> impl Fn(&mut State<K>) -> Option<Vec<Taken<K>>> {
    move |state| {
        let taken = state.take_many(max);
        (!taken.is_empty() || max == 0).then_some(taken)
    }
}

impl<K: Clone> Shared<K> {
    /// Takes a key back, if one is brought, and hands out another, if one is ready: in one
    /// lock.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: a tenth of a worker's cycle")]
    pub(super) fn exchange(&self, back: Option<Return<K>>) -> Option<Taken<K>> {
        let Some(back) = back else {
            return self.with(State::take);
        };
        let (mut core, now) = self.lock();
        let returned = self.give_back(&mut core.state, back, now);
        let taken = core.state.take();
        self.unlock(core);
        self.tell_returned(returned);
        taken
    }

    /// The same on this thread, which waits for a key. `None` once the queue is closed.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: a tenth of a worker's cycle")]
    pub(super) fn exchange_blocking(
        self: Arc<Self>,
        back: Option<Return<K>>,
    ) -> Option<Lease<K>> {
        if let Some(taken) = self.exchange(back) {
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

impl<K> Shared<K> {
    /// Takes a key back when no other is wanted: how long it waits if it comes again.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: a tenth of a worker's cycle")]
    pub(super) fn finish(&self, back: Return<K>) -> Option<Duration> {
        let over = matches!(back.finish, Finish::Done | Finish::Succeed);
        let (mut core, now) = self.lock_if(|state| !over || state.is_dirty(back.slot));
        let returned = self.give_back(&mut core.state, back, now);
        self.unlock(core);
        let backoff = returned.backoff;
        self.tell_returned(returned);
        backoff.map(|backoff| backoff.delay)
    }
}
