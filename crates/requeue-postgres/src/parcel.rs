//! Adds in the parts that one statement takes.
//!
//! A statement takes each key once, with one revival delay and one shared rate. A batch is
//! cut where the next add does not fit, so that its parts, one after the other, give what
//! the adds would have given one by one.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use requeue::Added;
use requeue_store::{Add, Backoff, Rate, Receipt, When, micros_of};
use tokio_postgres::Row;

use crate::number;
use crate::session::Param;

/// The most keys of one statement: it stays short for those who wait for its locks.
const MOST: usize = 500;

/// From how many keys on it pays to write them as if they were new: what undoes them if they
/// are not costs as much as a few keys.
const MANY: usize = 8;

/// What all adds of a statement have in common.
#[derive(Clone, Copy, PartialEq)]
struct Manner {
    revive_after: Duration,
    limits: Limits,
}

/// What keys are told to wait for.
#[derive(Clone, Copy, PartialEq)]
enum Limits {
    /// What their add says.
    Told,
    /// Their backoff, and the rate of the queue if there is one.
    Backoff(Option<Rate>),
}

impl Manner {
    fn of(add: &Add) -> Self {
        let limits = backoff(add).map_or(Limits::Told, |of| Limits::Backoff(of.rate));
        Self { revive_after: add.revive_after, limits }
    }
}

/// Adds for one statement.
pub(crate) struct Parcel<'a> {
    adds: &'a [Add],
    manner: Manner,
    /// Which adds, in the order of their keys: nobody locks two of them the other way round.
    sorted: Vec<usize>,
    /// Adds for now of a key that another one here adds for now with no lower priority:
    /// which, and that one.
    repeats: Vec<(usize, usize)>,
}

impl<'a> Parcel<'a> {
    /// Takes as many as fit from the front of `rest`; `None` if that is empty.
    pub(crate) fn take(adds: &'a [Add], rest: &mut VecDeque<usize>) -> Option<Self> {
        let manner = Manner::of(&adds[*rest.front()?]);
        let (mut firsts, mut repeats) = (HashMap::new(), Vec::new());
        while let Some(&next) = rest.front() {
            let add = &adds[next];
            match firsts.get(&add.key) {
                _ if Manner::of(add) != manner => break,
                None if firsts.len() < MOST => {
                    firsts.insert(&add.key, next);
                }
                Some(&first) if is_covered(add, &adds[first]) => {
                    repeats.push((next, first));
                }
                _ => break,
            }
            rest.pop_front();
        }
        let mut sorted: Vec<_> = firsts.into_values().collect();
        sorted.sort_unstable_by_key(|&index| &adds[index].key);
        Some(Self { adds, manner, sorted, repeats })
    }

    /// The function that carries it out, and what it is given.
    pub(crate) fn call(
        &self,
        queue: i32,
        now: Option<i64>,
    ) -> (&'static str, Vec<Param>) {
        let keys: Vec<Vec<u8>> = self.each(|add| add.key.to_vec());
        let ords: Vec<i64> = self.sorted.iter().map(|&index| self.ord(index)).collect();
        let ranked = self.sorted.iter().any(|&index| self.adds[index].priority != 0);
        let revive_after = micros(self.manner.revive_after);
        let Limits::Backoff(rate) = self.manner.limits else {
            let delays: Vec<i64> = self.each(|add| micros(told(add)));
            let params = params![queue, keys, ords, ranked, delays, revive_after, now];
            return ("add_keys", params);
        };
        let part = |of: fn(Backoff) -> Duration| {
            self.each(|add| backoff(add).map_or(0, |backoff| micros(of(backoff))))
        };
        let (bases, limits) = (part(|of| of.base), part(|of| of.max));
        let pause = rate.map(|rate| micros(rate.interval).max(1));
        let burst = rate.map(|rate| i64::from(rate.burst.get()));
        let params = params![
            queue,
            keys,
            ords,
            ranked,
            bases,
            limits,
            pause,
            burst,
            revive_after,
            now
        ];
        ("add_limited", params)
    }

    /// Whether all keys are told how long to wait: then it is for `add_keys`.
    pub(crate) fn is_plain(&self) -> bool {
        self.manner.limits == Limits::Told
    }

    /// Whether it is also for `add_new`, and worth that.
    pub(crate) fn is_many(&self) -> bool {
        self.is_plain() && self.sorted.len() >= MANY
    }

    /// The place of an add in the batch, with the rank of its priority in front.
    fn ord(&self, index: usize) -> i64 {
        let rank = -i64::from(self.adds[index].priority);
        i64::from(number(index)) + (rank << 55)
    }

    fn each<T>(&self, of: impl Fn(&Add) -> T) -> Vec<T> {
        self.sorted.iter().map(|&index| of(&self.adds[index])).collect()
    }

