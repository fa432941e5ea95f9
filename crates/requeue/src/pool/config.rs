//! The settings of one pool that all its workers share.

use std::sync::Arc;
use std::time::Duration;

use super::outcome::Failure;
use super::time::Time;
use crate::contain::contain;
use crate::metrics::PoolRecorder;

/// Called with a key that failed.
pub(super) type OnFailure<K, E> = Box<dyn Fn(&K, &Failure<E>) + Send + Sync>;

pub(super) struct Config<K, E> {
    pub(super) name: String,
    pub(super) time: Time,
    pub(super) timeout: Option<Duration>,
    pub(super) max_retries: Option<u32>,
    pub(super) on_failure: Option<OnFailure<K, E>>,
    pub(super) on_dead: Option<OnFailure<K, E>>,
    pub(super) recorder: Recording,
}

/// The recorder of a pool, if it has one. Its panics are contained, each call by itself.
#[derive(Clone)]
pub(super) struct Recording(Option<Arc<dyn PoolRecorder>>);

impl Recording {
    pub(super) fn new(recorder: Option<Box<dyn PoolRecorder>>) -> Self {
        Self(recorder.map(Into::into))
    }

    pub(super) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn record(&self, event: impl FnOnce(&dyn PoolRecorder)) {
        if let Some(recorder) = &self.0 {
            contain(|| event(&**recorder));
        }
    }
}
