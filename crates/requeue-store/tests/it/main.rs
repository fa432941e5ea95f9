//! The promises of stores, kept by the one in memory, and the queue on top of it.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod conformance;
mod shared;
