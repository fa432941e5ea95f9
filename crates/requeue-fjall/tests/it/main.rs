//! The queue on disk, with real files.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]
#![allow(clippy::print_stdout, reason = "how a process that is killed tells what it did")]

mod conformance;
mod crash;
mod image;
mod open;
mod reopen;
mod support;
