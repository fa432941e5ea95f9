//! What the store promises beyond the suite of all stores, on a real server.
#![allow(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

mod cluster;
mod conformance;
mod cost;
mod faults;
mod line;
mod model;
mod moving;
mod nodes;
mod opening;
mod plain;
mod ranked;
mod server;
mod tls;
