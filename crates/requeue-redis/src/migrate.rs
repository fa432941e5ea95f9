//! Migrating a queue from an older version of the data.
//!
//! The version is part of the names of all Redis keys. A migration renames the parts of a
//! partition in one script, and leaves the old names as text. A program of the old version
//! then gets errors and changes nothing, whatever it calls.

use redis::ToRedisArgs;
use requeue_store::{Error, Migration};

use crate::client::{Call, Client};
use crate::partition::old_names;
use crate::script::{self, VERSION};

/// The oldest version that can be migrated.
pub(crate) const OLDEST: u32 = 4;

/// Migrates a queue, or only says what would be done.
///
/// The first partition has the version and comes last, so that an interrupted migration can
/// be repeated.
pub(crate) async fn migrate(
    client: &Client,
    from: u32,
    dry_run: bool,
) -> Result<Migration, Error> {
    let mut migration =
        Migration { from, to: VERSION, steps: Vec::new(), applied: false };
    if from == VERSION {
        return Ok(migration);
    }
    for partition in (0..client.partitions()).rev() {
        let queue = &client.queue;
        migration.steps.push(format!(
            "rename the keys rq:{{{queue}:{partition}}}:* to \
             rq{VERSION}:{{{queue}:{partition}}}:*"
        ));
        if !dry_run {
            migrate_partition(client, partition).await?;
        }
    }
    migration.applied = !dry_run;
    Ok(migration)
}

async fn migrate_partition(client: &Client, partition: usize) -> Result<(), Error> {
    let pairs = old_names(&client.queue, partition).into_iter();
    let keys = pairs.flat_map(|(old, new)| [old, new]).collect();
    let mut args = Vec::new();
    VERSION.write_redis_args(&mut args);
    let call = Call { script: &script::MIGRATE, partition, keys, args };
    client.call_one(call, client.sending()).await.map(drop)
}
