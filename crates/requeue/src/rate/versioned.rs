//! A sequence lock: a few words of state that change together.
//!
//! The state of a limiter is wider than one atomic word, and most calls of a busy limiter are
//! refusals that change nothing. So the words carry a version. A reader loads the words and
//! checks that the version has not changed, without writing to memory. A writer makes the
//! version odd by a compare-and-swap, stores the words, and makes the version even again.
//!
//! While the version is odd, other threads spin. If the writer is preempted there, they yield
//! until it runs again. So this is not lock-free.
//!
//! # Invariants
//!
//! 1. The words change only while the version is odd.
//! 2. Only the thread that made the version odd stores words and makes it even, within a few
//!    instructions. No user code runs in between.
//! 3. The version never goes back. It does not wrap around within the life of a program.

#[cfg(requeue_loom)]
use loom::{
    hint,
    sync::atomic::{AtomicU64, Ordering, fence},
    thread,
};
#[cfg(not(requeue_loom))]
use std::{
    hint,
    sync::atomic::{AtomicU64, Ordering, fence},
    thread,
};

/// `N` words that change together.
///
/// Alone on its cache lines, two of them, since processors fetch them in pairs: neighbouring
/// fields are read by every call and must not move between processors with each write.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Versioned<const N: usize> {
    version: AtomicU64,
    words: [AtomicU64; N],
}

/// The decision of an update.
pub(super) enum Step<T, const N: usize> {
    /// Keeps the words, and writes nothing.
    Keep(T),
    /// Replaces the words.
    Replace([u64; N], T),
}

impl<const N: usize> Versioned<N> {
    pub(super) fn new(words: [u64; N]) -> Self {
        Self { version: AtomicU64::new(0), words: words.map(AtomicU64::new) }
    }

    /// Returns a consistent snapshot of the words.
    pub(super) fn read(&self) -> [u64; N] {
        self.update(Step::Keep)
    }

    /// Keeps or replaces the words atomically, as `step` decides.
    ///
    /// `step` runs again if another thread changed the words meanwhile. It may see a torn read,
    /// of which the result is discarded, so it must not panic for any words.
    #[inline]
    pub(super) fn update<T>(&self, mut step: impl FnMut([u64; N]) -> Step<T, N>) -> T {
        let mut spins = 0;
        loop {
            if let Some(version) = self.even() {
                let words = self.load();
                match step(words) {
                    Step::Keep(value) if self.is_still(version) => return value,
                    Step::Replace(words, value) if self.replace(version, words) => {
                        return value;
                    }
                    Step::Keep(_) | Step::Replace(..) => {}
                }
            }
            back_off(&mut spins);
        }
    }

    /// Replaces the words atomically by the result of `step`.
    ///
    /// `step` runs once, on a consistent snapshot, while other threads spin: it must be short
    /// (invariant 2) and must not panic. It is faster than [`update`](Self::update), because
    /// the processor executes `step` while it waits for the compare-and-swap.
    #[inline]
    pub(super) fn exchange<T>(&self, step: impl FnOnce([u64; N]) -> ([u64; N], T)) -> T {
        let version = self.even().filter(|version| self.claim(*version));
        let version = version.unwrap_or_else(|| self.claim_contended());
        let (words, value) = step(self.load());
        self.publish(version, words);
        value
    }

    /// As [`exchange`](Self::exchange), if the words meet a condition.
    ///
    /// Otherwise returns `None` and writes nothing. The condition may see a torn read; `step`
    /// does not.
    #[inline]
    pub(super) fn exchange_if<T>(
        &self,
        fits: impl Fn([u64; N]) -> bool,
        step: impl FnOnce([u64; N]) -> ([u64; N], T),
    ) -> Option<T> {
        let mut spins = 0;
        let (version, words) = loop {
            if let Some(version) = self.even() {
                let words = self.load();
                if !fits(words) {
                    return None;
                }
                if self.claim(version) {
                    break (version, words);
                }
            }
            back_off(&mut spins);
        };
        let (words, value) = step(words);
        self.publish(version, words);
        Some(value)
    }

    #[inline]
    fn load(&self) -> [u64; N] {
        // Relaxed: `is_still` and `claim` detect a torn read.
        std::array::from_fn(|i| self.words[i].load(Ordering::Relaxed))
    }

    /// Returns whether all words loaded since `version` was read are of that version.
    #[inline]
    fn is_still(&self, version: u64) -> bool {
        // Pairs with the Release fence in `publish`: if one of the words came from a later
        // writer, the load below sees at least the odd version of that writer.
        fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == version
    }

    /// Replaces the words of `version`, unless they have changed.
    #[inline]
    fn replace(&self, version: u64, words: [u64; N]) -> bool {
        let claimed = self.claim(version);
        if claimed {
            self.publish(version, words);
        }
        claimed
    }

