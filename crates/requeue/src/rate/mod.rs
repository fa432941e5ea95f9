//! Rate limiters: Go's `x/time/rate` and Uber's `ratelimit` for Rust.
//!
//! ```
//! use requeue::rate::{Limit, Limiter};
//!
//! // Ten requests a second, five of them at once.
//! let limiter = Limiter::new(Limit::per_second(10.0), 5);
//! for _request in 0..3 {
//!     limiter.wait_blocking()?; // or `wait().await`
//!     // send it
//! }
//! # Ok::<(), requeue::rate::WaitError>(())
//! ```
//!
//! This module stands on its own: nothing in it knows of queues, and it needs no runtime,
//! no thread and no feature.
//!
//! # Which one
//!
//! | you want to | use |
//! |---|---|
//! | keep to so many events a second, with bursts | [`Limiter`] |
//! | spread events evenly, one after the other | [`Pacer`] |
//! | have no more than so many events in any minute | [`Window`] |
//! | divide a limit among tenants that lend to each other | [`Hierarchy`] |
//! | give every user or address a limit of its own | [`Keyed`] |
//! | make tower services wait | `RateLimitLayer`, feature `tower` |
//! | answer HTTP requests with 429, per client | `KeyedRateLimitLayer`, feature `tower` |
//! | do something, such as logging, only now and then | [`Sometimes`] |
//!
//! The page `docs/LIMITERS.md` of the repository shows how they differ, with pictures.
//!
//! All of them can be shared between threads and tasks, and clones of a limiter or a pacer
//! share one state. A call of either that does not wait costs little more than reading the
//! clock and takes no lock. Callers that wait line up under a lock.
//!
//! # Limits and bursts
//!
//! A [`Limiter`] is a bucket of tokens. It holds up to *burst* of them, starts full, and
//! gains [`Limit`] tokens a second. An event takes one token, or several. So bursts of
//! events pass at once, and in the long run no more than the limit.
//!
//! Choose the burst as the number of events that may happen together, at least the largest
//! number of tokens that is ever asked for at once: more than the burst is never granted.
//!
//! ```
//! use std::time::Duration;
//! use requeue::rate::{Limit, Limiter};
//!
//! assert_eq!(Limit::every(Duration::from_millis(250)), Limit::per_second(4.0));
//! let closed = Limiter::new(Limit::ZERO, 1); // the burst, and then nothing
//! assert!(closed.allow());
//! assert!(!closed.allow());
//! let open = Limiter::new(Limit::INF, 0); // everything, whatever the burst
//! assert!(open.allow_n(1_000_000));
//! ```
//!
//! # Allow: drop what is too much
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
//! one. Both kinds of callers share one line and are served in order. Only the first
//! holds a token, so a caller that gives up costs the others nothing. A deadline that cannot
//! be met is refused at once.
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
//! [`Limiter::reserve`] takes a token from the future and returns when it may be used: for
//! callers that schedule the event themselves, or may cancel it. [`Limiter::peek`] returns
//! the same time and takes nothing.
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
//! Limit, burst and the tokens themselves can change while the limiter is in use, for
//! instance by what a server reports.
//!
//! ```
//! use requeue::rate::{Limit, Limiter};
//!
//! let limiter = Limiter::new(Limit::per_second(0.001), 100);
//! limiter.set_tokens(0); // the server says: enough for now
//! assert!(!limiter.allow());
//! limiter.set_limit(Limit::INF);
//! assert!(limiter.allow());
//! ```
//!
//! # Pacing
//!
//! A [`Pacer`] knows no bursts: it gives each caller the next of evenly spaced slots. Some
//! of the slots that nobody used can be made up for, as many as its *slack*.
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
//! # Now and then
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
//! The clock is the system's monotonic one, or any [`Clock`](crate::Clock): with a fake one
//! a test moves time by hand and sleeps nowhere. `allow`, `reserve`, `tokens`, `peek`,
//! `cancel` and the setters also come with an explicit time, and then need no clock at all.
//!
//! # Differences from the Go packages
//!
//! Calls with an explicit time return the results of x/time/rate, to the last bit. These
//! differences are deliberate:
//!
//! * Refusals are errors that say why: [`ReserveError`], [`WaitError`].
//! * A wait without end is an error, not a reservation for in 292 years.
//! * Callers that wait line up instead of reserving. In Go each cancelled wait leaves a gap,
//!   and a limiter in front of clients with timeouts may serve none of them.
//! * [`Reservation::cancel`] consumes the reservation: nothing is given back twice, and
//!   nothing that was never taken, as by a reservation made while there was no limit.
//! * Calls that read the clock never exceed `burst + limit × time`. In Go late clock
//!   readings and reservations cancelled out of order do.
//! * A limit is never NaN or negative: see [`Limit::per_second`].
//! * A [`Pacer`] carries the remainder of a division, so 7 a minute are exactly 7 a minute.
//!   It uses a monotonic clock, has [`Pacer::try_take`], and a dropped take leaves its slot
//!   to the next caller.
//! * [`Sometimes`] holds no lock while the action runs.

#![expect(
    clippy::inline_always,
    reason = "measured: without it the calls of a limiter take a quarter more instructions"
)]

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
