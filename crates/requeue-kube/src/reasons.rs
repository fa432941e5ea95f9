//! Why an object is reconciled.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::ops::{BitOr, BitOrAssign};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The reasons of one run, merged over all events since the last run.
///
/// Reasons are for logs and metrics. A reconciler that does less for some reasons misses
/// changes that were merged.
///
/// # Examples
///
/// ```
/// use requeue_kube::Reasons;
///
/// let reasons = Reasons::CHANGED | Reasons::OWNED;
/// assert!(reasons.contains(Reasons::OWNED));
/// assert_eq!(reasons.to_string(), "changed, owned");
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Reasons(u16);

impl Reasons {
    /// The object was in the initial list, or unchanged in a later one.
    pub const LISTED: Self = Self(1);
    /// The object was created or changed.
    pub const CHANGED: Self = Self(1 << 1);
    /// The object was deleted.
    pub const DELETED: Self = Self(1 << 2);
    /// An object that it owns changed.
    pub const OWNED: Self = Self(1 << 3);
    /// A watched object that maps to it changed.
    pub const MAPPED: Self = Self(1 << 4);
    /// The last run failed.
    pub const RETRY: Self = Self(1 << 5);
    /// All objects are reconciled from time to time.
    pub const RESYNC: Self = Self(1 << 6);
    /// A stream of [`reconcile_on`](crate::Controller::reconcile_on) asked for it.
    pub const REQUESTED: Self = Self(1 << 7);
    /// None of the others: a delay has ended, or the key was added to the queue directly.
    pub const DELAY: Self = Self(1 << 8);

    const NAMES: [(Self, &str); 9] = [
        (Self::LISTED, "listed"),
        (Self::CHANGED, "changed"),
        (Self::DELETED, "deleted"),
        (Self::OWNED, "owned"),
        (Self::MAPPED, "mapped"),
        (Self::RETRY, "retry"),
        (Self::RESYNC, "resync"),
        (Self::REQUESTED, "requested"),
        (Self::DELAY, "delay"),
    ];

    /// Returns whether all of `reasons` are among these.
    pub const fn contains(self, reasons: Self) -> bool {
        self.0 & reasons.0 == reasons.0
    }

    /// Returns whether there is no reason.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for Reasons {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Reasons {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl fmt::Display for Reasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Self::NAMES.iter().filter(|(reason, _)| self.contains(*reason));
        for (index, (_, name)) in names.enumerate() {
            f.write_str(if index == 0 { "" } else { ", " })?;
            f.write_str(name)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Reasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reasons({self})")
    }
}

/// The reasons of queued keys.
///
/// A reason is recorded before its key is added, so a run has all reasons of the events that
/// it can see. If a key is added while its run starts, that run takes the reason, and the
/// run that follows has none.
#[derive(Debug)]
pub(crate) struct PendingReasons<K>(Mutex<HashMap<K, Pending>>);

#[derive(Debug)]
struct Pending {
    reasons: Reasons,
    /// When the first of the merged events came, for debouncing.
    since: Option<Instant>,
}

impl<K> Default for PendingReasons<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash> PendingReasons<K> {
    /// Adds reasons for a key. Returns when the first event of its next run came.
    pub(crate) fn add(
        &self,
        key: &K,
        reasons: Reasons,
        now: Option<Instant>,
    ) -> Option<Instant> {
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = pending.get_mut(key) {
            known.reasons |= reasons;
            known.since = known.since.or(now);
            return known.since;
        }
        pending.insert(key.clone(), Pending { reasons, since: now });
        now
    }

    /// Takes the reasons for a run.
    pub(crate) fn take(&self, key: &K) -> Reasons {
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = pending.remove(key);
        if pending.is_empty() && pending.capacity() > 1024 {
            pending.shrink_to_fit();
        }
        drop(pending);
        taken.map_or(Reasons::DELAY, |taken| taken.reasons)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_merged_until_they_are_taken() {
        let pending = PendingReasons::default();
        pending.add(&"a", Reasons::LISTED, None);
        pending.add(&"a", Reasons::OWNED, None);
        pending.add(&"b", Reasons::CHANGED, None);
        assert_eq!(pending.take(&"a"), Reasons::LISTED | Reasons::OWNED);
        assert_eq!(pending.take(&"a"), Reasons::DELAY);
        assert_eq!(pending.take(&"b"), Reasons::CHANGED);
    }
}
