//! When the next permission of a pacer is due, as a function of the last one and the time.
//!
//! Nothing here reads a clock or waits. A pace is a rational number: `period / permissions`
//! nanoseconds lie between two permissions, and what is left of a nanosecond is carried to
//! the next one, so that 7 a minute are 7 a minute.

use std::time::Duration;

use super::moment::{Moment, Nanos, nanos};

/// How permissions follow each other.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    /// There are none.
    Never,
    /// As they are asked for.
    Unlimited,
    /// One spacing apart.
    Steady(Steady),
}

/// How far permissions lie apart, and how much of the time nobody used is made up for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steady {
    /// How many permissions a period has: the denominator of all parts.
    permissions: u32,
    between: Span,
    slack: Span,
}

/// The due time of a permission, exact: a moment and a part of the nanosecond after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot {
    at: Moment,
    /// In units of 1 ns / `permissions`, always less than 1 ns.
    part: u32,
}

/// A length of time: nanoseconds, and a part of one in the units of [`Slot::part`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    whole: Nanos,
    part: u32,
}

impl Pace {
    pub(super) fn new(permissions: u32, period: Duration, slack: u32) -> Self {
        if permissions == 0 {
            return Self::Never;
        }
        if period.is_zero() {
            return Self::Unlimited;
        }
        let slots = |count| Span::of_slots(count, permissions, period);
        Self::Steady(Steady { permissions, between: slots(1), slack: slots(slack) })
    }

    /// The slot that follows `last`.
    #[inline]
    pub(super) fn next(&self, last: Option<Slot>, now: Moment) -> Slot {
        let now = Slot { at: now, part: 0 };
        match self {
            Self::Never => Slot { at: Moment::END, part: 0 },
            Self::Unlimited => now,
            // There is no unused time before the first slot of all.
            Self::Steady(steady) => last.map_or(now, |last| steady.next(last, now)),
        }
    }
}

impl Steady {
    /// One spacing after `last`, or as much of the time before `now` as the slack makes up
    /// for, whichever is later.
    #[inline]
    fn next(&self, last: Slot, now: Slot) -> Slot {
        self.after(last).max(self.before(now))
    }

    #[inline]
    fn after(&self, Slot { at, part }: Slot) -> Slot {
        let Span { whole, part: more } = self.between;
        // Wide enough: both parts are less than `permissions`.
        let (carry, part) = match u64::from(part) + u64::from(more) {
            sum if sum >= u64::from(self.permissions) => {
                (1, sum - u64::from(self.permissions))
            }
            sum => (0, sum),
        };
        Slot { at: at.plus(whole).plus(carry), part: narrow(part) }
    }

    #[inline]
    fn before(&self, Slot { at, .. }: Slot) -> Slot {
        let Span { whole, part } = self.slack;
        if part == 0 {
            Slot { at: at.plus(-whole), part }
        } else {
            Slot { at: at.plus(-whole).plus(-1), part: self.permissions - part }
        }
    }
}

impl Slot {
    /// The moment from which on the permission may be used.
    #[inline]
    pub(super) fn due(self) -> Moment {
        self.at
    }

    /// Two words for the slot, three with the one that says whether there is any.
    #[inline]
    pub(super) fn to_words(slot: Option<Self>) -> [u64; 3] {
        match slot {
            None => [0; 3],
            Some(Self { at, part }) => [1, at.to_word(), u64::from(part)],
        }
    }

    #[inline]
    pub(super) fn from_words([some, at, part]: [u64; 3]) -> Option<Self> {
        (some != 0).then(|| Self { at: Moment::from_word(at), part: narrow(part) })
    }
}

impl Span {
    /// The length of `count` slots, of which `period` has `permissions`.
    fn of_slots(count: u32, permissions: u32, period: Duration) -> Self {
        // Below 2^95: no overflow.
        let total = i128::from(nanos(period)) * i128::from(count);
        let permissions = i128::from(permissions);
        match Nanos::try_from(total / permissions) {
            Ok(whole) => {
                let part = u32::try_from(total % permissions);
                Self { whole, part: part.expect("less than a u32") }
            }
            Err(_) => Self { whole: Nanos::MAX, part: 0 },
        }
    }
}

/// A part from its word: less than `permissions`, which is a `u32`.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "less than a u32, see above")]
fn narrow(part: u64) -> u32 {
    part as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Moment = Moment::START;

    #[test]
    fn seven_a_minute_are_seven_a_minute_for_a_year() {
        let pace = Pace::new(7, Duration::from_secs(60), 0);
        let start = START.plus(123);
        let mut slot = pace.next(None, start);
        let mut spacings = Vec::new();
        for minute in 1..=525_600_i64 {
            let before = slot;
            for _ in 0..7 {
                let next = pace.next(Some(slot), start);
                spacings.push(next.due().since(slot.due()));
                slot = next;
            }
            assert_eq!(slot.due().since(before.due()), 60_000_000_000);
            assert_eq!(slot.due().since(start), minute * 60_000_000_000);
        }
        assert!(spacings.iter().all(|s| [8_571_428_571, 8_571_428_572].contains(s)));
    }

    #[test]
    fn slack_of_a_broken_spacing_covers_all_its_slots() {
        for permissions in [3, 7, 999_983, u32::MAX] {
            let pace = Pace::new(permissions, Duration::from_secs(1), 10);
            let first = pace.next(None, START);
            let now = START.plus(nanos(Duration::from_secs(3600)));
            let mut slot = first;
            for _ in 0..11 {
                slot = pace.next(Some(slot), now);
                assert!(slot.due() <= now, "{permissions}");
            }
            assert_eq!(slot.due(), now, "{permissions}");
            let next = pace.next(Some(slot), now);
            assert_eq!(next.due().since(now), 1_000_000_000 / i64::from(permissions));
        }
    }

    #[test]
    fn more_permissions_than_nanoseconds_share_them() {
        let pace = Pace::new(4, Duration::from_nanos(1), 0);
        let mut slot = pace.next(None, START);
        let due: Vec<_> = (0..9)
            .map(|_| {
                slot = pace.next(Some(slot), START);
                slot.due().since(START)
            })
            .collect();
        assert_eq!(due, [0, 0, 0, 1, 1, 1, 1, 2, 2]);
    }

    #[test]
    fn huge_numbers_saturate() {
        let pace = Pace::new(1, Duration::MAX, u32::MAX);
        let slot = pace.next(None, START);
        assert_eq!(slot.due(), START);
        let mut next = pace.next(Some(slot), START);
        for _ in 0..3 {
            next = pace.next(Some(next), START);
        }
        assert_eq!(next.due(), Moment::END);
    }

    #[test]
    fn slots_survive_their_words() {
        let slot = Some(Slot { at: START, part: u32::MAX - 1 });
        assert_eq!(Slot::from_words(Slot::to_words(slot)), slot);
        assert_eq!(Slot::from_words(Slot::to_words(None)), None);
    }
}
