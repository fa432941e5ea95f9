//! Inspecting, forgetting and cancelling keys.

use super::SharedQueue;
use crate::{Error, Key, Look, Phase, RepliesExt, Stats, Store, StoreKey};

impl<K: StoreKey, S: Store> SharedQueue<K, S> {
    /// Resets the failures of a key.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    #[doc(alias = "Forget")]
    pub async fn forget(&self, key: &K) -> Result<(), Error> {
        self.store().forget(&[Key::new(key.encode())?]).all().await.map(drop)
    }

    /// Cancels a pending key. Returns whether it was ready, delayed or dirty.
    ///
    /// A lease on the key continues.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub async fn remove(&self, key: &K) -> Result<bool, Error> {
        Ok(self.store().remove(&[Key::new(key.encode())?]).all().await?.contains(&true))
    }

    /// Returns how often a key has failed since its failures were last forgotten.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    #[doc(alias = "NumRequeues")]
    #[must_use = "asking the store changes nothing"]
    pub async fn num_requeues(&self, key: &K) -> Result<u32, Error> {
        Ok(self.look(key).await?.failures)
    }

    /// Returns whether a key is ready, delayed or being processed.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    #[must_use = "asking the store changes nothing"]
    pub async fn contains(&self, key: &K) -> Result<bool, Error> {
        let Look { phase, delayed, .. } = self.look(key).await?;
        Ok(delayed.is_some() || matches!(phase, Phase::Ready | Phase::Processing { .. }))
    }

    /// Returns the state of a key.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    #[must_use = "asking the store changes nothing"]
    pub async fn look(&self, key: &K) -> Result<Look, Error> {
        let looks = self.store().look(&[Key::new(key.encode())?]).all().await?;
        Ok(looks.into_iter().next().unwrap_or_default())
    }

    /// Returns how many keys of the whole queue are in each state.
    ///
    /// The gauges in the queue's [metrics](crate::SharedQueueBuilder::metrics) show the result of
    /// the last call; after a failed call they show nothing.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub async fn stats(&self) -> Result<Stats, Error> {
        let stats = self.store().stats().await;
        self.client().measure(|meter| meter.set_stats(stats.as_ref().ok().copied()));
        stats
    }

    /// Returns how many keys are ready.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    #[expect(clippy::len_without_is_empty, reason = "asking a store is not free")]
    #[must_use = "asking the store changes nothing"]
    pub async fn len(&self) -> Result<u64, Error> {
        Ok(self.stats().await?.ready)
    }
}
