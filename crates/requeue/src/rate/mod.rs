//! Rate limiters.
