//! The promises of the library, one file for each.

mod cancel;
mod clock;
mod close;
mod delay;
mod errors;
mod fair;
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
mod regressions;
mod retry;
mod stingy;
mod timing;
mod traits;
mod vectors;
