//! Runs the real command, each test in a new directory.

#![allow(clippy::unwrap_used, reason = "a panic shows where a test failed")]

mod command;
mod harness;
mod hostile;
mod input;
mod load;
mod log;
mod outage;
mod output;
mod own_redis;
mod password;
mod proxy;
mod scheduling;
mod shutdown;
mod store;
mod store_errors;
mod terminal;
mod test_store;
mod usage;
mod workers;
