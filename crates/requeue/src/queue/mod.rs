//! The queue.

pub mod order;
