//! Rate limiters.

mod bucket;
mod error;
mod limit;
mod limiter;
mod moment;
mod pace;
mod pacer;
mod reservation;
mod sometimes;
mod versioned;
mod wait;

pub use error::{InvalidLimit, InvalidPace, ReserveError, WaitError};
pub use limit::Limit;
pub use limiter::Limiter;
pub use pacer::{Pacer, PacerBuilder};
pub use reservation::Reservation;
pub use sometimes::Sometimes;
