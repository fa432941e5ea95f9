//! Rate limiters: Go's `x/time/rate` and Uber's `ratelimit` for Rust.
//!
//! ```
//! use requeue::rate::{Limit, Limiter};
//!
//! // Ten requests per second, up to five at once.
//! let limiter = Limiter::new(Limit::per_second(10.0), 5);
//! for _request in 0..3 {
//!     limiter.wait_blocking()?; // or `wait().await`
//!     // send it
//! }
//! # Ok::<(), requeue::rate::WaitError>(())
//! ```
//!
//! This module is independent of queues. It needs no runtime, no background thread and no
//! feature.
//!
//! # Which one
//!
//! | you want to | use |
//! |---|---|
//! | limit the rate of events, with bursts | [`Limiter`] |
//! | space events evenly | [`Pacer`] |
//! | allow at most 100 events in any minute | [`Window`] |
//! | divide a limit among tenants that can borrow from each other | [`Hierarchy`] |
//! | limit each user or address | [`Keyed`] |
//! | make tower services wait | `RateLimitLayer`, feature `tower` |
//! | answer HTTP requests with 429, per client | `KeyedRateLimitLayer`, feature `tower` |
//! | log or sample only some calls | [`Sometimes`] |
//!
//! `docs/LIMITERS.md` in the repository compares them, with pictures.
//!
//! All of them can be shared between threads and tasks. Clones of a limiter share its state.
//! A call of a `Limiter` or a `Pacer` that does not wait costs little more than reading the
//! clock.
//!
//! # Limits and bursts
//!
//! A [`Limiter`] is a token bucket. It holds up to *burst* tokens, starts full, and gains
//! [`Limit`] tokens per second. An event takes one token, or several. So bursts of events
//! pass at once, but in the long run no more than the limit.
//!
//! Choose the burst as the number of events that may happen together. A request for more
//! tokens than the burst is always refused.
//!
//! ```
//! use std::time::Duration;
//! use requeue::rate::{Limit, Limiter};
//!
//! assert_eq!(Limit::every(Duration::from_millis(250)), Limit::per_second(4.0));
//! let closed = Limiter::new(Limit::ZERO, 1); // only the burst
//! assert!(closed.allow());
//! assert!(!closed.allow());
//! let open = Limiter::new(Limit::INF, 0); // everything
//! assert!(open.allow_n(1_000_000));
//! ```
//!
//! # Allow: drop excess events
//!
//! [`Limiter::allow`] takes a token if one is available, and returns whether it did.
//!
//! ```
//! use requeue::rate::{Limit, Limiter};
//!
//! let limiter = Limiter::new(Limit::per_second(1.0), 2);
//! let served = (0..10).filter(|_| limiter.allow()).count();
//! assert_eq!(served, 2);
//! ```
//!
//! # Wait: slow down
//!
//! [`Limiter::wait`] waits for a token, and [`Limiter::wait_blocking`] blocks its thread for
//! one. Both kinds of callers share one line and are served in order. Only the first holds a
//! token, so a caller that gives up costs the others nothing. A wait that would exceed its
//! deadline is refused at once.
//!
//! ```
//! use std::time::Duration;
//! use requeue::rate::{Limit, Limiter, WaitError};
//! use requeue::testing::FakeClock;
//!
//! let clock = FakeClock::new();
//! let limiter = Limiter::with_clock(Limit::per_second(1.0), 1, clock.clone());
//! let deadline = clock.now() + Duration::from_millis(500);
//! assert_eq!(limiter.wait_blocking_deadline(deadline), Ok(()));
//! assert!(matches!(
//!     limiter.wait_blocking_deadline(deadline),
//!     Err(WaitError::Timeout { .. }),
//! ));
//! ```
//!
//! # Reserve: decide later
//!
//! [`Limiter::reserve`] takes a token from the future and returns when it may be used. Use it
//! to schedule the event yourself, or to cancel it. [`Limiter::peek`] returns the wait and
//! takes nothing.
//!
//! ```
//! use std::time::Duration;
//! use requeue::rate::{Limit, Limiter};
//! use requeue::testing::FakeClock;
//!
//! let clock = FakeClock::new();
//! let limiter = Limiter::with_clock(Limit::per_second(1.0), 1, clock);
//! assert!(limiter.allow());
//! let reservation = limiter.reserve()?;
//! assert_eq!(reservation.delay(), Duration::from_secs(1));
//! reservation.cancel();
//! assert_eq!(limiter.peek(), Ok(Duration::from_secs(1)));
//! # Ok::<(), requeue::rate::ReserveError>(())
//! ```
//!
//! # Changing limits
//!
//! Limit, burst and the tokens themselves can change at any time, for example to follow the
//! limit that a server reports.
//!
//! ```
//! use requeue::rate::{Limit, Limiter};
//!
//! let limiter = Limiter::new(Limit::per_second(0.001), 100);
//! limiter.set_tokens(0); // the server reports that no calls are left
//! assert!(!limiter.allow());
//! limiter.set_limit(Limit::INF);
//! assert!(limiter.allow());
//! ```
//!
//! # Pacing
//!
//! A [`Pacer`] has no bursts: it gives each caller the next of evenly spaced slots. A few
//! unused slots, its *slack*, can be used later.
//!
//! ```
//! use std::time::Duration;
//! use requeue::rate::Pacer;
//!
//! let pacer = Pacer::builder(100).slack(0).build();
//! let first = pacer.take_blocking();
//! let second = pacer.take_blocking();
//! assert_eq!(second - first, Duration::from_millis(10));
//! ```
//!
//! # Sampling
//!
//! ```
//! use requeue::rate::Sometimes;
//!
//! let sometimes = Sometimes::new().first(3).every(100);
//! let lines = (0..300).filter(|_| sometimes.run(|| ()).is_some()).count();
//! assert_eq!(lines, 5); // calls 0, 1, 2, 100 and 200
//! ```
//!
//! # Time
//!
//! The default clock is the monotonic system clock. With another [`Clock`](crate::Clock), such
//! as a fake one, a test moves time by hand and does not sleep. `allow`, `reserve`, `tokens`,
//! `peek`, `cancel` and the setters of a `Limiter` have forms with an explicit time, which read
//! no clock.
//!
//! # Differences from the Go packages
//!
//! Calls with an explicit time return the results of x/time/rate, to the last bit. These
//! differences are deliberate:
//!
//! * Refusals are errors with a reason: [`ReserveError`], [`WaitError`].
//! * An endless wait is an error, not a reservation in 292 years.
//! * Waiting callers line up instead of reserving. In Go each cancelled wait leaves a gap, and
//!   a limiter in front of clients with timeouts may serve none of them.
//! * [`Reservation::cancel`] consumes the reservation, so nothing is given back twice. A
//!   reservation made without a limit gives nothing back.
//! * Calls that read the clock never exceed `burst + limit × time`. In Go they do, after late
//!   clock readings and after reservations are cancelled out of order.
//! * A limit is never NaN or negative; see [`Limit::per_second`].
//! * A [`Pacer`] carries the remainder of a division, so 7 per minute is exactly 7 per minute.
//!   It uses a monotonic clock, has [`Pacer::try_take`], and a cancelled take leaves its slot
//!   to the next caller.
//! * [`Sometimes`] holds no lock while the action runs.

mod bucket;
mod error;
mod hierarchy;
mod keyed;
#[cfg(feature = "tower")]
mod keyed_layer;
#[cfg(feature = "tower")]
mod layer;
mod limit;
mod limiter;
mod line;
mod moment;
mod pacer;
mod sometimes;
mod versioned;
mod window;

#[cfg(test)]
mod tests;

pub use error::{InvalidLimit, InvalidPace, InvalidShare, ReserveError, WaitError};
pub use hierarchy::{Hierarchy, Share};
pub use keyed::{Keyed, KeyedReservation};
#[cfg(feature = "tower")]
#[cfg_attr(docsrs, doc(cfg(feature = "tower")))]
pub use keyed_layer::{KeyedRateLimit, KeyedRateLimitFuture, KeyedRateLimitLayer};
#[cfg(feature = "tower")]
#[cfg_attr(docsrs, doc(cfg(feature = "tower")))]
pub use layer::{RateLimit, RateLimitLayer};
pub use limit::Limit;
pub use limiter::{Limiter, Reservation};
pub use pacer::{Pacer, PacerBuilder};
pub use sometimes::Sometimes;
pub use window::Window;
