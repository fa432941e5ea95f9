//! Tests on a PostgreSQL server that `scripts/with-servers` starts.

mod classes;
mod conformance;
mod counts;
mod durability;
mod failover;
mod faults;
mod grants;
mod hangs;
mod locks;
mod pooler;
mod proxy;
mod races;
mod schema;
#[cfg(feature = "tls")]
mod tls;
mod tools;
mod versions;
