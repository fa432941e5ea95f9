//! Finishes of leases, in batches that one statement takes.
//!
//! A statement takes each key once, and one shared rate. If a transaction of a user holds
//! one of its keys, the server undoes the whole statement. Its finishes are then
//! [`Finished::Busy`], and the other batches go on.

use std::collections::HashSet;
use std::time::Duration;

use requeue::Finish;
use requeue_store::{Error, ErrorKind, FinishRequest, Finished, Rate, micros_of};
use tokio_postgres::Row;

use crate::pool::Pool;
use crate::session::Param;
use crate::{duration, number, signed};

/// Most finishes in one statement.
const MOST: usize = 500;

/// Finishes for one statement.
pub(crate) struct FinishBatch<'a> {
    ends: &'a [FinishRequest],
    /// Indexes of `ends`, in key order: every statement locks keys in that order.
    sorted: Vec<usize>,
    rate: Option<Rate>,
}

impl<'a> FinishBatch<'a> {
    /// Splits finishes into as few batches as possible.
    pub(crate) fn split(ends: &'a [FinishRequest]) -> Vec<Self> {
        let mut batches = Vec::new();
        let mut begin = 0;
        while begin < ends.len() {
            let end = begin + fitting(&ends[begin..]);
            let mut sorted: Vec<_> = (begin..end).collect();
            sorted.sort_unstable_by_key(|&index| &ends[index].hold.key);
            let rate = ends[begin..end].iter().find_map(rate);
            batches.push(Self { ends, sorted, rate });
            begin = end;
        }
        batches
    }

    /// Finishes the leases, and writes the result of each to its index.
    pub(crate) async fn run(
        &self,
        pool: &Pool,
        queue: i32,
        now: Option<i64>,
        results: &mut [Finished],
    ) -> Result<(), Error> {
        match pool.call_one("finish", &self.params(queue, now)).await {
            Ok(row) => {
                self.read(&row, results).map_err(|error| pool.unreadable("finish", error))
            }
            Err(error) if error.kind() == ErrorKind::Busy => {
                self.sorted.iter().for_each(|&index| results[index] = Finished::Busy);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn read(
        &self,
        row: &Row,
        results: &mut [Finished],
    ) -> Result<(), tokio_postgres::Error> {
        let done: Option<Vec<i32>> = row.try_get("done")?;
        for position in done.unwrap_or_default() {
            results[self.index(position)] = Finished::Done;
        }
        let others: Option<Vec<i32>> = row.try_get("others")?;
        let codes: Option<Vec<i16>> = row.try_get("results")?;
        let waits: Option<Vec<i64>> = row.try_get("waits")?;
        let answers =
            codes.unwrap_or_default().into_iter().zip(waits.unwrap_or_default());
        for (position, (code, wait)) in
            others.unwrap_or_default().into_iter().zip(answers)
        {
            results[self.index(position)] = finished(code, duration(wait));
        }
        Ok(())
    }

    /// The index of a finish from its position in the arrays of the call, counted from 1.
    fn index(&self, position: i32) -> usize {
        let position = usize::try_from(position - 1).unwrap_or_default();
        self.sorted[position]
    }

    fn params(&self, queue: i32, now: Option<i64>) -> Vec<Param> {
        let codes: Vec<Code<'_>> = self.each(Code::of);
        // Most batches only succeed, and send none of these.
        let plain = codes.iter().all(Code::is_plain);
        let delays: Option<Vec<i64>> = (!plain)
            .then(|| codes.iter().map(|code| signed(micros_of(code.delay))).collect());
        let limits: Option<Vec<i64>> = (!plain)
            .then(|| codes.iter().map(|code| signed(micros_of(code.longest))).collect());
        let texts: Option<Vec<Option<String>>> =
            (!plain).then(|| codes.iter().map(|code| code.text.map(kept)).collect());
        let finishes: Vec<i16> = codes.iter().map(|code| code.number).collect();
        let keys: Vec<Vec<u8>> = self.each(|end| end.hold.key.to_vec());
        let tokens: Vec<i64> = self.each(|end| signed(end.hold.token.0));
        let ords: Vec<i32> = self.sorted.iter().map(|&index| number(index)).collect();
        let pause = self.rate.map(|rate| signed(micros_of(rate.interval)).max(1));
        let burst = self.rate.map(|rate| i64::from(rate.burst.get()));
        params![
            queue, keys, tokens, ords, finishes, delays, limits, texts, pause, burst, now
        ]
    }

    fn each<T>(&self, of: impl Fn(&'a FinishRequest) -> T) -> Vec<T> {
        self.sorted.iter().map(|&index| of(&self.ends[index])).collect()
    }
}

/// A finish as the SQL function takes it.
struct Code<'a> {
    number: i16,
    delay: Duration,
    longest: Duration,
    text: Option<&'a str>,
}

impl<'a> Code<'a> {
    fn of(request: &'a FinishRequest) -> Self {
        let FinishRequest { finish, backoff, .. } = request;
        let none = Duration::ZERO;
        let plain = |number| Self { number, delay: none, longest: none, text: None };
        let failed = |number| Self { text: Some(request.error_text()), ..plain(number) };
        match finish {
            Finish::Succeed => plain(1),
            Finish::Retry => {
                Self { delay: backoff.base, longest: backoff.max, ..failed(2) }
            }
            Finish::RequeueAfter(delay) => Self { delay: *delay, ..plain(3) },
            Finish::GiveUp => failed(4),
            Finish::Release => plain(5),
            Finish::RetryAfter(delay) => Self { delay: *delay, ..failed(6) },
            Finish::Done | _ => plain(0),
        }
    }

    fn is_plain(&self) -> bool {
        matches!(self.number, 0 | 1 | 5)
    }
}

/// How many of the first finishes fit into one statement.
fn fitting(ends: &[FinishRequest]) -> usize {
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
fn retry_rate(request: &FinishRequest) -> Option<Option<Rate>> {
    (request.finish == Finish::Retry).then_some(request.backoff.rate)
}

fn rate(end: &FinishRequest) -> Option<Rate> {
    retry_rate(end).flatten()
}

fn finished(code: i16, wait: Duration) -> Finished {
    match code {
        0 => Finished::Done,
        1 => Finished::Requeued,
        2 => Finished::Delayed(wait),
        _ => Finished::Buried,
    }
}

/// PostgreSQL stores no zero bytes in text.
fn kept(text: &str) -> String {
    text.replace('\0', "?")
}
