//! Tests on a PostgreSQL server that `scripts/with-servers` starts.

mod conformance;
mod durability;
mod faults;
mod locks;
mod races;
mod schema;
#[cfg(feature = "tls")]
mod tls;
mod tools;
mod versions;
