//! Promises of this store beyond the conformance suite, on real servers.
#![allow(clippy::unwrap_used, reason = "a failed set-up fails the test")]

mod cluster;
mod conformance;
mod connections;
mod cost;
mod durability;
mod errors;
mod faults;
mod migration;
mod model;
mod open;
mod permissions;
mod priority;
mod sentinel;
mod single;
mod stale;
mod support;
mod tls;
mod version;
mod waiting;
