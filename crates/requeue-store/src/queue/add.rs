//! Adding keys.

use std::time::{Duration, Instant};

use requeue::{AddOptions, Added, AddedAll, Clock};

use super::{AddError, SharedQueue, closed};
use crate::client::batch::answered;
use crate::{Add, Backoff, Error, Key, Receipt, Store, StoreKey, When};

impl<K: StoreKey, S: Store> SharedQueue<K, S> {
    /// Adds a key. It runs once after this call.
    ///
    /// # Errors
    ///
    /// [`Closed`](crate::ErrorKind::Closed) if this handle is [closed](Self::close), and
    /// [`Invalid`](crate::ErrorKind::Invalid) if the key is longer than [`Key::MAX_LEN`]. Errors of
    /// the store are returned after the queue's [patience](crate::SharedQueueBuilder::patience),
    /// for example [`Busy`](crate::ErrorKind::Busy) if a transaction locked the key for that long.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the key may or may not be added. Adding it again costs at
    /// worst one more run.
    #[doc(alias = "Add")]
    pub async fn add(&self, key: K) -> Result<Added, AddError<K>> {
        self.send_key(key, Ok(When::Now)).await.map(|receipt| receipt.added)
    }

    /// As [`add`](Self::add), without moving the key.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    ///
    /// # Cancel safety
    ///
    /// As that of [`add`](Self::add).
    pub async fn add_ref(&self, key: &K) -> Result<Added, Error> {
        Ok(self.send(self.to_add(key, When::Now)?).await?.added)
    }

