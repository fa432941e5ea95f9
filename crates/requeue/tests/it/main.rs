//! What the library promises, one module for each promise.

mod clock;
