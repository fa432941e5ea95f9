//! Rate limiters.

mod bucket;
mod error;
mod hierarchy;
mod keyed;
#[cfg(feature = "tower")]
mod layer;
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

pub use error::{InvalidLimit, InvalidPace, InvalidShare, ReserveError, WaitError};
pub use hierarchy::{Hierarchy, Share};
pub use keyed::Keyed;
#[cfg(feature = "tower")]
#[cfg_attr(docsrs, doc(cfg(feature = "tower")))]
pub use layer::{RateLimit, RateLimitLayer};
pub use limit::Limit;
pub use limiter::Limiter;
pub use pacer::{Pacer, PacerBuilder};
pub use reservation::Reservation;
pub use sometimes::Sometimes;
pub use window::Window;