    /// Adds keys in as few calls as possible.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add), with the first error and the keys that were not added, in
    /// order. The other keys were added.
    ///
    /// # Cancel safety
    ///
    /// As that of [`add`](Self::add).
    pub async fn add_all(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<AddedAll, AddError<Vec<K>>> {
        let keys: Vec<K> = keys.into_iter().collect();
        let encoded = keys.iter().map(|key| self.to_add(key, When::Now)).collect();
        let adds: Vec<Add> = match encoded {
            Ok(_) if self.is_closed() => return Err(AddError::new(keys, closed())),
            Ok(adds) => adds,
            Err(error) => return Err(AddError::new(keys, error)),
        };
        let (mut all, mut failed, mut first) = (AddedAll::default(), Vec::new(), None);
        for (key, answer) in keys.into_iter().zip(self.client().add_all(adds)) {
            match answered(answer).await {
                Ok(receipt) => count(&mut all, receipt.added),
                Err(error) => {
                    failed.push(key);
                    first.get_or_insert(error);
                }
            }
        }
        first.map_or(Ok(all), |error| Err(AddError::new(failed, error)))
    }

    /// Adds a key after `delay` on the store's clock. If the key is delayed already, the
    /// earlier time wins.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    ///
    /// # Cancel safety
    ///
    /// As that of [`add`](Self::add).
    #[doc(alias = "AddAfter")]
    pub async fn add_after(&self, key: K, delay: Duration) -> Result<Added, AddError<K>> {
        self.send_key(key, Ok(When::After(delay))).await.map(|receipt| receipt.added)
    }

    /// Adds a key at a time of this process's [clock](crate::SharedQueueBuilder::clock), as
    /// [`add_after`](Self::add_after) with the time until then.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    ///
    /// # Cancel safety
    ///
    /// As that of [`add`](Self::add).
    pub async fn add_at(&self, key: K, at: Instant) -> Result<Added, AddError<K>> {
        let delay = at.saturating_duration_since(self.client().settings.clock.now());
        self.add_after(key, delay).await
    }

    /// Counts a failure of a key and adds it after the delay that the queue's backoff
    /// chooses.
    ///
    /// With a [retry policy](crate::SharedQueueBuilder::retry) the queue first asks the store
    /// how often the key has failed.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    ///
    /// # Cancel safety
    ///
    /// As that of [`add`](Self::add).
    #[doc(alias = "AddRateLimited")]
    pub async fn add_rate_limited(&self, key: K) -> Result<Receipt, AddError<K>> {
        let when = self.backoff_of(&key).await.map(When::RateLimited);
        self.send_key(key, when).await
    }

    /// Adds a key with options.
    ///
    /// Higher priorities are delivered first; a store accepts -128 to 127. If the options
    /// have both a delay and the backoff, the shorter one is used, but never less than the
    /// queue's [rate](Backoff::rate) allows.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add), and [`Invalid`](crate::ErrorKind::Invalid) if the priority is out of
    /// range.
    ///
    /// # Cancel safety
    ///
    /// As that of [`add`](Self::add).
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue::AddOptions;
    /// use requeue_store::{Error, MemoryStore, SharedQueue};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let queue = SharedQueue::<String, _>::new(MemoryStore::new());
    /// queue.add("nightly".to_owned()).await?;
    /// queue.add_with("urgent".to_owned(), AddOptions::new().priority(10)).await?;
    /// let lease = queue.get().await?.expect("two keys are ready");
    /// assert_eq!((lease.key().as_str(), lease.priority()), ("urgent", 10));
    /// # lease.succeed().await?;
    /// # Ok::<(), Error>(())
    /// # }).unwrap();
    /// ```
    #[doc(alias = "AddWithOpts")]
    pub async fn add_with(
        &self,
        key: K,
        options: AddOptions,
    ) -> Result<Receipt, AddError<K>> {
        match self.to_add_with(&key, options).await {
            Ok(add) => self.send(add).await.map_err(|error| AddError::new(key, error)),
            Err(error) => Err(AddError::new(key, error)),
        }
    }

    async fn to_add_with(&self, key: &K, options: AddOptions) -> Result<Add, Error> {
        let AddOptions { after, rate_limited, priority, .. } = options;
        let when = match (rate_limited, after) {
            (false, None) => When::Now,
            (false, Some(delay)) => When::After(delay),
            (true, limit) => {
                let backoff = self.backoff_of(key).await?;
                let max = limit.map_or(backoff.max, |limit| limit.min(backoff.max));
                When::RateLimited(Backoff { max, ..backoff })
            }
        };
        self.to_add(key, when)?.with_priority(priority.unwrap_or_default())
    }

    /// Returns the backoff for the next failure of a key.
    async fn backoff_of(&self, key: &K) -> Result<Backoff, Error> {
        let settings = &self.client().settings;
        let failures = match settings.retry {
            Some(_) if !self.is_closed() => self.num_requeues(key).await?,
            _ => 0,
        };
        Ok(settings.backoff_after(failures))
    }

    async fn send_key(
        &self,
        key: K,
        when: Result<When, Error>,
    ) -> Result<Receipt, AddError<K>> {
        match when.and_then(|when| self.to_add(&key, when)) {
            Ok(add) => self.send(add).await.map_err(|error| AddError::new(key, error)),
            Err(error) => Err(AddError::new(key, error)),
        }
    }

    async fn send(&self, add: Add) -> Result<Receipt, Error> {
        if self.is_closed() {
            return Err(closed());
        }
        answered(self.client().add(add)).await
    }

    /// Returns the add of a key with the settings of this queue, without sending it.
    ///
    /// Use it to call the store directly, for example to add a key in a transaction. Report
    /// the result with [`count_added`](Self::count_added) if the queue has metrics.
    ///
    /// # Errors
    ///
    /// [`Invalid`](crate::ErrorKind::Invalid) if the key is too long.
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue_store::{Error, MemoryStore, RepliesExt, SharedQueue, Store, When};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let queue = SharedQueue::<u64, _>::new(MemoryStore::new());
    /// let adds = [queue.to_add(&7, When::Now)?];
    /// let receipts = queue.store().add(&adds).all().await?;
    /// queue.count_added(&adds, &receipts);
    /// assert_eq!(queue.len().await?, 1);
    /// # Ok::<(), Error>(())
    /// # }).unwrap();
    /// ```
    pub fn to_add(&self, key: &K, when: When) -> Result<Add, Error> {
        let revive_after = self.client().settings.revive_after;
        Ok(Add { revive_after, ..Add::new(Key::new(key.encode())?, when) })
    }

    /// Counts adds in the queue's [metrics](crate::SharedQueueBuilder::metrics) that were sent to
    /// the store directly; see [`to_add`](Self::to_add).
    pub fn count_added(&self, adds: &[Add], receipts: &[Receipt]) {
        for (add, receipt) in adds.iter().zip(receipts) {
            self.client().measure(|meter| meter.added(add, receipt));
        }
    }
}

fn count(all: &mut AddedAll, added: Added) {
    match added {
        Added::Dirty => all.dirty += 1,
        Added::Duplicate => all.duplicate += 1,
        Added::Ready | Added::Delayed | _ => all.ready += 1,
    }
}
