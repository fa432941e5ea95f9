//! A watch that is opened again if a list hangs.
//!
//! kube's watcher notices a dead connection while it watches, but not while it lists: its
//! client has no timeout for a response. A server that vanished after it accepted the
//! request would stop the watch for ever.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::unfold;
use futures::{Stream, StreamExt};
use kube::runtime::watcher::{self, Event};
use requeue::Clock;

/// How long a list may make no progress. The API server itself gives up after 60 s.
const STALLED: Duration = Duration::from_secs(90);

/// Returns the events of the streams that `open` returns.
///
/// A list without progress is an error. The next stream then starts with a new list.
pub(crate) fn reopening<T, S>(
    open: impl FnMut() -> S + Send + 'static,
    clock: Arc<dyn Clock>,
) -> impl Stream<Item = watcher::Result<Event<T>>> + Send
where
    S: Stream<Item = watcher::Result<Event<T>>> + Send + 'static,
    T: Send + 'static,
{
    let mut open = open;
    let events = Box::pin(open());
    let watch = Reopening { events, open, clock, listing: true };
    unfold(watch, |mut watch| async move {
        let event = watch.next().await?;
        Some((event, watch))
    })
}

struct Reopening<S, F> {
    events: Pin<Box<S>>,
    open: F,
    clock: Arc<dyn Clock>,
    /// Whether a list is under way. A quiet watch is not stalled.
    listing: bool,
}

impl<T, S, F> Reopening<S, F>
where
    S: Stream<Item = watcher::Result<Event<T>>>,
    F: FnMut() -> S,
{
    async fn next(&mut self) -> Option<watcher::Result<Event<T>>> {
        let deadline = self.clock.now().checked_add(STALLED);
        let Some(deadline) = deadline.filter(|_| self.listing) else {
            let event = self.events.next().await;
            return self.note(event);
        };
        tokio::select! {
            biased;
            event = self.events.next() => self.note(event),
            () = self.clock.timer(deadline) => {
                self.events = Box::pin((self.open)());
                Some(Err(stalled()))
            }
        }
    }

    fn note(
        &mut self,
        event: Option<watcher::Result<Event<T>>>,
    ) -> Option<watcher::Result<Event<T>>> {
        match &event {
            Some(Ok(Event::Init)) => self.listing = true,
            Some(Ok(Event::InitDone)) => self.listing = false,
            Some(Err(watcher::Error::WatchError(status))) if status.code == 410 => {
                self.listing = true;
            }
            Some(_) | None => {}
        }
        event
    }
}

fn stalled() -> watcher::Error {
    let text = format!("the list made no progress for {STALLED:?}");
    let error = io::Error::new(io::ErrorKind::TimedOut, text);
    watcher::Error::InitialListFailed(kube::Error::Service(Box::new(error)))
}
