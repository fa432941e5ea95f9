//! A producer that adds keys inside its own PostgreSQL transactions.
//!
//! It writes the version after the add and before the commit, like a row of the same
//! transaction: a run that starts before the commit sees an old version. So an add that
//! skips a ready key loses an update.

use std::time::Duration;

use anyhow::{Context, Result};
use requeue::Added;
use requeue_postgres::PostgresStore;
use requeue_store::{Add, Key, Phase, Receipt, RepliesExt, Store, When};
use tokio_postgres::{Client, NoTls};

use super::Process;
use crate::history::event::{Answer, Event, Request};
use crate::random::Random;
use crate::run::plan::LANES_PER_PRODUCER;
use crate::store::bug::Bug;
use crate::store::{self, recorder};
use crate::time::{now, sleep};

/// The longest time for a transaction. A half-open connection is abandoned after it.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Adds keys in the lanes of this producer until the planned end.
pub(super) async fn run(
    process: Process,
    address: &str,
    producer: usize,
    bug: Option<Bug>,
) -> Result<()> {
    let scenario = process.plan.scenario;
    let store =
        store::retry_transient(|| store::open_postgres(&scenario, address)).await?;
    let lanes = (producer * LANES_PER_PRODUCER)..((producer + 1) * LANES_PER_PRODUCER);
    let lanes = lanes.map(|number| {
        let (process, store) = (process.clone(), store.clone());
        let (address, random) = (address.to_owned(), process.random(number));
        tokio::spawn(Lane { process, store, address, number, bug, random }.run())
    });
    for lane in lanes.collect::<Vec<_>>() {
        lane.await??;
    }
    Ok(())
}

/// One task with its own connection.
struct Lane {
    process: Process,
    store: PostgresStore,
    address: String,
    number: usize,
    bug: Option<Bug>,
    random: Random,
}

impl Lane {
    async fn run(mut self) -> Result<()> {
        let mut idle = None;
        while now() < self.process.plan.until {
            let client = match idle.take() {
                Some(client) => Some(client),
                None => self.connect().await,
            };
            if let Some(client) = client {
                let client = tokio::time::timeout(TIMEOUT, self.transact(client)).await;
                idle = client.ok().and_then(Result::ok);
            }
            sleep(self.random.millis(5..80)).await;
        }
        Ok(())
    }

    async fn connect(&self) -> Option<Client> {
        let connecting = tokio_postgres::connect(&self.address, NoTls);
        let connected = tokio::time::timeout(TIMEOUT, connecting).await;
        let (client, connection) = connected.ok()?.ok()?;
        drop(tokio::spawn(connection));
        Some(client)
    }

    /// Adds a key in a transaction. Returns the connection if it is still usable.
    async fn transact(&mut self, mut client: Client) -> Result<Client> {
        let plan = &self.process.plan;
        let name = plan.common_key(plan.generation(), &mut self.random);
        let key = Key::new(name.clone().into_bytes())?;
        let revive_after = Duration::ZERO;
        let add = Add { revive_after, ..Add::new(key, When::Now) };
        let transaction = client.transaction().await?;
        let call = self.process.journal.sent(Request::Add(vec![name.clone()]));
        let receipt = if self.skips(&add.key).await? {
            Receipt { added: Added::Duplicate, delay: Duration::ZERO }
        } else {
            let adds = [add.clone()];
            let receipts = self.store.add_in(&transaction, &adds).await?;
            *receipts.first().context("no receipt for the add")?
        };
        // Some transactions stay open longer than other calls wait for their key.
        let is_long = self.random.percent(5);
        sleep(self.random.millis(if is_long { 300..700 } else { 0..20 })).await;
        let op = self.write_version(name)?;
        transaction.commit().await?;
        let receipt = recorder::receipt(&add, &receipt);
        self.process.journal.answered(call, Answer::Added(vec![receipt]));
        self.process.journal.write(Event::Added { op, acknowledged: true });
        Ok(client)
    }

    /// Returns whether the seeded bug skips the add.
    async fn skips(&self, key: &Key) -> Result<bool> {
        if self.bug != Some(Bug::DoNothingAdd) {
            return Ok(false);
        }
        let looks = self.store.look(std::slice::from_ref(key)).all().await?;
        Ok(looks.iter().any(|look| look.phase != Phase::Absent))
    }

    /// Writes a new version. Returns the number of the add.
    fn write_version(&self, key: String) -> Result<u64> {
        let Process { versions, journal, .. } = &self.process;
        let version = versions.increment(&key, self.number)?;
        let (op, lane) = (journal.next_number(), self.number);
        journal.write(Event::Adding { op, key, lane, version, delay: 0 });
        Ok(op)
    }
}
