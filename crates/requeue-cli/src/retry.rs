//! Repeats calls to an unreachable store.

use std::time::Duration;

use requeue::{Clock, SystemClock};
use requeue_store::Error;

/// How long opening a store and `requeue add` keep trying.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The pause after the first failure. It doubles up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Repeats a call while it fails with a transient error and `keep_trying` returns `true`.
///
/// A call that may have been carried out is repeated too: it must be idempotent, or cost one
/// extra run of a key at worst, as an add does.
pub(crate) async fn retry<T, F: Future<Output = Result<T, Error>>>(
    call: impl FnMut() -> F,
    keep_trying: impl FnMut(&Error) -> bool,
) -> Result<T, Error> {
    retry_on(SystemClock, call, keep_trying).await
}

async fn retry_on<T, F: Future<Output = Result<T, Error>>>(
    clock: impl Clock,
    mut call: impl FnMut() -> F,
    mut keep_trying: impl FnMut(&Error) -> bool,
) -> Result<T, Error> {
    let mut pause = FIRST_PAUSE;
    loop {
        match call().await {
            Err(error) if error.is_transient() && keep_trying(&error) => {}
            answer => return answer,
        }
        clock.timer(clock.now() + pause).await;
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

/// Returns a `keep_trying` that gives up after [`PATIENCE`].
pub(crate) fn for_a_while() -> impl FnMut(&Error) -> bool {
    let give_up = SystemClock.now() + PATIENCE;
    move |_| SystemClock.now() < give_up
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use requeue::testing::FakeClock;
    use requeue_store::ErrorKind::{
        self, Corrupt, Denied, Full, ReadOnly, Unavailable, Unknown,
    };

    use super::*;

    /// Retries a call that fails with each of `errors` and then succeeds, and gives up after
    /// `patience` failures. Returns the answer and the number of calls.
    fn run(errors: &[ErrorKind], patience: usize) -> (Result<(), ErrorKind>, usize) {
        let (mut calls, mut failures) = (0, 0);
        let call = || {
            let error = errors.get(calls).map(|kind| Error::new(*kind, "why"));
            calls += 1;
            std::future::ready(error.map_or(Ok(()), Err))
        };
        let keep_trying = |_: &Error| {
            failures += 1;
            failures <= patience
        };
        let clock = FakeClock::new();
        let mut retried = Box::pin(retry_on(clock.clone(), call, keep_trying));
        let mut cx = Context::from_waker(Waker::noop());
        let answer = loop {
            match retried.as_mut().poll(&mut cx) {
                Poll::Ready(answer) => break answer,
                Poll::Pending => clock.advance(MAX_PAUSE),
            }
        };
        drop(retried);
        (answer.map_err(|error| error.kind()), calls)
    }

    #[test]
    fn only_transient_errors_are_retried() {
        assert_eq!(run(&[Unavailable, Unknown], 9), (Ok(()), 3));
        // A password may have been rotated.
        assert_eq!(run(&[Full, ReadOnly, Denied], 9), (Ok(()), 4));
        assert_eq!(run(&[Unavailable, Corrupt], 9), (Err(Corrupt), 2));
    }

    #[test]
    fn retrying_ends_when_the_caller_gives_up() {
        assert_eq!(run(&[Unavailable, Unknown, Unavailable], 1), (Err(Unknown), 2));
    }
}