    /// Makes `version` odd, unless it has changed.
    #[inline]
    fn claim(&self, version: u64) -> bool {
        // Success means that no other thread made `version` odd before. So by invariant 1 the
        // words loaded since are consistent and current, and stay so until `publish`.
        // Relaxed: the load of `version` acquired all that came before it.
        let claim = self.version.compare_exchange(
            version,
            version + 1,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        claim.is_ok()
    }

    /// Stores the next words, after `version` was claimed.
    #[inline]
    fn publish(&self, version: u64, words: [u64; N]) {
        // Pairs with the Acquire fence in `is_still`: a thread that sees one of these words
        // also sees the odd version.
        fence(Ordering::Release);
        for (word, new) in self.words.iter().zip(words) {
            word.store(new, Ordering::Relaxed);
        }
        // Pairs with the Acquire in `even`: a thread that sees this version sees these words.
        self.version.store(version + 2, Ordering::Release);
    }

    /// Waits until the version is even, makes it odd, and returns the even one.
    #[cold]
    #[inline(never)]
    fn claim_contended(&self) -> u64 {
        let mut spins = 0;
        loop {
            back_off(&mut spins);
            if let Some(version) = self.even().filter(|version| self.claim(*version)) {
                return version;
            }
        }
    }

    /// Returns the version, if no thread is replacing the words.
    #[inline]
    fn even(&self) -> Option<u64> {
        // Acquire pairs with the Release in `publish`: words loaded later are at least as new
        // as this version.
        let version = self.version.load(Ordering::Acquire);
        (version % 2 == 0).then_some(version)
    }
}

/// Rounds of spinning before yielding: a writer needs a few instructions, unless it was
/// preempted.
const SPINS: u32 = if cfg!(requeue_loom) { 0 } else { 64 };

#[cold]
#[inline(never)]
fn back_off(spins: &mut u32) {
    if *spins < SPINS {
        *spins += 1;
        hint::spin_loop();
    } else {
        thread::yield_now();
    }
}

#[cfg(all(test, requeue_loom))]
mod loom_tests {
    use std::sync::Arc;

    use super::*;

    type Pair = Versioned<2>;

    /// Two words, of which the second is always twice the first.
    fn pair() -> Arc<Pair> {
        Arc::new(Versioned::new([0, 0]))
    }

    fn step(cell: &Pair) {
        cell.update(|[a, b]| Step::Replace([a + 1, b + 2], ()));
    }

    #[test]
    fn reader_never_sees_a_torn_write() {
        loom::model(|| {
            let cell = pair();
            let writer = Arc::clone(&cell);
            let writing = thread::spawn(move || step(&writer));
            let [a, b] = cell.read();
            assert_eq!(b, 2 * a);
            writing.join().unwrap();
        });
    }

    #[test]
    fn no_update_is_lost() {
        loom::model(|| {
            let cell = pair();
            let other = Arc::clone(&cell);
            let writing = thread::spawn(move || step(&other));
            step(&cell);
            writing.join().unwrap();
            assert_eq!(cell.read(), [2, 4]);
        });
    }

    fn exchange(cell: &Pair) {
        let before = cell.exchange(|[a, b]| ([a + 1, b + 2], [a, b]));
        assert_eq!(before[1], 2 * before[0]);
    }

    #[test]
    fn no_exchange_is_lost_next_to_an_update_and_a_reader() {
        loom::model(|| {
            let cell = pair();
            let other = Arc::clone(&cell);
            let writing = thread::spawn(move || step(&other));
            exchange(&cell);
            let [a, b] = cell.read();
            assert_eq!(b, 2 * a);
            writing.join().unwrap();
            assert_eq!(cell.read(), [2, 4]);
        });
    }

    /// Exchanges even words, and updates odd ones.
    fn exchange_if_even(cell: &Pair) {
        let step = |[a, b]: [u64; 2]| ([a + 1, b + 2], [a, b]);
        match cell.exchange_if(|[a, _]| a % 2 == 0, step) {
            Some([a, b]) => assert_eq!((a % 2, b), (0, 2 * a)),
            None => self::step(cell),
        }
    }

    #[test]
    fn conditional_exchange_is_neither_lost_nor_made_without_its_condition() {
        loom::model(|| {
            let cell = pair();
            let other = Arc::clone(&cell);
            let writing = thread::spawn(move || exchange_if_even(&other));
            exchange_if_even(&cell);
            writing.join().unwrap();
            assert_eq!(cell.read(), [2, 4]);
        });
    }

    #[test]
    fn no_exchange_is_lost_next_to_another() {
        loom::model(|| {
            let cell = pair();
            let other = Arc::clone(&cell);
            let writing = thread::spawn(move || exchange(&other));
            exchange(&cell);
            writing.join().unwrap();
            assert_eq!(cell.read(), [2, 4]);
        });
    }
}

#[cfg(all(test, not(requeue_loom)))]
mod tests {
    use super::*;

    const ROUNDS: u64 = if cfg!(miri) { 50 } else { 20_000 };

    #[test]
    fn every_write_counts_and_no_reader_sees_a_torn_one() {
        let cell = Versioned::new([0, 0, 0]);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS / 2 {
                        cell.update(|[a, b, c]| Step::Replace([a + 1, b + 2, c + 3], ()));
                        cell.exchange(|[a, b, c]| ([a + 1, b + 2, c + 3], ()));
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let [a, b, c] = cell.read();
                    assert_eq!((b, c), (2 * a, 3 * a));
                }
            });
        });
        assert_eq!(cell.read(), [3 * ROUNDS, 6 * ROUNDS, 9 * ROUNDS]);
    }

    #[test]
    fn kept_words_are_not_written() {
        let cell = Versioned::new([7]);
        let value = cell.update(|[word]| Step::Keep(word));
        assert_eq!(value, 7);
        assert_eq!(cell.exchange_if(|[word]| word > 7, |[word]| ([word + 1], ())), None);
        assert_eq!(cell.version.load(Ordering::Relaxed), 0);
        cell.update(|[word]| Step::Replace([word + 1], ()));
        assert_eq!(cell.version.load(Ordering::Relaxed), 2);
    }
}
