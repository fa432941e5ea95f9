//! The queue on disk, with real files.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod conformance;
mod crash;
mod image;
mod open;
mod reopen;
mod support;
