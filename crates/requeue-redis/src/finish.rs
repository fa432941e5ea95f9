//! Finishing leases.

use redis::Value;
use requeue_store::{Error, FinishRequest, Finished};

use crate::chunk::Chunk;
use crate::client::{Args, Client};
use crate::reply::ReplyReader;
use crate::{encode, script, single};

pub(crate) async fn finish(
    client: &Client,
    requests: &[FinishRequest],
) -> Vec<Result<Finished, Error>> {
    match single::finish(client, requests).await {
        Ok(Some(finished)) => return vec![Ok(finished)],
        Ok(None) => {}
        Err(error) => return vec![Err(error)],
    }
    let push_args = |chunk: &Chunk, args: &mut Args| {
        args.push(chunk.items.len().to_string().into_bytes());
        chunk.push_keys(|index| &requests[index].hold.key, args);
        let how = |index: &usize| encode::finish(&requests[*index], client.partitions());
        args.extend(chunk.items.iter().map(|index| how(index).into_bytes()));
    };
    let keys = requests.iter().map(|request| &request.hold.key);
    let sending = client.sending();
    client.call_batch(keys, &script::FINISH, sending, push_args, read_finished).await
}

fn read_finished(reply: Value) -> Result<Vec<Finished>, Error> {
    let mut reply = ReplyReader::new(reply, "finished leases");
    let letters = reply.bytes()?;
    let finished = |letter| match letter {
        b'd' => Ok(Finished::Done),
        b'r' => Ok(Finished::Requeued),
        b'w' => Ok(Finished::Delayed(reply.duration()?.unwrap_or_default())),
        b'x' => Ok(Finished::Dead),
        b'l' => Ok(Finished::LeaseLost),
        _ => Err(reply.unexpected()),
    };
    letters.into_iter().map(finished).collect()
}
