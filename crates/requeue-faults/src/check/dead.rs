//! The rules for the dead, for one key.

use super::rules::View;
use super::story::{AddOp, Attempt, Death, End, Exhumation};
use crate::event::Ending;
use crate::world::MOST_DELIVERIES;

impl View<'_> {
    /// Whether the key is dead in the end, or was dropped from the dead after this add.
    pub(super) fn died_after(&self, add: &AddOp) -> bool {
        let dropped = |taken: &Exhumation| taken.drops && taken.may_follow(add.at);
        self.corpse.is_some() || self.story.exhumations.iter().any(dropped)
    }

    /// Finds adds that took nothing from the dead: the key was dead before and after, and was
    /// not granted in between, so it did not live to die again.
    pub(super) fn ignored(&self, found: &mut dyn FnMut(String)) {
        for add in &self.story.attempts {
            let Some((answered, _)) = add.answer else { continue };
            let Some(before) = self.dead_before(add.sent) else { continue };
            let Some(after) = self.dead_after(answered) else { continue };
            let in_between = self
                .grants()
                .iter()
                .any(|grant| grant.answered > before && grant.sent < after);
            if !in_between {
                found("was added while it was dead, and stayed so".to_owned());
            }
        }
    }

    /// The last moment before this one at which the key was dead, at the latest.
    fn dead_before(&self, moment: u64) -> Option<u64> {
        let earlier = self.story.deaths.iter().filter(|death| death.answered < moment);
        earlier.map(|death| death.sent).max()
    }

    /// The first moment after this one at which the key was dead, at the earliest.
    fn dead_after(&self, moment: u64) -> Option<u64> {
        let later = self.story.deaths.iter().filter(|death| death.sent > moment);
        let seen = later.map(|death| death.answered);
        let taken = self.story.exhumations.iter().filter(|taken| taken.sent > moment);
        let taken = taken.filter_map(Exhumation::was_dead);
        seen.chain(taken).chain(self.corpse.map(|_| u64::MAX)).min()
    }

    pub(super) fn reasons(&self, found: &mut dyn FnMut(String)) {
        let buries = |end: &End| end.ending == Ending::Bury && !end.is_refused();
        let was_buried = self.grants().iter().any(|grant| grant.ends.iter().any(buries));
        let listed = self.story.deaths.iter().filter_map(|death| death.corpse.as_ref());
        for corpse in listed.chain(self.corpse) {
            let deliveries = corpse.deliveries;
            if corpse.reason.is_empty() {
                found("is dead, and nobody is told why".to_owned());
            }
            if deliveries < MOST_DELIVERIES.get() && !was_buried {
                found(format!("is dead after delivery {deliveries}, by nobody"));
            }
        }
    }

    /// Finds keys that were dead, and then were not though nobody had wanted that.
    pub(super) fn risen(&self, found: &mut dyn FnMut(String)) {
        for death in &self.story.deaths {
            let granted = self.grants().iter().find(|grant| grant.sent > death.answered);
            let became = match (granted, self.corpse) {
                (Some(grant), _) => format!("{} was granted", grant.token),
                (None, None) => "it was gone".to_owned(),
                (None, Some(_)) => continue,
            };
            if !self.may_have_risen(death) {
                found(format!("was dead, and then {became}, though nobody had asked"));
            }
        }
    }

    fn may_have_risen(&self, death: &Death) -> bool {
        let adds = |add: &Attempt| add.answer.is_none_or(|(at, _)| at > death.sent);
        let takes = |taken: &Exhumation| taken.may_follow(death.sent);
        self.story.attempts.iter().any(adds) || self.story.exhumations.iter().any(takes)
    }
}
