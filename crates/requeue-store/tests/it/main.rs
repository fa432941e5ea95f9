//! The in-memory store passes the conformance suite, and `SharedQueue` works on top of it.
#![allow(clippy::unwrap_used, reason = "test helpers")]

mod conformance;
mod shared;
