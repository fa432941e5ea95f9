//! A queue of keys for code that must bring things to their right state.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod clock;
mod error;
pub mod metrics;
mod queue;
pub mod rate;
pub mod retry;
mod sync;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use clock::{Clock, SystemClock, Timer};
pub use error::{DrainTimeout, TryGetError};
pub use queue::order;
pub use queue::{
    AddOptions, Added, AddedAll, Batch, Builder, Counts, Drain, Finish, Get, GetMany,
    Lease, Queue, WaitIdle,
};
