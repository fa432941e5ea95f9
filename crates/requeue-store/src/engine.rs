//! What the handles of one queue share, and the tasks behind them.
//!
//! Four kinds of tasks, each there only while it has something to do: one sends adds, one
//! sends ends of leases, one fetches keys for those who wait, and one, the heartbeat,
//! extends what is held. They are told nothing by timers that a call would have to wait
//! for.

use std::fmt;
use std::future::Future;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use requeue::Clock;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::batch::{Answer, Batcher};
use crate::getters::Getters;
use crate::held::{HeldLeases, fence};
use crate::lease::RawLease;
use crate::{
    Add, Backoff, End, Ending, Error, ErrorKind, Finished, Grant, Hold, LeaseRequest,
    Leased, Owner, Receipt, Reply, Store, race,
};

/// How long an idle worker waits before it looks again, should a wake-up be lost.
const IDLE: Duration = Duration::from_secs(5);

/// The pauses between attempts of a call that fails: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The most keys that are fetched at a time.
const MAX_FETCH: usize = 256;

/// Hears of errors that nobody is told otherwise.
pub(crate) type OnError = Arc<dyn Fn(&Error) + Send + Sync>;

/// What a queue was built with.
#[derive(Clone)]
pub(crate) struct Terms {
    pub(crate) name: String,
    pub(crate) owner: Owner,
    pub(crate) lease: Duration,
    pub(crate) max_deliveries: Option<NonZeroU32>,
    pub(crate) backoff: Backoff,
    pub(crate) revive_after: Duration,
    pub(crate) patience: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) on_error: Option<OnError>,
}

/// What the handles of a queue, its leases and its tasks share.
pub(crate) struct Engine<S: Store> {
    pub(crate) store: S,
    pub(crate) terms: Terms,
    pub(crate) held: HeldLeases,
    runtime: Handle,
    adds: Batcher<Add, Receipt>,
    ends: Batcher<End, Finished>,
    getters: Getters<RawLease<S>>,
    beating: AtomicBool,
    closed: AtomicBool,
    closing: Notify,
}

impl<S: Store> Engine<S> {
    pub(crate) fn new(store: S, terms: Terms, runtime: Handle) -> Arc<Self> {
        Arc::new(Self {
            store,
            terms,
            runtime,
            held: HeldLeases::default(),
            adds: Batcher::new(),
            ends: Batcher::new(),
            getters: Getters::new(),
            beating: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
        })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Adds nothing and hands out nothing any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.getters.close();
        self.closing.notify_waiters();
    }

    /// Whether nothing is held and nothing is on its way.
    pub(crate) fn is_settled(&self) -> bool {
        self.held.is_empty() && self.adds.is_idle() && self.ends.is_idle()
    }

    pub(crate) fn report(&self, error: &Error) {
        if let Some(on_error) = &self.terms.on_error {
            on_error(error);
        }
    }

    fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.runtime.spawn(task));
    }

    fn timer(&self, delay: Duration) -> Option<requeue::Timer> {
        let clock = &self.terms.clock;
        clock.now().checked_add(delay).map(|moment| clock.timer(moment))
    }

    /// Calls until it succeeds, fails for good, or has failed for long enough: the answer,
    /// and whether an earlier attempt may have been carried out.
    async fn patiently<'a, T>(
        &'a self,
        call: impl Fn() -> Reply<'a, T>,
    ) -> (Result<T, Error>, bool) {
        let give_up = self.terms.clock.now().checked_add(self.terms.patience);
        let (mut pause, mut in_doubt) = (FIRST_PAUSE, false);
        loop {
            let answer = call().await;
            let Some(error) = answer.as_ref().err().filter(|error| error.is_transient())
            else {
                return (answer, in_doubt);
            };
            let next = self.terms.clock.now().checked_add(pause);
            if next.is_none() || next > give_up {
                return (answer, in_doubt);
            }
            in_doubt |= error.kind() == ErrorKind::Unknown;
            self.report(error);
            self.pause(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn pause(&self, delay: Duration) {
        if let Some(timer) = self.timer(delay) {
            timer.await;
        }
    }
}

/// Adding, and ending leases.
impl<S: Store> Engine<S> {
    pub(crate) fn add(self: &Arc<Self>, add: Add) -> Answer<Receipt> {
        let (answer, start) = self.adds.push(add);
        if start {
            self.spawn(Arc::clone(self).send_adds());
        }
        answer
    }

    pub(crate) fn add_all(
        self: &Arc<Self>,
        adds: impl IntoIterator<Item = Add>,
    ) -> Vec<Answer<Receipt>> {
        let (answers, start) = self.adds.push_all(adds);
        if start {
            self.spawn(Arc::clone(self).send_adds());
        }
        answers
    }

    /// An add that is repeated costs one more run at worst.
    async fn send_adds(self: Arc<Self>) {
        while let Some(batch) = self.adds.take() {
            let (answers, _) = self.patiently(|| self.store.add(&batch.items)).await;
            let answers = answers.map(|receipts| receipts.into_iter().map(Ok).collect());
            batch.answer(answers);
        }
        self.held.ended.notify_waiters();
    }

    pub(crate) fn end(self: &Arc<Self>, hold: Hold, ending: Ending) -> Answer<Finished> {
        let (answer, start) = self.ends.push(End { hold, ending });
        if start {
            self.spawn(Arc::clone(self).send_ends());
        }
        answer
    }

    async fn send_ends(self: Arc<Self>) {
        while let Some(batch) = self.ends.take() {
            let (answers, in_doubt) =
                self.patiently(|| self.store.finish(&batch.items)).await;
            // Extended until here: an end that takes long must not come too late.
            for end in &batch.items {
                self.held.remove(&end.hold);
            }
            let judge =
                |(end, finished): (&End, Finished)| judge(end, finished, in_doubt);
            let answers =
                answers.map(|all| batch.items.iter().zip(all).map(judge).collect());
            batch.answer(answers);
        }
        self.held.ended.notify_waiters();
    }
}

/// A lease that is found lost when its end is repeated may have been ended by the first
/// attempt.
fn judge(end: &End, finished: Finished, in_doubt: bool) -> Result<Finished, Error> {
    let Hold { key, token } = &end.hold;
    match finished {
        Finished::LeaseLost if in_doubt => Err(Error::new(
            ErrorKind::Unknown,
            format!(
                "the lease of {key:?} with token {token} had either been ended by a call \
                 whose answer was lost, or had run out"
            ),
        )),
        Finished::LeaseLost => Err(Error::new(
            ErrorKind::LeaseLost,
            format!("the lease of {key:?} with token {token} had run out"),
        )),
        Finished::Done | Finished::Requeued | Finished::Delayed(_) | Finished::Buried => {
            Ok(finished)
        }
    }
}

/// Handing out.
impl<S: Store> Engine<S> {
    /// Waits for a key, which [`handed`](crate::getters::handed) gives.
    pub(crate) fn get(
        self: &Arc<Self>,
    ) -> tokio::sync::oneshot::Receiver<crate::getters::Handout<RawLease<S>>> {
        let (receiver, start) = self.getters.join();
        if start {
            self.start_beating();
            self.spawn(Arc::clone(self).fetch());
        }
        receiver
    }

    /// Leases what is ready now, without waiting.
    pub(crate) async fn try_get(
        self: &Arc<Self>,
        max: usize,
    ) -> Result<Vec<RawLease<S>>, Error> {
        if self.is_closed() || max == 0 {
            return Ok(Vec::new());
        }
        self.start_beating();
        let asked = self.terms.clock.now();
        let leased = self.store.lease(&self.request(max)).await?;
        Ok(leased.grants.into_iter().map(|grant| self.hold(grant, asked)).collect())
    }

    fn request(&self, max: usize) -> LeaseRequest {
        let Terms { owner, lease, max_deliveries, .. } = &self.terms;
        LeaseRequest {
            owner: owner.clone(),
            max: max.min(MAX_FETCH),
            lease: *lease,
            max_deliveries: *max_deliveries,
        }
    }

    fn hold(self: &Arc<Self>, grant: Grant, asked: Instant) -> RawLease<S> {
        let hold = Hold { key: grant.key.clone(), token: grant.token };
        let lease = self.held.insert(hold, fence(asked, self.terms.lease));
        RawLease::new(Arc::clone(self), grant, lease)
    }

    /// Fetches keys for those who wait, until nobody does.
    async fn fetch(self: Arc<Self>) {
        let (mut pause, mut failing_since) = (FIRST_PAUSE, None);
        loop {
            let wanted = self.getters.wanted();
            if wanted == 0 {
                return;
            }
            match self.fetch_once(wanted).await {
                Ok(()) => (pause, failing_since) = (FIRST_PAUSE, None),
                Err(error) => {
                    let now = self.terms.clock.now();
                    let since = *failing_since.get_or_insert(now);
                    self.fetch_failed(&error, now - since).await;
                    self.pause(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    async fn fetch_once(self: &Arc<Self>, wanted: usize) -> Result<(), Error> {
        let asked = self.terms.clock.now();
        let leased = self.store.lease(&self.request(wanted)).await?;
        let none = leased.grants.is_empty();
        let Leased { grants, more_in, .. } = leased;
        for grant in grants {
            // What nobody waits for any more is released by its drop.
            drop(self.getters.hand(self.hold(grant, asked)));
        }
        if none {
            let at_most = more_in.unwrap_or(IDLE).min(IDLE);
            let closed = self.closing.notified();
            if !self.is_closed() {
                let wait = self.store.wait(at_most);
                return race::first(wait, Some(closed)).await.unwrap_or(Ok(()));
            }
        }
        Ok(())
    }

    /// Tells those who wait, if waiting longer makes no sense, and brings back keys that
    /// may have been leased to nobody.
    async fn fetch_failed(&self, error: &Error, failing_for: Duration) {
        self.report(error);
        if !error.is_transient() || failing_for >= self.terms.patience {
            self.getters.fail(error);
        }
        if error.kind() == ErrorKind::Unknown {
            let holds = self.held.holds();
            if let Err(error) = self.store.reclaim(&self.terms.owner, &holds).await {
                self.report(&error);
            }
        }
    }
}

/// The heartbeat.
impl<S: Store> Engine<S> {
    fn start_beating(self: &Arc<Self>) {
        if !self.beating.swap(true, Ordering::AcqRel) {
            self.spawn(beat(
                Arc::downgrade(self),
                Arc::clone(&self.terms.clock),
                self.terms.lease / 3,
            ));
        }
    }

    /// Extends all that is held. An answer that does not come before the next beat is not
    /// waited for.
    async fn extend(&self) {
        let holds = self.held.holds();
        let asked = self.terms.clock.now();
        let Terms { owner, lease, .. } = &self.terms;
        let call = self.store.extend(owner, &holds, *lease);
        match race::first(call, self.timer(*lease / 3)).await {
            Some(Ok(answers)) => {
                self.held.extended(&holds, &answers, fence(asked, *lease));
            }
            Some(Err(error)) => self.report(&error),
            None => {
                let text = format!("no answer within {:?} to extend leases", *lease / 3);
                self.report(&Error::new(ErrorKind::Unknown, text));
            }
        }
    }
}

/// Beats until the queue is gone, or closed with nothing held.
async fn beat<S: Store>(
    queue: Weak<Engine<S>>,
    clock: Arc<dyn Clock>,
    interval: Duration,
) {
    loop {
        let Some(next) = clock.now().checked_add(interval) else { return };
        clock.timer(next).await;
        let Some(queue) = queue.upgrade() else { return };
        if queue.is_closed() && queue.held.is_empty() {
            return;
        }
        queue.extend().await;
    }
}

impl<S: Store> fmt::Debug for Engine<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("name", &self.terms.name).finish_non_exhaustive()
    }
}
