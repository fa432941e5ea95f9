//! Adding keys.

use redis::Value;
use requeue::Added;
use requeue_store::{Add, Error, Receipt, When};

use crate::chunk::Chunk;
use crate::client::{Args, Client};
use crate::node::Sending;
use crate::reply::ReplyReader;
use crate::{encode, script, single};

pub(crate) async fn add(
    client: &Client,
    adds: &[Add],
    sending: Sending,
) -> Vec<Result<Receipt, Error>> {
    match single::add(client, adds, sending).await {
        Ok(Some(receipt)) => return vec![Ok(receipt)],
        Ok(None) => {}
        Err(error) => return vec![Err(error)],
    }
    let push_args = |chunk: &Chunk, args: &mut Args| {
        args.push(chunk.items.len().to_string().into_bytes());
        chunk.push_keys(|index| &adds[index].key, args);
        let plan = |index: &usize| encode::plan(&adds[*index], client.partitions());
        let plans = if is_uniform(chunk, adds) { 1 } else { chunk.items.len() };
        args.extend(chunk.items.iter().take(plans).map(|index| plan(index).into_bytes()));
    };
    let keys = adds.iter().map(|add| &add.key);
    client.call_batch(keys, &script::ADD, sending, push_args, read_receipts).await
}

/// Returns whether all keys of a chunk are added now and have the same plan.
fn is_uniform(chunk: &Chunk, adds: &[Add]) -> bool {
    let plan = |add: &Add| (add.priority, add.revive_after);
    let first = &adds[chunk.items[0]];
    let is_same = |add: &Add| matches!(add.when, When::Now) && plan(add) == plan(first);
    chunk.items.iter().all(|index| is_same(&adds[*index]))
}

fn read_receipts(reply: Value) -> Result<Vec<Receipt>, Error> {
    let mut reply = ReplyReader::new(reply, "added keys");
    let letters = reply.bytes()?;
    let has_delays = !reply.is_empty();
    let receipt = |letter| {
        let added = read_added(letter).ok_or_else(|| reply.unexpected())?;
        let delay = if has_delays { reply.duration()? } else { None };
        Ok(Receipt { added, delay: delay.unwrap_or_default() })
    };
    letters.into_iter().map(receipt).collect()
}

/// Reads a letter of `add.lua`.
pub(crate) fn read_added(letter: u8) -> Option<Added> {
    match letter {
        b'r' => Some(Added::Ready),
        b'd' => Some(Added::Dirty),
        b'w' => Some(Added::Delayed),
        b'u' => Some(Added::Duplicate),
        _ => None,
    }
}