    /// Fills in the receipts for keys that were all new.
    pub(crate) fn all_new(&self, receipts: &mut [Receipt]) {
        for &index in &self.sorted {
            let wait = crate::duration(micros(told(&self.adds[index])));
            let state = i16::from(wait.is_zero());
            receipts[index] = self.receipt(index, state, wait);
        }
    }

    /// Reads the answer into the receipts. A repeated add of a key that was dead before the
    /// first is one for a later statement: the first only delayed it.
    pub(crate) fn read(
        &self,
        row: &Row,
        receipts: &mut [Receipt],
        rest: &mut VecDeque<usize>,
    ) -> Result<(), tokio_postgres::Error> {
        for &index in &self.sorted {
            receipts[index] = duplicate(told(&self.adds[index]));
        }
        for (key, state, wait) in changes(row)? {
            if let Ok(at) =
                self.sorted.binary_search_by(|&index| (*self.adds[index].key).cmp(&key))
            {
                let index = self.sorted[at];
                receipts[index] = self.receipt(index, state, wait);
            }
        }
        for &(index, first) in self.repeats.iter().rev() {
            if receipts[first].added == Added::Delayed {
                rest.push_front(index);
            }
        }
        Ok(())
    }

    fn receipt(&self, index: usize, state: i16, wait: Duration) -> Receipt {
        let own = told(&self.adds[index]);
        let plain = self.is_plain();
        if plain && !own.is_zero() {
            return Receipt { added: Added::Delayed, delay: wait };
        }
        let added = match state {
            0 => Added::Delayed,
            1 => Added::Ready,
            2 => Added::Dirty,
            _ => Added::Duplicate,
        };
        let waits = !plain || added == Added::Delayed;
        Receipt { added, delay: if waits { wait } else { own } }
    }
}

/// What an add is answered with that changed nothing.
pub(crate) fn duplicate(delay: Duration) -> Receipt {
    Receipt { added: Added::Duplicate, delay }
}

/// The keys that a statement changed, the state they are in and how long they wait.
fn changes(row: &Row) -> Result<Vec<(Vec<u8>, i16, Duration)>, tokio_postgres::Error> {
    let keys: Option<Vec<Vec<u8>>> = row.try_get(0)?;
    let states: Option<Vec<i16>> = row.try_get(1)?;
    let waits: Option<Vec<Option<i64>>> = row.try_get(2)?;
    let waits = waits.unwrap_or_default().into_iter();
    let waits = waits.map(|wait| crate::duration(wait.unwrap_or_default()));
    let states = states.unwrap_or_default().into_iter().zip(waits);
    let changes = keys.unwrap_or_default().into_iter().zip(states);
    Ok(changes.map(|(key, (state, wait))| (key, state, wait)).collect())
}

fn is_now(add: &Add) -> bool {
    matches!(add.when, When::Now | When::After(Duration::ZERO))
}

/// Whether an add changes nothing after an earlier one of the same key in its batch.
fn is_covered(add: &Add, first: &Add) -> bool {
    is_now(add) && is_now(first) && add.priority <= first.priority
}

/// The delay that an add asks for itself.
fn told(add: &Add) -> Duration {
    if let When::After(delay) = add.when { delay } else { Duration::ZERO }
}

fn backoff(add: &Add) -> Option<Backoff> {
    if let When::RateLimited(backoff) = add.when { Some(backoff) } else { None }
}

fn micros(delay: Duration) -> i64 {
    crate::signed(micros_of(delay))
}

#[cfg(test)]
mod tests {
    use requeue_store::Key;

    use super::*;

    fn add(key: &str, when: When) -> Add {
        let key = Key::new(key.as_bytes()).unwrap();
        Add { revive_after: Duration::ZERO, ..Add::new(key, when) }
    }

    fn cut(adds: &[Add]) -> Vec<(Vec<usize>, usize)> {
        let mut rest: VecDeque<_> = (0..adds.len()).collect();
        std::iter::from_fn(|| Parcel::take(adds, &mut rest))
            .map(|parcel| (parcel.sorted, parcel.repeats.len()))
            .collect()
    }

    #[test]
    fn keys_are_sorted_and_adds_for_now_of_one_key_are_one() {
        let adds: Vec<_> = ["b", "a", "b", "b"].map(|key| add(key, When::Now)).into();
        assert_eq!(cut(&adds), [(vec![1, 0], 2)]);
    }

    #[test]
    fn a_batch_is_cut_where_a_key_comes_again_with_a_delay() {
        let later = When::After(Duration::from_secs(1));
        let adds = [add("a", When::Now), add("b", later), add("a", later)];
        assert_eq!(cut(&adds), [(vec![0, 1], 0), (vec![2], 0)]);
    }

    #[test]
    fn a_batch_is_cut_where_the_rate_changes() {
        let adds = [
            add("a", When::RateLimited(Backoff::default())),
            add("b", When::Now),
            add("c", When::Now),
        ];
        assert_eq!(cut(&adds), [(vec![0], 0), (vec![1, 2], 0)]);
    }
}
