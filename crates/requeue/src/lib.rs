//! A queue of keys for code that must bring things to their right state.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod clock;
pub mod metrics;
mod queue;
pub mod rate;
pub mod retry;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use clock::{Clock, SystemClock, Timer};
pub use queue::order;
