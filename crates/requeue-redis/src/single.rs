//! Short scripts for one key.
//!
//! They handle only the usual case, and need fewer Redis keys, arguments and commands for it
//! than the scripts for batches. In any other case they change nothing and the functions
//! return `None`; the caller then uses the script for batches.

use std::time::Duration;

use redis::Value;
use requeue::Finish;
use requeue_store::{
    Add, Error, FinishRequest, Finished, Grant, Key, LeaseRequest, Leased, Receipt,
    Token, When, micros_of,
};

use crate::add::read_added;
use crate::client::{Args, Call, Client};
use crate::encode;
use crate::error::unexpected_reply;
use crate::node::Sending;
use crate::partition::partition_of;
use crate::reply::{ReplyReader, between};
use crate::script::{self, Script};

pub(crate) async fn add(
    client: &Client,
    adds: &[Add],
    sending: Sending,
) -> Result<Option<Receipt>, Error> {
    let [Add { key, when: When::Now, priority: 0, .. }] = adds else { return Ok(None) };
    let args = vec![key.to_vec()];
    let letter = call_for_letter(client, &script::ADD_ONE, key, args, sending).await?;
    let receipt = |added| Receipt { added, delay: Duration::ZERO };
    Ok(letter.and_then(read_added).map(receipt))
}

pub(crate) async fn finish(
    client: &Client,
    requests: &[FinishRequest],
) -> Result<Option<Finished>, Error> {
    let [FinishRequest { hold, finish: Finish::Succeed | Finish::Done, .. }] = requests
    else {
        return Ok(None);
    };
    let record = format!("P.{}----", encode::token(hold.token));
    let args = vec![hold.key.to_vec(), record.into_bytes()];
    let sending = client.sending();
    let letter =
        call_for_letter(client, &script::FINISH_ONE, &hold.key, args, sending).await?;
    Ok(letter.filter(|letter| *letter == b'd').map(|_| Finished::Done))
}

/// Leases a key from a queue with one partition.
///
/// This does not look at the keys that are left, so it never sets the marker for other
/// waiters.
pub(crate) async fn lease(
    client: &Client,
    request: &LeaseRequest,
    last_token: Token,
) -> Result<Option<Leased>, Error> {
    let owner = request.owner.as_str().as_bytes().to_vec();
    let lease = micros_of(request.lease).to_string().into_bytes();
    let args = vec![owner, lease, encode::token(last_token).into_bytes()];
    let grant =
        read_grant(call(client, &script::LEASE_ONE, 0, args, client.sending()).await?)?;
    let leased = |grant| Leased {
        grants: vec![grant],
        more_in: Some(Duration::ZERO),
        paused: false,
    };
    Ok(grant.map(leased))
}

/// Calls a script that replies with a letter or with nothing.
async fn call_for_letter(
    client: &Client,
    script: &'static Script,
    key: &Key,
    args: Args,
    sending: Sending,
) -> Result<Option<u8>, Error> {
    let partition = partition_of(key, client.partitions());
    let reply = call(client, script, partition, args, sending).await?;
    if reply == Value::Nil {
        return Ok(None);
    }
    let letters = ReplyReader::new(reply, "a key").bytes()?;
    letters.first().copied().map(Some).ok_or_else(|| unexpected_reply("a key"))
}

async fn call(
    client: &Client,
    script: &'static Script,
    partition: usize,
    mut args: Args,
    sending: Sending,
) -> Result<Value, Error> {
    args.extend(client.test_time().map(|time| format!("{time:016}").into_bytes()));
    client.call_one(Call { script, partition, keys: Vec::new(), args }, sending).await
}

/// Reads the reply of `one/lease.lua`.
fn read_grant(reply: Value) -> Result<Option<Grant>, Error> {
    if reply == Value::Nil {
        return Ok(None);
    }
    let bytes = ReplyReader::new(reply, "a lease").bytes()?;
    let (token, since, key) =
        split_grant(&bytes).ok_or_else(|| unexpected_reply("a lease"))?;
    Ok(Some(Grant {
        key: Key::new(key)?,
        token: Token(token),
        deliveries: 1,
        failures: 0,
        priority: 0,
        waited: between(since, token),
    }))
}

/// Splits two times of 16 digits off the key.
fn split_grant(bytes: &[u8]) -> Option<(u64, u64, &[u8])> {
    let (token, rest) = bytes.split_at_checked(16)?;
    let (since, key) = rest.split_at_checked(16)?;
    let number = |digits| std::str::from_utf8(digits).ok()?.parse().ok();
    Some((number(token)?, number(since)?, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_read_from_two_times_and_the_key() {
        let reply = b"17000000000000001699999999999990a/b".to_vec();
        let grant = read_grant(Value::BulkString(reply)).unwrap().unwrap();
        assert_eq!(
            (grant.token, &grant.key[..]),
            (Token(1_700_000_000_000_000), &b"a/b"[..])
        );
        assert_eq!((grant.deliveries, grant.failures, grant.priority), (1, 0, 0));
        assert_eq!(grant.waited, Duration::from_micros(10));
        assert!(read_grant(Value::BulkString(b"17".to_vec())).is_err());
        assert!(read_grant(Value::Nil).unwrap().is_none());
    }
}
