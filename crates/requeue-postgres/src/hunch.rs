//! Whether a call is to be made in the way that is cheap only if all goes well.
//!
//! It is, unless that went wrong lately: then the next calls go the ordinary way, twice as
//! many each time that it goes wrong again. So what is tried in vain costs little, even if
//! it never goes well.

use std::sync::{Mutex, PoisonError};

/// How often the number of calls doubles that go the ordinary way: 64 at most.
const MOST_DOUBLINGS: u32 = 6;

/// What became of the last calls.
#[derive(Debug, Default)]
pub(crate) struct Hunch {
    past: Mutex<Past>,
}

#[derive(Debug, Default)]
struct Past {
    /// How often in a row it went wrong.
    wrong: u32,
    /// How many calls go the ordinary way before the next try.
    ordinary: u32,
}

impl Hunch {
    /// Whether the next call is to try.
    pub(crate) fn follow(&self) -> bool {
        let mut past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        let before = past.ordinary;
        past.ordinary = before.saturating_sub(1);
        before == 0
    }

    /// Takes in how a try went. Several at a time that went wrong are one.
    pub(crate) fn learn(&self, went_well: bool) {
        let mut past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        if went_well {
            *past = Past::default();
        } else if past.ordinary == 0 {
            past.wrong = (past.wrong + 1).min(MOST_DOUBLINGS);
            past.ordinary = 1 << past.wrong;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many calls go the ordinary way until the next try.
    fn ordinary(hunch: &Hunch) -> usize {
        (0..1000).take_while(|_| !hunch.follow()).count()
    }

    #[test]
    fn what_goes_wrong_again_and_again_is_tried_less_and_less() {
        let hunch = Hunch::default();
        assert_eq!(ordinary(&hunch), 0);
        for expected in [2, 4, 8, 16, 32, 64, 64] {
            hunch.learn(false);
            hunch.learn(false);
            assert_eq!(ordinary(&hunch), expected);
        }
        hunch.learn(true);
        assert_eq!(ordinary(&hunch), 0);
        hunch.learn(false);
        assert_eq!(ordinary(&hunch), 2);
    }
}
