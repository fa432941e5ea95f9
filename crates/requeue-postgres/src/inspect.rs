//! Reads the answers of functions that inspect a queue.

use requeue_store::{
    Dead, Error, ErrorKind, Expired, Failing, Key, Look, Owner, Phase, Stats, Token,
    Worker,
};
use tokio_postgres::Row;

use crate::duration;
use crate::number::{count, unsigned};

type Answer<T> = Result<T, Error>;

/// One column of a row.
fn column<'a, T: tokio_postgres::types::FromSql<'a>>(
    row: &'a Row,
    name: &str,
) -> Answer<T> {
    row.try_get(name).map_err(|error| {
        let text = format!("cannot read the column {name} of an answer");
        Error::new(ErrorKind::Corrupt, text).because(error)
    })
}

pub(crate) fn key(row: &Row) -> Answer<Key> {
    Key::new(column::<Vec<u8>>(row, "key")?)
}

fn number(row: &Row, name: &str) -> Answer<u64> {
    column(row, name).map(unsigned)
}

fn times(row: &Row, name: &str) -> Answer<u32> {
    column(row, name).map(count)
}

pub(crate) fn expired(row: &Row) -> Answer<Expired> {
    Ok(Expired {
        due: number(row, "due")?,
        returned: number(row, "returned")?,
        dead: number(row, "dead")?,
    })
}

pub(crate) fn look(row: &Row) -> Answer<Look> {
    Ok(Look {
        phase: phase(row)?,
        delayed: column::<Option<i64>>(row, "delay")?.map(duration),
        failures: times(row, "failures")?,
        deliveries: times(row, "deliveries")?,
    })
}

fn phase(row: &Row) -> Answer<Phase> {
    Ok(match column::<i16>(row, "state")? {
        0 => Phase::Absent,
        1 => Phase::Ready,
        2 => Phase::Processing {
            owner: Owner::new(column::<String>(row, "owner")?),
            token: Token(number(row, "token")?),
            dirty: column(row, "dirty")?,
        },
        _ => Phase::Dead,
    })
}

pub(crate) fn stats(row: &Row) -> Answer<Stats> {
    Ok(Stats {
        ready: number(row, "ready")?,
        delayed: number(row, "delayed")?,
        processing: number(row, "processing")?,
        dirty: number(row, "dirty")?,
        failing: number(row, "failing")?,
        dead: number(row, "dead")?,
        oldest_ready: column::<Option<i64>>(row, "oldest_ready")?.map(duration),
        paused: column(row, "paused")?,
    })
}

pub(crate) fn failing(row: &Row) -> Answer<Failing> {
    Ok(Failing {
        key: key(row)?,
        failures: times(row, "failures")?,
        error: column(row, "error")?,
        retry_in: column::<Option<i64>>(row, "retry_in")?.map(duration),
    })
}

pub(crate) fn worker(row: &Row) -> Answer<Worker> {
    Ok(Worker {
        owner: Owner::new(column::<String>(row, "owner")?),
        seen: duration(column(row, "seen")?),
        processing: number(row, "processing")?,
    })
}

pub(crate) fn dead(row: &Row) -> Answer<Dead> {
    Ok(Dead {
        key: key(row)?,
        reason: column(row, "reason")?,
        since: duration(column(row, "since")?),
        failures: times(row, "failures")?,
        deliveries: times(row, "deliveries")?,
        owner: Owner::new(column::<String>(row, "owner")?),
    })
}
