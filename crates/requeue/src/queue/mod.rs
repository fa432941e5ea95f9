//! The queue.

mod delay;
pub mod order;
