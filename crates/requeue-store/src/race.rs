//! Waiting for the first of two things.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

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
