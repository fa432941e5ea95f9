//! The parameters and the answer of the SQL function `lease`.

use std::time::Duration;

use requeue_store::{Grant, Key, LeaseRequest, Leased, Token, micros_of};
use tokio_postgres::types::FromSql;
use tokio_postgres::{Error, Row};

use crate::number::{count, unsigned};
use crate::param::Param;
use crate::watermark::{Progress, Start};
use crate::{duration, number, signed};

/// Most keys of one call, so that it does not hold its locks for long.
const MOST: usize = 1000;

/// Returns how many keys a call may lease.
pub(crate) fn wanted(request: &LeaseRequest) -> usize {
    request.max.min(MOST)
}

/// Returns the parameters of `lease`.
pub(crate) fn params(
    queue: i32,
    request: &LeaseRequest,
    start: Start,
    oldest_first: bool,
    now: Option<i64>,
) -> Vec<Param> {
    let owner = request.owner.as_str().to_owned();
    let wanted = number(wanted(request));
    let lease = signed(micros_of(request.lease));
    let most = request.max_deliveries.map(|most| number(most.get() as usize));
    let Start { seq, time, thorough } = start;
    params![queue, owner, wanted, lease, most, now, seq, time, thorough, oldest_first]
}

/// The answer of `lease`.
pub(crate) struct Answer {
    pub(crate) leased: Leased,
    pub(crate) progress: Progress,
    /// Whether due keys became ready in this call.
    pub(crate) moved: bool,
    /// Whether a key may have been added without waking this caller.
    pub(crate) look_again: bool,
}

impl Answer {
    pub(crate) fn read(row: &Row) -> Result<Self, Error> {
        let paused: Option<bool> = row.try_get("paused")?;
        let more_in: Option<i64> = row.try_get("more_in")?;
        let moved: bool = row.try_get("moved")?;
        let progress = Progress {
            last_seq: row.try_get("last_seq")?,
            swept_until: row.try_get("swept_until")?,
            spent: duration(row.try_get("spent")?),
        };
        let leased = Leased {
            grants: grants(row)?,
            more_in: more_in.map(duration),
            paused: paused.unwrap_or_default(),
        };
        let look_again: Option<bool> = row.try_get("look_again")?;
        let look_again = look_again.unwrap_or_default();
        Ok(Self { leased, progress, moved, look_again })
    }

    /// Returns whether ready keys are left for other workers.
    pub(crate) fn leaves_some(&self) -> bool {
        self.leased.more_in == Some(Duration::ZERO) && !self.leased.paused
    }
}

/// The grants, in the order of their tokens.
fn grants(row: &Row) -> Result<Vec<Grant>, Error> {
    let keys: Vec<Vec<u8>> = list(row, "keys")?;
    let tokens: Vec<i64> = list(row, "tokens")?;
    let delivered: Vec<i32> = list(row, "deliveries")?;
    let failed: Vec<i32> = list(row, "failures")?;
    let waited: Vec<i64> = list(row, "waited")?;
    // Empty if every priority is 0.
    let priorities: Vec<i16> = list(row, "priorities")?;
    let priorities = priorities.into_iter().chain(std::iter::repeat(0));
    let counts = delivered.into_iter().zip(failed).zip(priorities).zip(waited);
    let rows = keys.into_iter().zip(tokens).zip(counts);
    let grant = |((key, token), (((deliveries, failures), priority), waited))| {
        Some(Grant {
            key: Key::new(key).ok()?,
            token: Token(unsigned(token)),
            deliveries: count(deliveries),
            failures: count(failures),
            priority: i8::try_from(priority).unwrap_or_default(),
            waited: duration(waited),
        })
    };
    let mut grants: Vec<_> = rows.filter_map(grant).collect();
    grants.sort_unstable_by_key(|grant| grant.token);
    Ok(grants)
}

/// Reads an array column. Null is an empty array.
fn list<'a, T: FromSql<'a>>(row: &'a Row, name: &str) -> Result<Vec<T>, Error> {
    Ok(row.try_get::<_, Option<Vec<T>>>(name)?.unwrap_or_default())
}
