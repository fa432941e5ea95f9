//! The promises of the queue, one file for each.
mod smoke;
mod vectors;
