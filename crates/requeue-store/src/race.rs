//! Waiting for the first of two things.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use requeue::{Clock, SystemClock};

/// What comes, if that is soon enough: for a store that [waits](crate::Store::wait).
///
/// It goes by the timer of [`SystemClock`], which is late by tens of microseconds. That of
/// tokio counts in milliseconds.
///
/// # Cancel safety
///
/// As safe as `what` is, which is dropped if it does not come in time.
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
pub async fn within<T>(at_most: Duration, what: impl Future<Output = T>) -> Option<T> {
    let timer = SystemClock.now().checked_add(at_most).map(|at| SystemClock.timer(at));
    first(what, timer).await
}

/// What came first, if it was `one`; `None` if it was `other`, or if that is what there is
/// and it is over. Without `other`, waits for `one`.
pub(crate) async fn first<T>(
    one: impl Future<Output = T>,
    other: Option<impl Future>,
) -> Option<T> {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| {
        if let Poll::Ready(value) = one.as_mut().poll(cx) {
            return Poll::Ready(Some(value));
        }
        let other = other.as_mut().as_pin_mut();
        other.map_or(Poll::Pending, |other| other.poll(cx).map(|_| None))
    })
    .await
}
