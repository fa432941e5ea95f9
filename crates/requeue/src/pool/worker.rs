//! A worker: how it gets its next key, on a thread or in a task.
//!
//! A worker whose source panics pauses and tries again. The pause doubles from 5 ms to one
//! second and is reset by the next key. It ends early with each order to the workers.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use super::handle::Running;
use super::source::Source;
use super::worker_set::{Listener, Registration};
use super::{Callbacks, PoolInner};
use crate::contain::contain;

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// One worker of a pool.
pub(super) struct Worker<Q: Source> {
    /// Ends the last lease and waits for the next key. `None` if the lease panicked when it
    /// ended and the pool's handles are gone.
    get: Option<Q::Get>,
    pub(super) pool: Arc<PoolInner>,
    pub(super) callbacks: Arc<Callbacks<Q::Key>>,
    /// Weak, so that a queue whose handles are all dropped closes.
    handles: Weak<Running<Q>>,
    /// How long the worker waits after the next panic of its source.
    pause: Duration,
    pub(super) listener: Listener,
    registration: Registration,
}

/// The source panicked.
struct Panicked;

impl<Q: Source> Worker<Q> {
    pub(super) fn new(
        running: &Arc<Running<Q>>,
        callbacks: Arc<Callbacks<Q::Key>>,
        registration: Registration,
    ) -> Self {
        Self {
            get: Some(running.queue.get()),
            pool: Arc::clone(&running.pool),
            callbacks,
            handles: Arc::downgrade(running),
            pause: FIRST_PAUSE,
            listener: Listener::new(&running.pool.worker_set),
            registration,
        }
    }

    pub(super) fn id(&self) -> u64 {
        self.registration.id()
    }

    /// Sets the future of the next key, after a run.
    pub(super) fn proceed(&mut self, next: Option<Q::Get>) {
        self.get = next.or_else(|| self.get_anew());
    }

    /// Ends the last lease and waits for a key. Returns `None` if the worker is to leave.
    pub(super) async fn next(&mut self) -> Option<Q::Work> {
        loop {
            match poll_fn(|cx| self.poll_next(cx)).await {
                Ok(lease) => {
                    self.pause = FIRST_PAUSE;
                    return lease;
                }
                Err(Panicked) => self.pause().await,
            }
        }
    }

    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Q::Work>, Panicked>> {
        self.listener.listen(cx.waker());
        if self.registration.is_leaving() {
            return Poll::Ready(Ok(None));
        }
        let Some(get) = &mut self.get else { return Poll::Ready(Ok(None)) };
        if let Some(poll) = contain(|| Pin::new(get).poll(cx)) {
            return poll.map(Ok);
        }
        self.replace_get();
        Poll::Ready(Err(Panicked))
    }

    /// Replaces a future that panicked, if the pool still has handles.
    fn replace_get(&mut self) {
        if let Some(get) = self.get_anew() {
            let panicked = self.get.replace(get);
            contain(|| drop(panicked));
        }
    }

    fn get_anew(&self) -> Option<Q::Get> {
        let running = self.handles.upgrade()?;
        contain(|| running.queue.get())
    }

    async fn pause(&mut self) {
        let mut sleep = self.pool.time.sleep(self.pause);
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        poll_fn(|cx| {
            if self.listener.has_news(cx.waker()) {
                return Poll::Ready(());
            }
            Pin::new(&mut sleep).poll(cx)
        })
        .await;
    }
}

/// Ends the lease before the worker is deregistered: invariant 4 of `WorkerSet`.
impl<Q: Source> Drop for Worker<Q> {
    fn drop(&mut self) {
        let get = self.get.take();
        contain(|| drop(get));
    }
}
