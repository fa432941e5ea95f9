//! The loop of one watch: events in, backoff after errors.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::Resource;
use kube::runtime::watcher::{self, Event};
use requeue::Clock;
use requeue::retry::{Exponential, Jitter, RetryPolicy};

use super::contain;
use super::status::Monitor;

const FIRST_PAUSE: Duration = Duration::from_millis(800);
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Applies the events of a watch, until the stream ends.
///
/// After an error, only this watch pauses: up to 0.8 s, doubling up to 30 s, with jitter. An
/// expired resource version is not an error: the watch lists again, at once the first time.
pub(crate) async fn follow<T: Resource>(
    events: impl Stream<Item = watcher::Result<Event<T>>>,
    monitor: Arc<Monitor>,
    clock: Arc<dyn Clock>,
    mut apply: impl FnMut(Event<T>),
) {
    let mut events = pin!(events);
    let mut pauses = Pauses::new();
    let mut listed = None;
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                pauses.succeeded(&event);
                let step = Step::of(&event);
                contain(|| apply(event));
                // Only now: waiters must find the objects in the cache.
                match step {
                    Step::Begin => listed = None,
                    Step::Listed(version) => listed = listed.max(version),
                    Step::Complete => {
                        monitor.listed();
                        monitor.advance(listed);
                    }
                    Step::Live(version) => {
                        monitor.event();
                        monitor.advance(version);
                    }
                }
            }
            Err(error) => {
                let pause = pauses.failed(&error);
                report(&monitor, error, pause);
                if let Some(deadline) = clock.now().checked_add(pause) {
                    clock.timer(deadline).await;
                }
            }
        }
    }
}

/// What an event means for the progress of a watch.
enum Step {
    Begin,
    Listed(Option<u64>),
    Complete,
    Live(Option<u64>),
}

impl Step {
    fn of<T: Resource>(event: &Event<T>) -> Self {
        let version =
            |object: &T| object.meta().resource_version.as_ref()?.parse::<u64>().ok();
        match event {
            Event::Init => Self::Begin,
            Event::InitApply(object) => Self::Listed(version(object)),
            Event::InitDone => Self::Complete,
            Event::Apply(object) | Event::Delete(object) => Self::Live(version(object)),
        }
    }
}

fn report(monitor: &Monitor, error: watcher::Error, pause: Duration) {
    let kind = monitor.kind();
    if is_expired(&error) {
        tracing::debug!(kind, "the resource version is too old; listing again");
        return;
    }
    tracing::warn!(kind, %error, ?pause, "watch failed; retrying");
    monitor.failed(error);
}

fn is_expired(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchError(status) if status.code == 410)
}

/// The pauses of one watch.
struct Pauses {
    policy: Jitter<Exponential<()>>,
    /// How often in a row the resource version expired, without an event in between.
    expired: u32,
}

impl Pauses {
    fn new() -> Self {
        let policy = Exponential::new(FIRST_PAUSE, MAX_PAUSE);
        Self { policy: Jitter::equal(policy), expired: 0 }
    }

    /// `Init` comes before the server is asked, so it proves nothing. A list without events
    /// after it may be followed by another expiry at once.
    fn succeeded<T>(&mut self, event: &Event<T>) {
        match event {
            Event::Init | Event::InitApply(_) => {}
            Event::InitDone => {
                if self.expired <= 1 {
                    self.policy.forget(&());
                }
            }
            Event::Apply(_) | Event::Delete(_) => {
                self.expired = 0;
                self.policy.forget(&());
            }
        }
    }

    fn failed(&mut self, error: &watcher::Error) -> Duration {
        if is_expired(error) {
            self.expired += 1;
            if self.expired == 1 {
                return Duration::ZERO;
            }
        }
        self.policy.when(&())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expired() -> watcher::Error {
        let status = kube::core::Status { code: 410, ..Default::default() };
        watcher::Error::WatchError(Box::new(status))
    }

    #[test]
    fn pauses_double_until_the_watch_works_again() {
        let mut pauses = Pauses::new();
        let error = watcher::Error::NoResourceVersion;
        let first = pauses.failed(&error);
        let third = [pauses.failed(&error), pauses.failed(&error)][1];
        assert!(first <= FIRST_PAUSE && third >= 2 * FIRST_PAUSE, "{first:?} {third:?}");
        let last = (0..20).map(|_| pauses.failed(&error)).last();
        assert!(last.is_some_and(|pause| pause <= MAX_PAUSE), "{last:?}");
        pauses.succeeded(&Event::<()>::Init);
        assert!(pauses.failed(&error) >= MAX_PAUSE / 2);
        pauses.succeeded(&Event::Apply(()));
        assert!(pauses.failed(&error) <= FIRST_PAUSE);
    }

    #[test]
    fn expired_version_is_listed_at_once_but_not_in_a_loop() {
        let mut pauses = Pauses::new();
        assert_eq!(pauses.failed(&expired()), Duration::ZERO);
        pauses.succeeded(&Event::<()>::InitDone);
        let second = pauses.failed(&expired());
        pauses.succeeded(&Event::<()>::InitDone);
        let third = pauses.failed(&expired());
        assert!(
            second >= FIRST_PAUSE / 2 && third >= FIRST_PAUSE,
            "{second:?} {third:?}"
        );
        pauses.succeeded(&Event::Apply(()));
        assert_eq!(pauses.failed(&expired()), Duration::ZERO);
    }
}
