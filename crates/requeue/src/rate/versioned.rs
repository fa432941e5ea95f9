//! A few words of state that threads share without a lock around their readers.
//!
//! A limiter's state is wider than one atomic word, and most calls of a busy limiter are
//! refusals that change nothing. So the words carry a version: a reader takes them as
//! they come and looks at the version again, a writer makes the version odd by a
//! compare-and-swap, stores, and makes it even again.
//!
//! # Invariants
//!
//! 1. The words change only while the version is odd.
//! 2. Only the thread that made the version odd stores words and makes it even, within a
//!    few instructions: nothing of anybody else's runs in between.
//! 3. The version never goes back, and at 2^64 it does not wrap in the life of a program.

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
/// On cache lines of its own (two, since processors fetch them in pairs): what lies next
/// to it is read by every call and must not travel with each write.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Versioned<const N: usize> {
    version: AtomicU64,
    words: [AtomicU64; N],
}

/// What becomes of the words.
pub(super) enum Step<T, const N: usize> {
    /// They stay as they are, and nothing is written.
    Keep(T),
    /// They are replaced.
    Replace([u64; N], T),
}

impl<const N: usize> Versioned<N> {
    pub(super) fn new(words: [u64; N]) -> Self {
        Self { version: AtomicU64::new(0), words: words.map(AtomicU64::new) }
    }

    /// The words as they were together at one time.
    pub(super) fn read(&self) -> [u64; N] {
        self.update(Step::Keep)
    }

    /// Does with the words what `step` says, as if nobody else were there.
    ///
    /// `step` runs again if somebody else was quicker. It may be shown words that never
    /// were together, and what it makes of those is thrown away: it must be total.
    #[inline(always)]
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

    /// Replaces the words by what `step` makes of them, as if nobody else were there.
    ///
    /// `step` runs once, on words that were together, while others wait: it must be short
    /// (invariant 2) and must not panic. It is quicker than [`update`](Self::update), since
    /// the processor works on it while it waits for the compare-and-swap.
    #[inline]
    pub(super) fn exchange<T>(&self, step: impl FnOnce([u64; N]) -> ([u64; N], T)) -> T {
        let version = self.even().filter(|version| self.claim(*version));
        let version = version.unwrap_or_else(|| self.claim_contended());
        let (words, value) = step(self.load());
        self.publish(version, words);
        value
    }

    /// As [`exchange`](Self::exchange), if `fits` says so of the words. `None`, and nothing
    /// written, if it does not.
    ///
    /// `fits` may be shown words that never were together; `step` is not.
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
        // Relaxed: `is_still` and `claim` find out if the words belong together.
        std::array::from_fn(|i| self.words[i].load(Ordering::Relaxed))
    }

    /// Whether the words loaded since `version` was read are all of that version.
    #[inline]
    fn is_still(&self, version: u64) -> bool {
        // Pairs with the Release fence in `publish`: if one of the words came from a later
        // writer, the load below sees at least the odd version of that writer.
        fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == version
    }

    /// Replaces the words of `version`, unless they have a newer version by now.
    #[inline]
    fn replace(&self, version: u64, words: [u64; N]) -> bool {
        let claimed = self.claim(version);
        if claimed {
            self.publish(version, words);
        }
        claimed
    }

    /// Makes `version` odd, unless there is a newer one by now.
    #[inline]
    fn claim(&self, version: u64) -> bool {
        // Success says that nobody made `version` odd before, so by invariant 1 the words
        // loaded since are whole and current, and stay so until `publish`. Relaxed: the
        // load of `version` acquired all that came before it.
        let claim = self.version.compare_exchange(
            version,
            version + 1,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        claim.is_ok()
    }

    /// Stores the words that follow those of a `version` that was claimed.
    #[inline]
    fn publish(&self, version: u64, words: [u64; N]) {
        // Pairs with the Acquire fence in `is_still`: no word is seen before the version
        // is seen to be odd.
        fence(Ordering::Release);
        for (word, new) in self.words.iter().zip(words) {
            word.store(new, Ordering::Relaxed);
        }
        // Pairs with the Acquire in `even`: who sees this version sees these words.
        self.version.store(version + 2, Ordering::Release);
    }

    /// Makes the version odd once it is even, and gives the even one.
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

    /// The version, if nobody is replacing the words.
    #[inline]
    fn even(&self) -> Option<u64> {
        // Acquire pairs with the Release in `publish`: the words are at least those of
        // this version. Else a thread could decide on words older than the version.
        let version = self.version.load(Ordering::Acquire);
        (version % 2 == 0).then_some(version)
    }
}

/// Rounds of spinning before the processor is given to others: a writer that holds the
/// version odd is done within a few instructions, unless it has been put aside.
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

    /// Words of which the second is always twice the first.
    fn pair() -> Arc<Pair> {
        Arc::new(Versioned::new([0, 0]))
    }

    fn step(cell: &Pair) {
        cell.update(|[a, b]| Step::Replace([a + 1, b + 2], ()));
    }

    #[test]
    fn no_reader_sees_half_of_a_replacement() {
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
    fn no_replacement_is_lost() {
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
    fn no_exchange_is_lost_beside_a_replacement_and_a_reader() {
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

    /// An exchange of even words; odd ones are replaced as others do.
    fn exchange_if_even(cell: &Pair) {
        let step = |[a, b]: [u64; 2]| ([a + 1, b + 2], [a, b]);
        match cell.exchange_if(|[a, _]| a % 2 == 0, step) {
            Some([a, b]) => assert_eq!((a % 2, b), (0, 2 * a)),
            None => self::step(cell),
        }
    }

    #[test]
    fn no_exchange_on_a_condition_is_lost_and_none_is_made_without_it() {
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
    fn no_exchange_is_lost_beside_another() {
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
    fn every_replacement_counts_and_no_reader_sees_half_of_one() {
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
    fn keeping_the_words_writes_nothing() {
        let cell = Versioned::new([7]);
        let value = cell.update(|[word]| Step::Keep(word));
        assert_eq!(value, 7);
        assert_eq!(cell.exchange_if(|[word]| word > 7, |[word]| ([word + 1], ())), None);
        assert_eq!(cell.version.load(Ordering::Relaxed), 0);
        cell.update(|[word]| Step::Replace([word + 1], ()));
        assert_eq!(cell.version.load(Ordering::Relaxed), 2);
    }
}
