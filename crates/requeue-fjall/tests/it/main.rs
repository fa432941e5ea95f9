//! The store on real files.
#![allow(clippy::unwrap_used, reason = "test helpers")]
#![allow(clippy::print_stdout, reason = "a child process reports its progress on stdout")]

mod conformance;
mod crash;
mod full_disk;
mod image;
mod migration;
mod open;
mod reopen;
mod support;
mod waiting;
