//! Runs the real command in folders of its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod ending;
mod execution;
mod harness;
mod input;
mod load;
mod output;
mod policy;
mod proxy;
mod record;
mod store;
mod store_faults;
mod store_workers;
mod stores;
mod terminal;
mod texts;
