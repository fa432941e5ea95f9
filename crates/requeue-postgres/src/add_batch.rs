//! Adds, in batches that one statement takes.
//!
//! A statement takes each key once, with one revival delay and one shared rate. Adds are
//! split where the next one does not fit, so that the batches, one after the other, have
//! the same effect as the adds one by one.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use requeue::Added;
use requeue_store::{Add, Backoff, Error, Rate, Receipt, When, micros_of};
use tokio_postgres::Row;

use crate::number;
use crate::param::Param;

/// Most keys in one statement, so that it does not hold its locks for long.
const MOST: usize = 500;

/// Smallest batch that is inserted as if all its keys were new. If one is not, the insert is
/// undone, which costs as much as a few keys.
const WORTH_GUESSING: usize = 8;

/// What all adds of a statement have in common.
#[derive(Clone, Copy, PartialEq)]
struct Common {
    revive_after: Duration,
    delays: Delays,
}

/// Where the delays of keys come from.
#[derive(Clone, Copy, PartialEq)]
enum Delays {
    /// From the adds.
    Given,
    /// From the backoff of each key, and the rate of the queue if there is one.
    Backoff(Option<Rate>),
}

impl Common {
    fn of(add: &Add) -> Self {
        let delays =
            backoff(add).map_or(Delays::Given, |backoff| Delays::Backoff(backoff.rate));
        Self { revive_after: add.revive_after, delays }
    }
}

/// Adds for one statement.
pub(crate) struct AddBatch<'a> {
    adds: &'a [Add],
    common: Common,
    /// Indexes of `adds`, in key order: every statement locks keys in that order.
    sorted: Vec<usize>,
    /// Adds for now that an earlier add in the batch covers: the index of each, and that of
    /// the earlier add.
    repeats: Vec<(usize, usize)>,
}

