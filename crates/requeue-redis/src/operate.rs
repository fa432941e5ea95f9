//! Changing keys by hand: cancelling, forgiving, reviving, dropping. Taking tokens.

use redis::ToRedisArgs;
use requeue_store::{Error, Key, TakeRequest, Taken, Which, micros_of};

use crate::chunk::{Chunk, MAX_KEYS};
use crate::client::{Args, Call, Client, read_answers};
use crate::error::unexpected_reply;
use crate::partition::{self, partition_of};
use crate::reply::ReplyReader;
use crate::script;

pub(crate) async fn remove(client: &Client, keys: &[Key]) -> Vec<Result<bool, Error>> {
    let push_args = |chunk: &Chunk, args: &mut Args| {
        chunk.push_keys(|index| &keys[index], args);
    };
    let sending = client.sending();
    client
        .call_batch(keys.iter(), &script::REMOVE, sending, push_args, read_answers)
        .await
}

pub(crate) async fn forget(client: &Client, keys: &[Key]) -> Vec<Result<(), Error>> {
    let push_args = |chunk: &Chunk, args: &mut Args| {
        chunk.push_keys(|index| &keys[index], args);
    };
    let read = |reply| {
        let count = ReplyReader::new(reply, "failures").count()?;
        Ok(vec![(); usize::try_from(count).unwrap_or_default()])
    };
    let sending = client.sending();
    client.call_batch(keys.iter(), &script::FORGET, sending, push_args, read).await
}

/// Takes tokens of a limiter, which is in one partition.
pub(crate) async fn take(client: &Client, request: &TakeRequest) -> Result<Taken, Error> {
    let TakeRequest { limiter, rate, n, max_wait } = request;
    let partition = partition_of(limiter.as_bytes(), client.partitions());
    let keys = vec![partition::limiter(&client.queue, partition, limiter)];
    let mut args = client.args();
    let interval = micros_of(rate.interval).max(1);
    (interval, rate.burst.get(), n, micros_of(*max_wait)).write_redis_args(&mut args);
    let call = Call { script: &script::TAKE, partition, keys, args };
    let reply = client.call_one(call, client.sending()).await?;
    let mut reply = ReplyReader::new(reply, "a limiter");
    let is_taken = reply.number()? == 1;
    let after = reply.duration()?.unwrap_or_default();
    let retry_in = after.saturating_sub(*max_wait);
    Ok(if is_taken { Taken::Granted { after } } else { Taken::Refused { retry_in } })
}

pub(crate) async fn set_paused(client: &Client, paused: bool) -> Result<(), Error> {
    client.call_on_all(&script::PAUSE, u8::from(paused)).await.map(drop)
}

/// What becomes of a dead key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Exhume {
    Revive,
    Drop,
}

impl Exhume {
    fn letter(self) -> &'static str {
        match self {
            Self::Revive => "r",
            Self::Drop => "d",
        }
    }
}

/// Revives or drops dead keys. Returns how many.
pub(crate) async fn exhume(
    client: &Client,
    which: &Which,
    how: Exhume,
) -> Result<u64, Error> {
    match which {
        Which::All => exhume_all(client, how).await,
        Which::Keys(keys) => exhume_keys(client, keys, how).await,
        _ => Err(unexpected_reply("dead keys")),
    }
}

async fn exhume_all(client: &Client, how: Exhume) -> Result<u64, Error> {
    let mut all = 0;
    for partition in 0..client.partitions() {
        loop {
            let reply = client.call_on(partition, &script::EXHUME, how.letter()).await?;
            let count = read_answers(reply)?.len();
            all += count as u64;
            if count < MAX_KEYS {
                break;
            }
        }
    }
    Ok(all)
}

async fn exhume_keys(client: &Client, keys: &[Key], how: Exhume) -> Result<u64, Error> {
    let push_args = |chunk: &Chunk, args: &mut Args| {
        args.push(how.letter().into());
        chunk.push_keys(|index| &keys[index], args);
    };
    let sending = client.sending();
    let exhumed =
        client.call_batch(keys.iter(), &script::EXHUME, sending, push_args, read_answers);
    let exhumed: Vec<bool> = exhumed.await.into_iter().collect::<Result<_, _>>()?;
    Ok(exhumed.into_iter().filter(|was_dead| *was_dead).count() as u64)
}
