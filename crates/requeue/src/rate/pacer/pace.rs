//! The slots of a pacer: when the next one is due, given the last one and the time.
//!
//! Nothing here reads a clock or waits. The interval between two slots is a rational number
//! of nanoseconds, `period / permissions`. The remainder is carried to the next slot, so that
//! 7 per minute is exactly 7 per minute.

use std::time::Duration;

use crate::rate::moment::{Moment, Nanos, nanos};

/// The spacing of slots.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    /// There are no slots.
    Never,
    /// Every call gets a slot at once.
    Unlimited,
    /// Interval and slack are whole numbers of nanoseconds.
    Whole { between: Nanos, slack: Nanos },
    /// Interval or slack has a fraction of a nanosecond.
    Steady(Steady),
}

/// The interval between slots, and how far back unused slots can be used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steady {
    /// The number of slots per period: the denominator of all parts.
    permissions: u32,
    between: Span,
    /// From now back to the earliest unused slot that can be used. The whole part is zero or
    /// negative.
    slack: Span,
}

/// The exact time of a slot: a moment and a fraction of the nanosecond after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SlotTime {
    at: Moment,
    /// In units of 1 ns / `permissions`, always less than 1 ns.
    part: u32,
}

/// A length of time: nanoseconds, and a fraction in the units of [`SlotTime::part`].
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
        let (between, slack) = (slots(1), slots(slack).back(permissions));
        if between.part == 0 && slack.part == 0 {
            return Self::Whole { between: between.whole, slack: slack.whole };
        }
        Self::Steady(Steady { permissions, between, slack })
    }

    /// Returns the slot after `last`.
    #[inline]
    pub(super) fn next(&self, last: Option<SlotTime>, now: Moment) -> SlotTime {
        match (self, last) {
            (Self::Whole { between, slack }, Some(last)) => {
                SlotTime { at: last.at.plus(*between).max(now.plus(*slack)), part: 0 }
            }
            _ => self.next_of_any(last, now),
        }
    }

    /// Returns the slot after `last` and `ahead` others.
    pub(super) fn next_after(
        &self,
        last: Option<SlotTime>,
        now: Moment,
        ahead: u64,
    ) -> SlotTime {
        let first = self.next(last, now);
        match self {
            Self::Never | Self::Unlimited => first,
            Self::Whole { between, .. } => {
                let span = Span { whole: *between, part: 0 };
                first.plus_many(span, ahead, 1)
            }
            Self::Steady(steady) => {
                first.plus_many(steady.between, ahead, steady.permissions)
            }
        }
    }

    /// As [`next`](Self::next) for the rare cases.
    fn next_of_any(&self, last: Option<SlotTime>, now: Moment) -> SlotTime {
        let now = SlotTime { at: now, part: 0 };
        // Before the first slot there are no unused ones.
        match (self, last) {
            (Self::Never, _) => SlotTime { at: Moment::END, part: 0 },
            (Self::Steady(steady), Some(last)) => steady.next(last, now),
            (Self::Unlimited | Self::Whole { .. } | Self::Steady(_), _) => now,
        }
    }
}

impl Steady {
    /// Returns the slot one interval after `last`, or the earliest unused slot within the
    /// slack, whichever is later.
    #[inline]
    fn next(&self, last: SlotTime, now: SlotTime) -> SlotTime {
        self.after(last).max(self.before(now))
    }

    #[inline]
    fn after(&self, SlotTime { at, part }: SlotTime) -> SlotTime {
        let Span { whole, part: more } = self.between;
        // Wide enough: both parts are less than `permissions`.
        let (carry, part) = match u64::from(part) + u64::from(more) {
            sum if sum >= u64::from(self.permissions) => {
                (1, sum - u64::from(self.permissions))
            }
            sum => (0, sum),
        };
        SlotTime { at: at.plus(whole).plus(carry), part: narrow(part) }
    }

    #[inline]
    fn before(&self, SlotTime { at, .. }: SlotTime) -> SlotTime {
        SlotTime { at: at.plus(self.slack.whole), part: self.slack.part }
    }
}

impl SlotTime {
    /// Returns the moment from which on the slot may be used.
    #[inline]
    pub(super) fn due(self) -> Moment {
        self.at
    }

