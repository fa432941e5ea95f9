//! Ends of leases in the parts that one statement takes.
//!
//! A statement takes each key once, and one shared rate. Most leases end well and leave
//! nothing behind: one statement deletes their rows without looking first. What that does
//! not find so is left to a second one.
//!
//! A statement that the server undid, because somebody holds one of its keys, has changed
//! nothing: its ends are [`Finished::Busy`], and the other statements go on. Where their rows
//! are is forgotten by then: if they are asked for again, they are looked up by their keys.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use requeue_store::{End, Ending, Error, ErrorKind, Finished, Rate, micros_of};

use crate::pool::Pool;
use crate::rows::Rows;
use crate::session::Param;
use crate::{duration, number, signed};

/// The most leases that one statement ends.
const MOST: usize = 500;

/// From how many leases on it pays to end them as if all rows were as they were handed out:
/// what undoes that if one is not costs as much as a few.
const MANY: usize = 8;

/// Ends of leases for one statement: which, in the order of their keys.
pub(crate) struct Settlement<'a> {
    ends: &'a [End],
    sorted: Vec<usize>,
    rate: Option<Rate>,
}

impl<'a> Settlement<'a> {
    /// All ends, in as few parts as they fit in.
    pub(crate) fn cut(ends: &'a [End]) -> Vec<Self> {
        let mut parts = Vec::new();
        let mut begin = 0;
        while begin < ends.len() {
            let end = begin + fitting(&ends[begin..]);
            let mut sorted: Vec<_> = (begin..end).collect();
            sorted.sort_unstable_by_key(|&index| &ends[index].hold.key);
            let rate = ends[begin..end].iter().find_map(rate);
            parts.push(Self { ends, sorted, rate });
            begin = end;
        }
        parts
    }

    /// Ends the leases, and answers for each into its place.
    pub(crate) async fn settle(
        mut self,
        pool: &Pool,
        rows: &Rows,
        queue: i32,
        now: Option<i64>,
        answers: &mut [Finished],
    ) -> Result<(), Error> {
        for clean in self.clean(queue, rows) {
            let done = clean.finish(pool).await;
            if let ("finish_all", Ok(done)) = (clean.name, &done) {
                rows.unchanged.learn(done.len() == clean.places.len());
            }
            let (answered, answer) = match done {
                Ok(done) => (done, Finished::Done),
                Err(error) if is_busy(&error) => (clean.all(), Finished::Busy),
                Err(error) => return Err(error),
            };
            for place in &answered {
                answers[*place] = answer;
            }
            self.sorted.retain(|index| !answered.contains(index));
        }
        if self.sorted.is_empty() {
            return Ok(());
        }
        self.finish(pool, queue, now, answers).await
    }

    /// Those that most probably leave nothing behind, as the calls that take them: by where
    /// their rows are, and by their keys if that is not known.
    fn clean(&self, queue: i32, rows: &Rows) -> Vec<Clean> {
        let plain = self.sorted.iter().copied().filter(|&i| is_plain(&self.ends[i]));
        let (mut known, mut addresses, mut unknown) = (vec![], vec![], vec![]);
        for index in plain {
            match rows.take(&self.ends[index].hold) {
                Some(address) => {
                    known.push(index);
                    addresses.push(address);
                }
                None => unknown.push(index),
            }
        }
        let mut calls = Vec::new();
        if !known.is_empty() {
            let hoped = known.len() >= MANY && rows.unchanged.follow();
            let name = if hoped { "finish_all" } else { "finish_known" };
            let params = params![addresses, self.tokens(&known), self.succeed(&known)];
            calls.push(Clean::new(name, params, known, self.ends));
        }
        if !unknown.is_empty() {
            let (keys, tokens, _) = self.holds(&unknown);
            let params = params![queue, keys, tokens, self.succeed(&unknown)];
            calls.push(Clean::new("finish_clean", params, unknown, self.ends));
        }
        calls
    }

    fn tokens(&self, which: &[usize]) -> Vec<i64> {
        which.iter().map(|&index| signed(self.ends[index].hold.token.0)).collect()
    }

    fn succeed(&self, which: &[usize]) -> Vec<bool> {
        which.iter().map(|&index| self.ends[index].ending == Ending::Succeed).collect()
    }

    async fn finish(
        &self,
        pool: &Pool,
        queue: i32,
        now: Option<i64>,
        answers: &mut [Finished],
    ) -> Result<(), Error> {
        let row = match pool.call_one("finish", &self.params(queue, now)).await {
            Err(error) if is_busy(&error) => {
                self.sorted.iter().for_each(|&index| answers[index] = Finished::Busy);
                return Ok(());
            }
            row => row?,
        };
        let read = || -> Result<_, tokio_postgres::Error> {
            let places: Option<Vec<i32>> = row.try_get(0)?;
            let codes: Option<Vec<i16>> = row.try_get(1)?;
            let waits: Option<Vec<i64>> = row.try_get(2)?;
            let codes =
                codes.unwrap_or_default().into_iter().zip(waits.unwrap_or_default());
            Ok(places.unwrap_or_default().into_iter().zip(codes))
        };
        let ended = read().map_err(|error| pool.unreadable("finish", error))?;
        for (place, (code, wait)) in ended {
            answers[index(place)] = finished(code, duration(wait));
        }
        Ok(())
    }

