//! The promises of the queue, one file for each.

mod clock;
mod pool;
mod smoke;
mod vectors;
