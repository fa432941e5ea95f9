//! Rate limiters.

mod bucket;
mod error;
mod keyed;
mod limit;
mod limiter;
mod moment;
mod pace;
mod pacer;
mod reservation;
mod sometimes;
pub(crate) mod table;
mod versioned;
mod wait;
mod window;

pub use error::{InvalidLimit, InvalidPace, ReserveError, WaitError};
pub use keyed::Keyed;
pub use limit::Limit;
pub use limiter::Limiter;
pub use pacer::{Pacer, PacerBuilder};
pub use reservation::Reservation;
pub use sometimes::Sometimes;
pub use window::Window;
