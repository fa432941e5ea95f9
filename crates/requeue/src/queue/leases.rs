//! The leases of a queue, one after the other.

use std::fmt;
use std::sync::Arc;

use super::lease::Lease;
use super::shared::Shared;

/// A blocking iterator over the leases of a queue; from
/// [`Queue::leases_blocking`](crate::Queue::leases_blocking).
///
/// It ends when the queue is closed and no key is ready. It does not keep the queue open.
pub struct LeasesBlocking<K>(Arc<Shared<K>>);

impl<K> LeasesBlocking<K> {
    pub(super) fn new(shared: Arc<Shared<K>>) -> Self {
        Self(shared)
    }
}

impl<K: Clone> Iterator for LeasesBlocking<K> {
    type Item = Lease<K>;

    fn next(&mut self) -> Option<Lease<K>> {
        Arc::clone(&self.0).exchange_blocking(None)
    }
}

impl<K> fmt::Debug for LeasesBlocking<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeasesBlocking").finish_non_exhaustive()
    }
}

#[cfg(feature = "futures")]
mod stream {
    use std::fmt;
    use std::future::Future;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, ready};

    use futures_core::Stream;

    use crate::queue::get::Get;
    use crate::queue::lease::Lease;
    use crate::queue::shared::Shared;

    /// A stream of the leases of a queue; from [`Queue::leases`](crate::Queue::leases).
    ///
    /// It ends when the queue is closed and no key is ready. It does not keep the queue open.
    ///
    /// # Cancel safety
    ///
    /// Dropping the stream loses no key.
    #[must_use = "streams do nothing unless polled"]
    #[cfg_attr(docsrs, doc(cfg(feature = "futures")))]
    pub struct Leases<K> {
        shared: Arc<Shared<K>>,
        get: Get<K>,
    }

    impl<K> Leases<K> {
        pub(in crate::queue) fn new(shared: Arc<Shared<K>>) -> Self {
            let get = Get::new(Arc::clone(&shared), None);
            Self { shared, get }
        }
    }

    impl<K: Clone> Stream for Leases<K> {
        type Item = Lease<K>;

        fn poll_next(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Lease<K>>> {
            let lease = ready!(Pin::new(&mut self.get).poll(cx));
            self.get = Get::new(Arc::clone(&self.shared), None);
            Poll::Ready(lease)
        }
    }

    impl<K> fmt::Debug for Leases<K> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Leases").finish_non_exhaustive()
        }
    }
}

#[cfg(feature = "futures")]
pub use self::stream::Leases;
