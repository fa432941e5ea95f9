//! The promises of the queue, one file for each.

mod clock;
mod smoke;
mod vectors;
