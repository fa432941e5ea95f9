//! A worker: how it gets its next key, on a thread or in a task.
//!
//! A source whose poll panics is polled again after a pause, which doubles from 5 ms up to
//! a second and ends early if the worker is to leave or the pool drains. The next key resets
//! it.

use std::fmt::Display;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Weak;
use std::task::{Context, Poll};
use std::time::Duration;

use super::config::Config;
use super::handle::Running;
use super::outcome::Failure;
use super::registry::Registration;
use super::run::Run;
use super::slot::Slot;
use super::source::{Source, Work};
use super::time::Time;
use super::verdict::Ran;
use crate::contain::contain;

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// One worker of a pool.
pub(super) struct Worker<Q: Source> {
    /// Ends the last lease and waits for the next key. `None` if the lease panicked when it
    /// ended and the pool's handles are gone.
    get: Option<Q::Get>,
    /// Weak, so that a queue whose handles are all dropped closes.
    pool: Weak<Running<Q::Key, Q>>,
    /// How long the worker waits after the next panic of its source.
    pause: Duration,
    registration: Registration<Q::Key>,
}

/// What an exchange of keys has led to.
enum Exchange<W> {
    Leased(W),
    Leave,
    Panicked,
}

impl<Q: Source> Worker<Q> {
    pub(super) fn new(
        get: Q::Get,
        pool: Weak<Running<Q::Key, Q>>,
        registration: Registration<Q::Key>,
    ) -> Self {
        Self { get: Some(get), pool, pause: FIRST_PAUSE, registration }
    }

    pub(super) fn id(&self) -> u64 {
        self.registration.id()
    }

    pub(super) fn slot(&self) -> &Slot<Q::Key> {
        self.registration.slot()
    }

    /// Sets what waits for the next key, after a run.
    pub(super) fn proceed(&mut self, next: Option<Q::Get>) {
        self.get = next.or_else(|| self.get_anew());
    }

    /// Ends the last lease and waits for a key. Returns `None` if the worker is to leave.
    pub(super) async fn next<E: Display>(
        &mut self,
        config: &Config<Q::Key, E>,
    ) -> Option<Q::Work> {
        loop {
            match poll_fn(|cx| self.poll_exchange(config, cx)).await {
                Exchange::Leased(lease) => return Some(lease),
                Exchange::Leave => return None,
                Exchange::Panicked => self.pause(&config.time).await,
            }
        }
    }

    /// Polls the source, while the slot says so: invariant 1 of the slot.
    fn poll_exchange<E: Display>(
        &mut self,
        config: &Config<Q::Key, E>,
        cx: &mut Context<'_>,
    ) -> Poll<Exchange<Q::Work>> {
        loop {
            let begun = self.registration.begin_exchange();
            let Some(get) = self.get.as_mut().filter(|_| begun) else {
                return Poll::Ready(Exchange::Leave);
            };
            return match contain(|| Pin::new(get).poll(cx)) {
                Some(Poll::Ready(Some(lease))) => {
                    let Some(lease) = self.register(config, lease) else { continue };
                    Poll::Ready(Exchange::Leased(lease))
                }
                Some(Poll::Ready(None)) => Poll::Ready(Exchange::Leave),
                Some(Poll::Pending) => self.wait(cx),
                None => Poll::Ready(self.recover()),
            };
        }
    }

    /// Registers the key of a lease in the slot. If its `Clone` panics, that is a failed run
    /// and `None` is returned.
    ///
    /// That run stays within the exchange: `stop` cannot name its key, so it waits for the
    /// lease to end.
    fn register<E: Display>(
        &mut self,
        config: &Config<Q::Key, E>,
        lease: Q::Work,
    ) -> Option<Q::Work> {
        let Some(key) = contain(|| lease.key().clone()) else {
            let failure = Failure::Panicked("the key's clone panicked".to_owned());
            let next = Run::begin(config, lease).finish(Ran::Failed(failure));
            self.proceed(next);
            return None;
        };
        self.registration.end_exchange(Some(key));
        self.pause = FIRST_PAUSE;
        Some(lease)
    }

    /// Listens for changes, then looks for those that came before.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<Exchange<Q::Work>> {
        self.registration.end_exchange(None);
        self.slot().listen(cx.waker());
        if self.registration.is_leaving() {
            Poll::Ready(Exchange::Leave)
        } else {
            Poll::Pending
        }
    }

    /// Replaces a future that panicked, if the pool still has handles: one that another
    /// source made may panic forever.
    fn recover(&mut self) -> Exchange<Q::Work> {
        if let Some(get) = self.get_anew() {
            let before = self.get.replace(get);
            contain(|| drop(before));
        }
        self.registration.end_exchange(None);
        Exchange::Panicked
    }

    fn get_anew(&self) -> Option<Q::Get> {
        let pool = self.pool.upgrade()?;
        contain(|| pool.source().get())
    }

    async fn pause(&mut self, time: &Time) {
        let mut deadline = time.deadline(self.pause);
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        poll_fn(|cx| {
            self.slot().listen(cx.waker());
            if self.registration.is_leaving() || self.slot().take_hurry() {
                return Poll::Ready(());
            }
            deadline.poll(cx)
        })
        .await;
    }
}

/// Ends the lease before the worker deregisters: invariant 4 of the registry.
impl<Q: Source> Drop for Worker<Q> {
    fn drop(&mut self) {
        contain(|| drop(self.get.take()));
    }
}
