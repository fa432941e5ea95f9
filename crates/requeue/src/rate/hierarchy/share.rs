//! The part of a parent's rate that a child gets.

use crate::rate::bucket::Rate;
use crate::rate::error::InvalidShare;
use crate::rate::limit::Limit;

/// What a child of a [`Hierarchy`](super::Hierarchy) is guaranteed, and its upper bound.
///
/// # Examples
///
/// ```
/// use requeue::rate::{Limit, Share};
///
/// // Guaranteed 10 per second; up to 100 per second if others leave that much.
/// let share = Share::new(Limit::per_second(10.0), 5).ceil(Limit::per_second(100.0), 20);
/// // Nothing guaranteed: only what others leave.
/// let rest = Share::new(Limit::ZERO, 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[must_use = "a share is for `Hierarchy::child`"]
pub struct Share {
    pub(super) limit: Limit,
    pub(super) burst: u32,
    #[cfg_attr(feature = "serde", serde(default))]
    pub(super) ceil: Option<Rate>,
}

impl Share {
    /// Guarantees `limit` tokens per second, and `burst` of them at once, without a ceiling.
    #[doc(alias = "rate")]
    pub fn new(limit: Limit, burst: u32) -> Self {
        Self { limit, burst, ceil: None }
    }

    /// Sets an upper bound for guaranteed and borrowed tokens together.
    pub fn ceil(mut self, limit: Limit, burst: u32) -> Self {
        self.ceil = Some(Rate { limit, burst });
        self
    }

    /// Returns an error if the ceiling is below the guarantee.
    pub(super) fn check_ceil(&self) -> Result<(), InvalidShare> {
        match self.ceil {
            Some(ceil) if ceil.limit < self.limit => {
                Err(InvalidShare::CeilBelowLimit { ceil: ceil.limit, limit: self.limit })
            }
            Some(ceil) if ceil.burst < self.burst => {
                Err(InvalidShare::CeilBelowBurst { ceil: ceil.burst, burst: self.burst })
            }
            Some(_) | None => Ok(()),
        }
    }
}