    /// Returns the slot `count` times `span` later, in parts of 1 ns / `permissions`.
    fn plus_many(self, span: Span, count: u64, permissions: u32) -> Self {
        let (count, unit) = (i128::from(count), i128::from(permissions));
        let parts = i128::from(span.part) * count + i128::from(self.part);
        let whole = i128::from(span.whole).saturating_mul(count) + parts / unit;
        let whole = Nanos::try_from(whole).unwrap_or(Nanos::MAX);
        let part = u32::try_from(parts % unit).expect("less than a u32");
        Self { at: self.at.plus(whole), part }
    }

    /// Encodes a slot as its moment and its part.
    #[inline]
    pub(super) fn to_words(slot: Option<Self>) -> [u64; 2] {
        match slot {
            None => [0, NO_PART],
            Some(Self { at, part }) => [at.to_word(), u64::from(part)],
        }
    }

    #[inline]
    pub(super) fn from_words([at, part]: [u64; 2]) -> Option<Self> {
        (part != NO_PART).then(|| Self { at: Moment::from_word(at), part: narrow(part) })
    }
}

/// The part of no slot. A real part fits in a `u32`.
const NO_PART: u64 = u64::MAX;

impl Span {
    /// Returns the length of `count` slots, of which `period` has `permissions`.
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

    /// Returns the negative length. The part stays positive.
    fn back(self, permissions: u32) -> Self {
        match self.part {
            0 => Self { whole: -self.whole, part: 0 },
            part => Self { whole: -self.whole - 1, part: permissions - part },
        }
    }
}

/// Returns the part in a word: it is less than `permissions`, which is a `u32`.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "less than a u32")]
fn narrow(part: u64) -> u32 {
    part as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Moment = Moment::START;

    #[test]
    fn seven_per_minute_is_exact_for_a_year() {
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
    fn slack_of_a_fractional_interval_covers_all_its_slots() {
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
    fn several_slots_fit_in_one_nanosecond() {
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
    fn whole_pace_equals_the_fractional_pace() {
        let second = Duration::from_secs(1);
        for (permissions, slack) in [(1, 0), (10, 10), (1000, 3), (1_000_000_000, 1)] {
            let pace = Pace::new(permissions, second, slack);
            assert!(matches!(pace, Pace::Whole { .. }));
            let slots = |count| Span::of_slots(count, permissions, second);
            let (between, slack) = (slots(1), slots(slack).back(permissions));
            let other = Pace::Steady(Steady { permissions, between, slack });
            let (mut now, mut last) = (START, None);
            for call in 0..1000 {
                let slot = pace.next(last, now);
                assert_eq!(slot, other.next(last, now));
                last = Some(slot);
                now = now.plus(call * call % 17 * between.whole / 8);
            }
        }
    }

    #[test]
    fn slots_ahead_equal_those_counted_one_by_one() {
        for (permissions, slack) in [(7, 0), (10, 3), (999_983, 2), (u32::MAX, 1)] {
            let pace = Pace::new(permissions, Duration::from_secs(1), slack);
            let mut slot = pace.next(None, START);
            let last = Some(slot);
            for ahead in 0..100 {
                slot = pace.next(Some(slot), START);
                assert_eq!(pace.next_after(last, START, ahead), slot, "{permissions}");
            }
        }
        let pace = Pace::new(1, Duration::MAX, 0);
        let far = pace.next_after(None, START, u64::MAX).due();
        assert_eq!(far, START.plus(Nanos::MAX), "saturates");
        let never = Pace::new(0, Duration::from_secs(1), 0);
        assert_eq!(never.next_after(None, START, 5).due(), Moment::END);
        let unlimited = Pace::new(1, Duration::ZERO, 0);
        assert_eq!(unlimited.next_after(None, START, 5).due(), START);
    }

    #[test]
    fn slots_survive_encoding() {
        let slot = Some(SlotTime { at: START, part: u32::MAX - 1 });
        assert_eq!(SlotTime::from_words(SlotTime::to_words(slot)), slot);
        assert_eq!(SlotTime::from_words(SlotTime::to_words(None)), None);
    }
}
