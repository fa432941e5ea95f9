//! The promises of the library, one file for each.

#![allow(clippy::unwrap_used, reason = "a panic fails the test, in helpers as well")]

mod cancel;
mod clock;
mod close;
mod dedup;
mod delay;
mod errors;
mod fifo;
mod handles;
mod helpers;
mod layout;
mod lease;
mod million;
mod mixed;
mod order;
mod panics;
mod pictures;
mod pool;
mod rate;
mod regressions;
mod retry;
mod timing;
mod traits;
mod vectors;
