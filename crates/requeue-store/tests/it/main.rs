//! The rules of stores, tested on the store in memory, and the queue on top of it.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod conformance;
mod shared;
