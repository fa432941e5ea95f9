//! Waiting for the first of two futures.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use requeue::{Clock, SystemClock};

/// Waits for a future with a time limit. Returns `None` if the time is up first.
///
/// For implementations of [`Store::wait`](crate::Store::wait). It uses the timer of
/// [`SystemClock`], which is late by tens of microseconds; tokio's timer counts in
/// milliseconds.
///
/// # Cancel safety
///
/// As that of `future`, which is dropped if the time is up.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let at_once = requeue_store::within(Duration::MAX, async { 7 }).await;
/// assert_eq!(at_once, Some(7));
/// let never = requeue_store::within(Duration::ZERO, std::future::pending::<()>()).await;
/// assert_eq!(never, None);
/// # }
/// ```
pub async fn within<T>(at_most: Duration, future: impl Future<Output = T>) -> Option<T> {
    let timer = SystemClock.now().checked_add(at_most).map(|at| SystemClock.timer(at));
    race(future, timer).await
}

/// Waits for `first`. Returns `None` if `other` is ready before it. Without `other` it only
/// waits for `first`.
pub(crate) async fn race<T>(
    first: impl Future<Output = T>,
    other: Option<impl Future>,
) -> Option<T> {
    let (mut first, mut other) = (pin!(first), pin!(other));
    poll_fn(|cx| {
        if let Poll::Ready(value) = first.as_mut().poll(cx) {
            return Poll::Ready(Some(value));
        }
        let other = other.as_mut().as_pin_mut();
        other.map_or(Poll::Pending, |other| other.poll(cx).map(|_| None))
    })
    .await
}