impl<'a> AddBatch<'a> {
    /// Takes as many adds as fit from the front of `rest`. Returns `None` if it is empty.
    pub(crate) fn take(adds: &'a [Add], rest: &mut VecDeque<usize>) -> Option<Self> {
        let common = Common::of(&adds[*rest.front()?]);
        let (mut firsts, mut repeats) = (HashMap::new(), Vec::new());
        while let Some(&next) = rest.front() {
            let add = &adds[next];
            match firsts.get(&add.key) {
                _ if Common::of(add) != common => break,
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
        Some(Self { adds, common, sorted, repeats })
    }

    /// Returns whether the adds give the delays: then the batch is for `add_keys`.
    pub(crate) fn has_given_delays(&self) -> bool {
        self.common.delays == Delays::Given
    }

    /// Returns whether it pays to insert the keys as if all were new.
    pub(crate) fn is_worth_guessing(&self) -> bool {
        self.has_given_delays() && self.sorted.len() >= WORTH_GUESSING
    }

    /// Returns the SQL function for the batch, and its parameters.
    ///
    /// With `expect_new`, the function inserts the keys as if all were new first.
    pub(crate) fn call(
        &self,
        queue: i32,
        now: Option<i64>,
        expect_new: bool,
    ) -> (&'static str, Vec<Param>) {
        let keys: Vec<Vec<u8>> = self.each(|add| add.key.to_vec());
        let seqs: Vec<i64> = self.sorted.iter().map(|&index| self.seq(index)).collect();
        let has_priorities =
            self.sorted.iter().any(|&index| self.adds[index].priority != 0);
        let revive_after = micros(self.common.revive_after);
        let Delays::Backoff(rate) = self.common.delays else {
            let delays: Vec<i64> = self.each(|add| micros(given_delay(add)));
            let params = params![
                queue,
                keys,
                seqs,
                has_priorities,
                delays,
                revive_after,
                now,
                expect_new
            ];
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
            seqs,
            has_priorities,
            bases,
            limits,
            pause,
            burst,
            revive_after,
            now
        ];
        ("add_rate_limited", params)
    }

    /// The position of an add in the batch, below its priority: orders keys as `seq` does.
    fn seq(&self, index: usize) -> i64 {
        let priority = i64::from(self.adds[index].priority);
        i64::from(number(index)) + (-priority << 55)
    }

    fn each<T>(&self, of: impl Fn(&Add) -> T) -> Vec<T> {
        self.sorted.iter().map(|&index| of(&self.adds[index])).collect()
    }

    /// Returns the SQL function that adds key by key, and its parameters.
    pub(crate) fn call_each(
        &self,
        queue: i32,
        now: Option<i64>,
    ) -> (&'static str, Vec<Param>) {
        let (name, mut params) = self.call(queue, now, false);
        if name == "add_keys" {
            params.pop();
            return ("add_each", params);
        }
        ("add_rate_limited_each", params)
    }

    /// Returns whether the batch has only one key.
    pub(crate) fn is_single(&self) -> bool {
        self.sorted.len() == 1
    }

    /// Reads the answer into the receipts. Returns whether all keys seem to have been new.
    ///
    /// A repeated add of a key that was dead goes back to `rest`: the first add only
    /// delayed the key.
    pub(crate) fn read(
        &self,
        row: &Row,
        receipts: &mut [Result<Receipt, Error>],
        rest: &mut VecDeque<usize>,
    ) -> Result<bool, tokio_postgres::Error> {
        if self.has_given_delays() && row.try_get("all_new")? {
            self.all_new(receipts);
            return Ok(true);
        }
        for &index in &self.sorted {
            receipts[index] = Ok(duplicate(given_delay(&self.adds[index])));
        }
        for (key, state, wait) in changes(row)? {
            if let Ok(at) =
                self.sorted.binary_search_by(|&index| (*self.adds[index].key).cmp(&key))
            {
                let index = self.sorted[at];
                receipts[index] = Ok(self.receipt(index, state, wait));
            }
        }
        let is = |receipt: &Result<Receipt, Error>, added: &[Added]| {
            receipt.as_ref().is_ok_and(|receipt| added.contains(&receipt.added))
        };
        for &(index, first) in self.repeats.iter().rev() {
            if is(&receipts[first], &[Added::Delayed]) {
                rest.push_front(index);
            }
        }
        let is_new =
            |&index: &usize| is(&receipts[index], &[Added::Ready, Added::Delayed]);
        Ok(self.sorted.iter().all(is_new))
    }

    /// Reads the answer of a call key by key. Locked keys have the error `busy`.
    pub(crate) fn read_each(
        &self,
        row: &Row,
        busy: &Error,
        receipts: &mut [Result<Receipt, Error>],
        rest: &mut VecDeque<usize>,
    ) -> Result<(), tokio_postgres::Error> {
        self.read(row, receipts, rest)?;
        let positions: Option<Vec<i32>> = row.try_get("busy")?;
        for position in positions.unwrap_or_default() {
            let first = self.sorted[crate::index(position)];
            receipts[first] = Err(busy.clone());
            for &(index, _) in self.repeats.iter().filter(|(_, of)| *of == first) {
                receipts[index] = Err(busy.clone());
            }
        }
        Ok(())
    }

    /// Gives all adds of the batch the same error.
    pub(crate) fn fail(&self, error: &Error, receipts: &mut [Result<Receipt, Error>]) {
        let repeats = self.repeats.iter().map(|(index, _)| *index);
        for index in self.sorted.iter().copied().chain(repeats) {
            receipts[index] = Err(error.clone());
        }
    }

    /// Fills in the receipts if all keys were new.
    fn all_new(&self, receipts: &mut [Result<Receipt, Error>]) {
        for &index in &self.sorted {
            let wait = crate::duration(micros(given_delay(&self.adds[index])));
            let state = i16::from(wait.is_zero());
            receipts[index] = Ok(self.receipt(index, state, wait));
        }
    }

    fn receipt(&self, index: usize, state: i16, wait: Duration) -> Receipt {
        let given = given_delay(&self.adds[index]);
        let has_given_delays = self.has_given_delays();
        if has_given_delays && !given.is_zero() {
            return Receipt { added: Added::Delayed, delay: wait };
        }
        let added = match state {
            0 => Added::Delayed,
            1 => Added::Ready,
            2 => Added::Dirty,
            _ => Added::Duplicate,
        };
        let waits = !has_given_delays || added == Added::Delayed;
        Receipt { added, delay: if waits { wait } else { given } }
    }
}

/// The receipt of an add that changed nothing.
pub(crate) fn duplicate(delay: Duration) -> Receipt {
    Receipt { added: Added::Duplicate, delay }
}

/// The keys that a statement changed, with their states and delays.
fn changes(row: &Row) -> Result<Vec<(Vec<u8>, i16, Duration)>, tokio_postgres::Error> {
    let keys: Option<Vec<Vec<u8>>> = row.try_get("changed")?;
    let states: Option<Vec<i16>> = row.try_get("states")?;
    let waits: Option<Vec<Option<i64>>> = row.try_get("waits")?;
    let waits = waits.unwrap_or_default().into_iter();
    let waits = waits.map(|wait| crate::duration(wait.unwrap_or_default()));
    let states = states.unwrap_or_default().into_iter().zip(waits);
    let changes = keys.unwrap_or_default().into_iter().zip(states);
    Ok(changes.map(|(key, (state, wait))| (key, state, wait)).collect())
}

fn is_now(add: &Add) -> bool {
    matches!(add.when, When::Now | When::After(Duration::ZERO))
}

/// Returns whether an add changes nothing after `first`, an add of the same key.
fn is_covered(add: &Add, first: &Add) -> bool {
    is_now(add) && is_now(first) && add.priority <= first.priority
}

fn given_delay(add: &Add) -> Duration {
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

    /// Splits adds into batches: the indexes and the number of repeats of each.
    fn split(adds: &[Add]) -> Vec<(Vec<usize>, usize)> {
        let mut rest: VecDeque<_> = (0..adds.len()).collect();
        std::iter::from_fn(|| AddBatch::take(adds, &mut rest))
            .map(|batch| (batch.sorted, batch.repeats.len()))
            .collect()
    }

    #[test]
    fn keys_are_sorted_and_repeated_adds_for_now_collapse() {
        let adds: Vec<_> = ["b", "a", "b", "b"].map(|key| add(key, When::Now)).into();
        assert_eq!(split(&adds), [(vec![1, 0], 2)]);
    }

    #[test]
    fn batch_ends_before_a_repeated_key_with_a_delay() {
        let later = When::After(Duration::from_secs(1));
        let adds = [add("a", When::Now), add("b", later), add("a", later)];
        assert_eq!(split(&adds), [(vec![0, 1], 0), (vec![2], 0)]);
    }

    #[test]
    fn batch_ends_where_the_rate_changes() {
        let adds = [
            add("a", When::RateLimited(Backoff::default())),
            add("b", When::Now),
            add("c", When::Now),
        ];
        assert_eq!(split(&adds), [(vec![0], 0), (vec![1, 2], 0)]);
    }
}
