//! Receiving keys.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::{SharedQueue, closed};
use crate::client::Client;
use crate::client::getters::delivered;
use crate::lease::{RawLease, SharedLease};
use crate::race::race;
use crate::{Error, ErrorKind, Store, StoreKey};

impl<K: StoreKey, S: Store> SharedQueue<K, S> {
    /// Waits for a key. Returns `None` if this handle is closed.
    ///
    /// A key that cannot be [decoded](StoreKey::decode) moves to the dead keys with the
    /// error as its reason. It is reported to
    /// [`on_error`](crate::SharedQueueBuilder::on_error), and the wait continues.
    ///
    /// # Errors
    ///
    /// Errors of the store: at once if a repetition cannot help, otherwise after the queue's
    /// [patience](crate::SharedQueueBuilder::patience).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no key: a key in transit goes to the next getter or is
    /// released.
    ///
    /// # Examples
    ///
    /// A worker:
    ///
    /// ```
    /// use requeue_store::{Error, MemoryStore, SharedQueue};
    ///
    /// # async fn process(key: &str) -> Result<(), String> { Ok(()) }
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let queue = SharedQueue::<String, _>::new(MemoryStore::new());
    /// # queue.add("a".to_owned()).await?;
    /// # let closer = queue.downgrade();
    /// while let Some(lease) = queue.get().await? {
    ///     match process(lease.key()).await {
    ///         Ok(()) => lease.succeed().await?,
    ///         Err(error) => lease.with_error(error).retry().await?,
    ///     };
    ///     # closer.upgrade().unwrap().close();
    /// }
    /// # Ok::<(), Error>(())
    /// # }).unwrap();
    /// ```
    #[doc(alias = "Get")]
    pub fn get(
        &self,
    ) -> impl Future<Output = Result<Option<SharedLease<K, S>>, Error>> + Send + use<K, S>
    {
        let client = Arc::clone(self.client());
        async move { Ok(get_decoded(&client, 1).await?.pop()) }
    }

    /// Waits for keys: at least one, at most `max`. Returns no keys if this handle is closed.
    ///
    /// One call of the store leases at most 256 keys.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    ///
    /// # Cancel safety
    ///
    /// As that of [`get`](Self::get).
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue_store::{Error, MemoryStore, SharedQueue};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let queue = SharedQueue::<u64, _>::new(MemoryStore::new());
    /// queue.add_all([1, 2, 3]).await?;
    /// let leases = queue.get_many(2).await?;
    /// assert_eq!(leases.len(), 2);
    /// for lease in leases {
    ///     lease.succeed().await?;
    /// }
    /// # Ok::<(), Error>(())
    /// # }).unwrap();
    /// ```
    #[must_use = "leases that are dropped are retried"]
    pub async fn get_many(&self, max: usize) -> Result<Vec<SharedLease<K, S>>, Error> {
        if max == 0 {
            return Ok(Vec::new());
        }
        get_decoded(self.client(), max).await
    }

    /// Waits for a key, at most for `timeout`.
    ///
    /// # Errors
    ///
    /// [`Timeout`](ErrorKind::Timeout) if no key arrived in time,
    /// [`Closed`](ErrorKind::Closed) if this handle is closed, and otherwise as
    /// [`get`](Self::get).
    ///
    /// # Cancel safety
    ///
    /// As that of [`get`](Self::get).
    #[must_use = "a lease that is dropped is retried"]
    pub async fn get_timeout(
        &self,
        timeout: Duration,
    ) -> Result<SharedLease<K, S>, Error> {
        let Some(lease) = race(self.get(), self.client().timer(timeout)).await else {
            let text = format!("no key became ready within {timeout:?}");
            return Err(Error::new(ErrorKind::Timeout, text));
        };
        lease?.ok_or_else(closed)
    }

    /// Takes a ready key without waiting for one. Returns `None` if no key is ready.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get), but without patience.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no key: a key in transit is released.
    #[must_use = "a lease that is dropped is retried"]
    pub async fn try_get(&self) -> Result<Option<SharedLease<K, S>>, Error> {
        Ok(self.try_get_many(1).await?.pop())
    }

    /// Takes up to `max` ready keys, but at most 256, without waiting for them.
    ///
    /// # Errors
    ///
    /// As [`try_get`](Self::try_get).
    ///
    /// # Cancel safety
    ///
    /// As that of [`try_get`](Self::try_get).
    #[must_use = "leases that are dropped are retried"]
    pub async fn try_get_many(
        &self,
        max: usize,
    ) -> Result<Vec<SharedLease<K, S>>, Error> {
        loop {
            let raw = self.client().try_get(max).await?;
            let found = !raw.is_empty();
            let leases = decode_all(raw);
            if !found || !leases.is_empty() {
                return Ok(leases);
            }
        }
    }
}

/// Waits for keys. Returns none if the client is closed.
async fn get_decoded<K: StoreKey, S: Store>(
    client: &Arc<Client<S>>,
    max: usize,
) -> Result<Vec<SharedLease<K, S>>, Error> {
    loop {
        let raw = delivered(client.get(max)).await?;
        let is_closed = raw.is_empty();
        let leases = decode_all(raw);
        if is_closed || !leases.is_empty() {
            return Ok(leases);
        }
    }
}

fn decode_all<K: StoreKey, S: Store>(raw: Vec<RawLease<S>>) -> Vec<SharedLease<K, S>> {
    raw.into_iter().filter_map(RawLease::decode).collect()
}
