//! The controller: watches, a queue and workers.

use std::marker::PhantomData;

/// Reconciles objects of the kind `K`.
#[derive(Debug)]
pub struct Controller<K>(PhantomData<K>);

impl<K> Controller<K> {
    /// Limits how often in a row an object is retried.
    #[must_use]
    pub fn max_retries(self, _retries: u32) -> Self {
        self
    }
}