    fn params(&self, queue: i32, now: Option<i64>) -> Vec<Param> {
        let (keys, tokens, places) = self.holds(&self.sorted);
        let mut endings = Vec::new();
        let (mut delays, mut limits) = (Vec::new(), Vec::new());
        let mut texts = Vec::new();
        for &index in &self.sorted {
            let told = Told::of(&self.ends[index].ending);
            endings.push(told.code);
            delays.push(signed(micros_of(told.delay)));
            limits.push(signed(micros_of(told.longest)));
            texts.push(told.text.map(kept));
        }
        let pause = self.rate.map(|rate| signed(micros_of(rate.interval)).max(1));
        let burst = self.rate.map(|rate| i64::from(rate.burst.get()));
        params![
            queue, keys, tokens, places, endings, delays, limits, texts, pause, burst,
            now
        ]
    }

    fn holds(&self, which: &[usize]) -> (Vec<Vec<u8>>, Vec<i64>, Vec<i32>) {
        let hold = |&index: &usize| &self.ends[index].hold;
        (
            which.iter().map(|index| hold(index).key.to_vec()).collect(),
            self.tokens(which),
            which.iter().map(|&index| number(index)).collect(),
        )
    }
}

/// A call for leases that leave nothing behind.
struct Clean {
    name: &'static str,
    params: Vec<Param>,
    /// Which end a token belongs to.
    places: HashMap<i64, usize>,
}

impl Clean {
    fn new(
        name: &'static str,
        params: Vec<Param>,
        which: Vec<usize>,
        ends: &[End],
    ) -> Self {
        let place = |index: usize| (signed(ends[index].hold.token.0), index);
        Self { name, params, places: which.into_iter().map(place).collect() }
    }

    /// The ends that it was asked for.
    fn all(self) -> HashSet<usize> {
        self.places.into_values().collect()
    }

    /// The ends that were carried out.
    async fn finish(&self, pool: &Pool) -> Result<HashSet<usize>, Error> {
        let row = pool.call_one(self.name, &self.params).await?;
        let done: Option<Vec<i64>> =
            row.try_get(0).map_err(|error| pool.unreadable(self.name, error))?;
        let done = done.unwrap_or_default().into_iter();
        Ok(done.filter_map(|token| self.places.get(&token).copied()).collect())
    }
}

/// What an ending says, as the statement takes it.
struct Told<'a> {
    code: i16,
    delay: Duration,
    longest: Duration,
    text: Option<&'a str>,
}

impl<'a> Told<'a> {
    fn of(ending: &'a Ending) -> Self {
        let told = |code| Self {
            code,
            delay: Duration::ZERO,
            longest: Duration::ZERO,
            text: None,
        };
        match ending {
            Ending::Succeed => told(1),
            Ending::Retry { backoff, error } => Self {
                delay: backoff.base,
                longest: backoff.max,
                text: Some(error),
                ..told(2)
            },
            Ending::RetryAfter(delay) => Self { delay: *delay, ..told(3) },
            Ending::Bury { reason } => Self { text: Some(reason), ..told(4) },
            Ending::Release => told(5),
            Ending::Done | _ => told(0),
        }
    }
}

/// How many of the first ends fit into one statement.
fn fitting(ends: &[End]) -> usize {
    let (mut keys, mut shared) = (HashSet::new(), None);
    for (number, end) in ends.iter().enumerate() {
        let rate = retry_rate(end);
        let other = rate.is_some_and(|rate| *shared.get_or_insert(rate) != rate);
        if other || number == MOST || !keys.insert(&end.hold.key) {
            return number;
        }
    }
    ends.len()
}

/// The rate of a retry, if the end is one: `Some(None)` for a retry without one.
#[expect(clippy::option_option, reason = "no retry, and a retry without a rate, differ")]
fn retry_rate(end: &End) -> Option<Option<Rate>> {
    if let Ending::Retry { backoff, .. } = &end.ending {
        Some(backoff.rate)
    } else {
        None
    }
}

fn rate(end: &End) -> Option<Rate> {
    retry_rate(end).flatten()
}

fn is_busy(error: &Error) -> bool {
    error.kind() == ErrorKind::Busy
}

fn is_plain(end: &End) -> bool {
    matches!(end.ending, Ending::Done | Ending::Succeed)
}

fn finished(code: i16, wait: Duration) -> Finished {
    match code {
        0 => Finished::Done,
        1 => Finished::Requeued,
        2 => Finished::Delayed(wait),
        _ => Finished::Buried,
    }
}

/// As much of a text for people as is kept. PostgreSQL has no zero bytes in its texts.
fn kept(text: &str) -> String {
    let mut text = text.replace('\0', "\u{fffd}");
    let end = (0..=Ending::MAX_TEXT).rev().find(|&end| text.is_char_boundary(end));
    text.truncate(end.unwrap_or_default());
    text
}

fn index(place: i32) -> usize {
    usize::try_from(place).unwrap_or_default()
}
