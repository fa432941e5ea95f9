//! Limiters in the programs of their users: in a router, in a configuration file.

#[cfg(feature = "serde")]
mod config;
#[cfg(feature = "tower")]
mod router;
