//! Changing keys by hand: cancelling, forgiving, reviving, dropping.

use requeue_store::{Error, Key, Which};

use crate::chunk::{Chunk, MAX_KEYS};
use crate::client::{Args, Client};
use crate::error::unexpected_reply;
use crate::reply::ReplyReader;
use crate::script;

pub(crate) async fn remove(client: &Client, keys: &[Key]) -> Result<Vec<bool>, Error> {
    let push_args = |chunk: &Chunk, args: &mut Args| {
        chunk.push_keys(|index| &keys[index], args);
    };
    client.ask_batch(keys.iter(), &script::REMOVE, push_args).await
}

pub(crate) async fn forget(client: &Client, keys: &[Key]) -> Result<(), Error> {
    let push_args = |chunk: &Chunk, args: &mut Args| {
        chunk.push_keys(|index| &keys[index], args);
    };
    client.call_batch(keys.iter(), &script::FORGET, push_args).await.map(drop)
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
            let count = ReplyReader::new(reply, "dead keys").count()?;
            all += count;
            if count < MAX_KEYS as u64 {
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
    let mut all = 0;
    for (_, reply) in client.call_batch(keys.iter(), &script::EXHUME, push_args).await? {
        all += ReplyReader::new(reply, "dead keys").count()?;
    }
    Ok(all)
}
