//! Finishes of leases, in batches that one statement takes.
//!
//! A statement takes each key once, and one shared rate. If a transaction of a user holds
//! one of its keys, the server undoes the whole statement, and it is repeated key by key.

use std::collections::HashSet;
use std::time::Duration;

use requeue::Finish;
use requeue_store::{Error, ErrorKind, FinishRequest, Finished, Rate, micros_of};
use tokio_postgres::Row;

use crate::param::Param;
use crate::pool::Pool;
use crate::{duration, number, signed};

/// Most finishes in one statement.
const MOST: usize = 500;

/// Finishes for one statement.
pub(crate) struct FinishBatch<'a> {
    requests: &'a [FinishRequest],
    /// Indexes of `requests`, in key order: every statement locks keys in that order.
    sorted: Vec<usize>,
    rate: Option<Rate>,
}

impl<'a> FinishBatch<'a> {
    /// Splits finishes into as few batches as possible.
    pub(crate) fn split(requests: &'a [FinishRequest]) -> Vec<Self> {
        let mut batches = Vec::new();
        let mut begin = 0;
        while begin < requests.len() {
            let end = begin + fitting(&requests[begin..]);
            let mut sorted: Vec<_> = (begin..end).collect();
            sorted.sort_unstable_by_key(|&index| &requests[index].hold.key);
            let rate =
                requests[begin..end].iter().find_map(|request| retry_rate(request)?);
            batches.push(Self { requests, sorted, rate });
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
        results: &mut [Result<Finished, Error>],
    ) -> Result<(), Error> {
        let params = self.params(queue, now);
        let busy = match pool.call_unlocked("finish", &params).await {
            Ok(row) => {
                let read = self.read(&row, results);
                return read.map_err(|error| pool.unreadable("finish", error));
            }
            Err(error) if error.kind() == ErrorKind::Busy && self.sorted.len() > 1 => {
                error
            }
            Err(error) => return Err(error),
        };
        let row = pool.call_unlocked("finish_each", &params).await?;
        let read = self.read(&row, results).and_then(|()| row.try_get("busy"));
        let positions: Option<Vec<i32>> =
            read.map_err(|error| pool.unreadable("finish_each", error))?;
        for position in positions.unwrap_or_default() {
            results[self.index(position)] = Err(busy.clone());
        }
        Ok(())
    }

    /// Gives all finishes of the batch the same error.
    pub(crate) fn fail(&self, error: &Error, results: &mut [Result<Finished, Error>]) {
        self.sorted.iter().for_each(|&index| results[index] = Err(error.clone()));
    }

    fn read(
        &self,
        row: &Row,
        results: &mut [Result<Finished, Error>],
    ) -> Result<(), tokio_postgres::Error> {
        let done: Option<Vec<i32>> = row.try_get("done")?;
        for position in done.unwrap_or_default() {
            results[self.index(position)] = Ok(Finished::Done);
        }
        let others: Option<Vec<i32>> = row.try_get("others")?;
        let names: Option<Vec<&str>> = row.try_get("results")?;
        let waits: Option<Vec<i64>> = row.try_get("waits")?;
        let others = others.unwrap_or_default().into_iter();
        let outcomes = names.into_iter().flatten().zip(waits.into_iter().flatten());
        for (position, (name, wait)) in others.zip(outcomes) {
            results[self.index(position)] = Ok(finished(name, duration(wait)));
        }
        Ok(())
    }

    /// The index of a request, from its position in the arrays of the call.
    fn index(&self, position: i32) -> usize {
        self.sorted[crate::index(position)]
    }

    fn params(&self, queue: i32, now: Option<i64>) -> Vec<Param> {
        let keys: Vec<Vec<u8>> = self.each(|request| request.hold.key.to_vec());
        let tokens: Vec<i64> = self.each(|request| signed(request.hold.token.0));
        let ords: Vec<i32> = self.sorted.iter().map(|&index| number(index)).collect();
        let finishes: Vec<&'static str> = self.each(|request| name(request.finish));
        let (mut delays, mut limits, mut errors) = (None, None, None);
        // Most batches only succeed, and need none of these.
        if self.each(has_details).contains(&true) {
            let (some_delays, some_limits): (Vec<i64>, Vec<i64>) =
                self.each(delay_and_limit).into_iter().unzip();
            (delays, limits) = (Some(some_delays), Some(some_limits));
            errors = Some(self.each(|request| stored_text(request.error_text())));
        }
        let pause = self.rate.map(|rate| signed(micros_of(rate.interval)).max(1));
        let burst = self.rate.map(|rate| i64::from(rate.burst.get()));
        params![
            queue, keys, tokens, ords, finishes, delays, limits, errors, pause, burst,
            now
        ]
    }

    fn each<T>(&self, of: impl Fn(&'a FinishRequest) -> T) -> Vec<T> {
        self.sorted.iter().map(|&index| of(&self.requests[index])).collect()
    }
}

/// The name of a finish in SQL.
fn name(finish: Finish) -> &'static str {
    match finish {
        Finish::Succeed => "succeed",
        Finish::RequeueAfter(_) => "requeue_after",
        Finish::Retry => "retry",
        Finish::RetryAfter(_) => "retry_after",
        Finish::GiveUp => "give_up",
        Finish::Release => "release",
        Finish::Done | _ => "done",
    }
}

/// Returns whether a finish has a delay or an error.
fn has_details(request: &FinishRequest) -> bool {
    !matches!(request.finish, Finish::Succeed | Finish::Release | Finish::Done)
}

/// The delay of a finish, or the first and the longest delay of its backoff.
fn delay_and_limit(request: &FinishRequest) -> (i64, i64) {
    let micros = |delay| signed(micros_of(delay));
    match request.finish {
        Finish::RequeueAfter(delay) | Finish::RetryAfter(delay) => (micros(delay), 0),
        Finish::Retry => (micros(request.backoff.base), micros(request.backoff.max)),
        Finish::Succeed | Finish::GiveUp | Finish::Release | Finish::Done | _ => (0, 0),
    }
}

/// How many of the first finishes fit into one statement.
fn fitting(requests: &[FinishRequest]) -> usize {
    let (mut keys, mut shared) = (HashSet::new(), None);
    for (number, request) in requests.iter().enumerate() {
        let rate = retry_rate(request);
        let other = rate.is_some_and(|rate| *shared.get_or_insert(rate) != rate);
        if other || number == MOST || !keys.insert(&request.hold.key) {
            return number;
        }
    }
    requests.len()
}

/// The rate of a retry: `None` if this is no retry, `Some(None)` if it has no rate.
#[expect(clippy::option_option, reason = "no retry, and a retry without a rate, differ")]
fn retry_rate(request: &FinishRequest) -> Option<Option<Rate>> {
    (request.finish == Finish::Retry).then_some(request.backoff.rate)
}

fn finished(name: &str, wait: Duration) -> Finished {
    match name {
        "done" => Finished::Done,
        "ready" => Finished::Requeued,
        "delayed" => Finished::Delayed(wait),
        _ => Finished::Dead,
    }
}

/// PostgreSQL stores no zero bytes in text.
fn stored_text(text: &str) -> String {
    text.replace('\0', "?")
}
