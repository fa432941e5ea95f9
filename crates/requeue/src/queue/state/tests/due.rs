//! Many delays that end at once.

use super::super::time::DUE_CHUNK;
use super::super::{Line, Rules, State};
use crate::queue::delay::Progress;
use crate::queue::offer::Owned;
use crate::queue::order::Fifo;

/// The lock is held for one call of `end_delays`, so its work is bounded.
#[test]
fn keys_that_are_due_together_become_ready_in_chunks() {
    let line = Line::Fifo(Fifo::new());
    let rules = Rules { line, absorb: false, capacity: 0, max_tracked: 0, timing: None };
    let mut state = State::new(rules);
    for key in 0..10_000_u32 {
        let added = state.add_at(key << 8, &mut Owned::new(key), 5, 0);
        assert!(added.is_some());
    }
    let mut ready = 0;
    while state.end_delays(7) == Progress::More {
        let more = state.counts().ready - ready;
        assert!((1..2 * DUE_CHUNK).contains(&more), "{more} in one call");
        ready += more;
        assert!(state.next_deadline().is_some_and(|deadline| deadline <= 7));
    }
    assert_eq!(state.counts().ready, 10_000);
    assert_eq!(state.next_deadline(), None);
    state.check();
    let keys = std::iter::from_fn(|| state.take()).map(|taken| taken.key);
    assert!(keys.eq(0..10_000));
}
