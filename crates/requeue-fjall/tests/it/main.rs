//! The queue on disk, with real files.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod open;
mod reopen;
mod support;
