//! The invariants of steady runs: leases that live on, and delays that are noticed.

use super::invariants::KeyCheck;
use crate::history::key::Granted;
use crate::store::partition_of;

/// How late a key may be leased after its delay, in microseconds. The machine may be busy,
/// and a fault may delay a lease call; a waiter that does not notice a delay is later than
/// this.
const MAX_LATENESS: u64 = 2_500_000;

impl KeyCheck<'_> {
    /// Finds leases that expired although their holder was alive.
    pub(super) fn find_lost_leases(&self, found: &mut dyn FnMut(String)) {
        if !self.plan.scenario.is_steady() {
            return;
        }
        let neighbours = self.grants().iter().zip(self.grants().iter().skip(1));
        for (grant, next) in neighbours {
            let is_lost = !self.may_have_ended(grant, next) && !grant.may_be_undone;
            if is_lost && !self.is_excused(grant, next) {
                found(format!(
                    "the lease {} expired before {} although its holder was alive",
                    grant.token, next.token
                ));
            }
        }
    }

    /// Returns whether the key was locked or its shard did not answer during a lease.
    fn is_excused(&self, grant: &Granted, next: &Granted) -> bool {
        let (from, to) = (grant.sent, next.answered);
        self.plan.was_locked(self.key, from, to) || self.was_unreachable(from, to)
    }

    /// Returns whether a black hole hid the shard of the key.
    fn was_unreachable(&self, from: u64, to: u64) -> bool {
        let partitions = self.plan.scenario.partitions;
        let shard = self.all.partitions.get(partition_of(self.key, partitions));
        let mut holes = self.all.black_holes.iter();
        holes.any(|(hidden, start, end)| {
            shard.is_none_or(|shard| shard == hidden) && *start <= to && from <= *end
        })
    }

    /// Finds a key that was leased long after its delay. Only keys with one add are clear.
    pub(super) fn find_late_runs(&self, found: &mut dyn FnMut(String)) {
        let ([add], [call], Some(first)) =
            (&self.history.adds[..], &self.history.add_calls[..], self.grants().first())
        else {
            return;
        };
        let Some((answered, _)) = call.answer.filter(|_| add.delay > 0) else { return };
        let due = answered + add.delay;
        let is_late = first.answered > due + MAX_LATENESS;
        let is_excused = self.was_unreachable(due, first.answered);
        if self.plan.scenario.is_steady() && is_late && !is_excused {
            let late = (first.answered - due) / 1000;
            found(format!(
                "was leased {late} ms after its delay, although workers waited"
            ));
        }
    }
}
