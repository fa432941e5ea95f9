//! Tokens of one key, taken ahead of time.

use std::fmt;
use std::hash::Hash;
use std::time::{Duration, Instant};

use super::Keyed;
use crate::rate::bucket::Grant;
use crate::rate::moment::duration;

/// Tokens of one key of a [`Keyed`] limiter that may be used from some time on.
///
/// It keeps its limiter alive, so it can be sent anywhere. Wait for [`delay`](Self::delay)
/// and act, or give the tokens back with [`cancel`](Self::cancel). Dropping a reservation
/// gives nothing back.
#[must_use = "the tokens are taken: wait for them, or cancel"]
pub struct KeyedReservation<K> {
    keyed: Keyed<K>,
    key: K,
    grant: Grant,
}

impl<K> KeyedReservation<K> {
    pub(super) fn new(keyed: Keyed<K>, key: K, grant: Grant) -> Self {
        Self { keyed, key, grant }
    }

    /// Returns the key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Returns how long to wait from now on before acting; zero if the time has come.
    pub fn delay(&self) -> Duration {
        duration(self.grant.ready.since(self.keyed.now()))
    }

    /// Returns when to act.
    pub fn time_to_act(&self) -> Instant {
        self.keyed.shared.timeline.instant(self.grant.ready)
    }

    /// Gives the tokens back, as far as the limit permits.
    ///
    /// See [`Reservation::cancel`](crate::rate::Reservation::cancel).
    pub fn cancel(self)
    where
        K: Eq + Hash,
    {
        if let Some(claim) = self.grant.claim {
            self.keyed.cancel(&self.key, claim);
        }
    }
}

impl<K> fmt::Debug for KeyedReservation<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedReservation")
            .field("time_to_act", &self.time_to_act())
            .finish_non_exhaustive()
    }
}
