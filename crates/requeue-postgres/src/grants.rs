//! What a lease is answered with.

use std::time::Duration;

use requeue_store::{Grant, Key, LeaseRequest, Leased, Token, micros_of};
use tokio_postgres::types::FromSql;
use tokio_postgres::{Error, Row};

use crate::low::{Aim, Found};
use crate::session::Param;
use crate::units::{count, unsigned};
use crate::{duration, number, signed};

/// The most keys that one call hands out, so that it stays short.
const MOST: usize = 1000;

/// How many keys a call is to hand out.
pub(crate) fn wanted(request: &LeaseRequest) -> usize {
    request.max.min(MOST)
}

/// What the function `lease` is given.
pub(crate) fn params(
    queue: i32,
    request: &LeaseRequest,
    aim: Aim,
    longest_first: bool,
    now: Option<i64>,
) -> Vec<Param> {
    let owner = request.owner.as_str().to_owned();
    let wanted = number(wanted(request));
    let lease = signed(micros_of(request.lease));
    let most = request.max_deliveries.map(|most| number(most.get() as usize));
    let Aim { place, moment, thorough } = aim;
    params![
        queue,
        owner,
        wanted,
        lease,
        most,
        now,
        place,
        moment,
        thorough,
        longest_first
    ]
}

/// What it answers.
pub(crate) struct Answer {
    pub(crate) leased: Leased,
    pub(crate) found: Found,
    /// Keys became ready in this call.
    pub(crate) moved: bool,
    /// Nothing was found, and what was added meanwhile woke nobody.
    pub(crate) look_again: bool,
}

impl Answer {
    pub(crate) fn read(row: &Row) -> Result<Self, Error> {
        let paused: Option<bool> = row.try_get("paused")?;
        let more_in: Option<i64> = row.try_get("more_in")?;
        let moved: bool = row.try_get("moved")?;
        let found = Found {
            place: row.try_get("last_seq")?,
            moment: row.try_get("swept_until")?,
            spent: duration(row.try_get("spent")?),
        };
        let leased = Leased {
            grants: grants(row)?,
            more_in: more_in.map(duration),
            paused: paused.unwrap_or_default(),
        };
        let look_again: Option<bool> = row.try_get("look_again")?;
        let look_again = look_again.unwrap_or_default();
        Ok(Self { leased, found, moved, look_again })
    }

    /// Whether a key is left that another worker can have.
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

/// A column that is an array, or nothing.
fn list<'a, T: FromSql<'a>>(row: &'a Row, name: &str) -> Result<Vec<T>, Error> {
    Ok(row.try_get::<_, Option<Vec<T>>>(name)?.unwrap_or_default())
}
