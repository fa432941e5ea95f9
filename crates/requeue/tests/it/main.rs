//! The promises of the queue, one file for each.

mod clock;
mod helpers;
mod mixed;
mod vectors;
