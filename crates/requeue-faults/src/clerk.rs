//! A process that adds keys inside transactions of its own, with what they are about.
//!
//! The version is written after the add and before the commit, as a row of the same
//! transaction would be: whoever may run the key before the commit sees an old one. So an
//! add that leaves a key alone because it is ready already loses an update.

use std::time::Duration;

use anyhow::{Context, Result};
use requeue::Added;
use requeue_postgres::PostgresStore;
use requeue_store::{Add, Key, Phase, Receipt, Store, When};
use tokio_postgres::{Client, NoTls};

use crate::bug::Bug;
use crate::dice::Dice;
use crate::event::{Answer, Event, Request};
use crate::journal::now;
use crate::process::{Process, pause};
use crate::world::LANES_EACH;
use crate::{recorder, stores};

/// The longest that a transaction may take: a half-open connection is given up.
const PATIENCE: Duration = Duration::from_secs(1);

/// Adds keys in the lanes of this producer until the plan ends it.
pub(crate) async fn work(
    process: Process,
    place: &str,
    producer: usize,
    mutant: Option<Bug>,
) -> Result<()> {
    let scene = process.plan.scene;
    let store = stores::patiently(|| stores::open_postgres(&scene, place)).await?;
    let lanes = (producer * LANES_EACH)..((producer + 1) * LANES_EACH);
    let lanes = lanes.map(|number| {
        let (process, store, place) = (process.clone(), store.clone(), place.to_owned());
        let dice = process.dice(number);
        tokio::spawn(Lane { process, store, place, number, mutant, dice }.run())
    });
    for lane in lanes.collect::<Vec<_>>() {
        lane.await??;
    }
    Ok(())
}

/// One task with a connection of its own.
struct Lane {
    process: Process,
    store: PostgresStore,
    place: String,
    number: usize,
    mutant: Option<Bug>,
    dice: Dice,
}

impl Lane {
    async fn run(mut self) -> Result<()> {
        let mut client = None;
        while now() < self.process.plan.until {
            let session = match client.take() {
                Some(client) => Some(client),
                None => self.connect().await,
            };
            if let Some(session) = session {
                let kept = tokio::time::timeout(PATIENCE, self.transact(session)).await;
                client = kept.ok().and_then(Result::ok);
            }
            pause(self.dice.millis(5..80)).await;
        }
        Ok(())
    }

    async fn connect(&self) -> Option<Client> {
        let connecting = tokio_postgres::connect(&self.place, NoTls);
        let connected = tokio::time::timeout(PATIENCE, connecting).await;
        let (client, connection) = connected.ok()?.ok()?;
        drop(tokio::spawn(connection));
        Some(client)
    }

    /// Adds a key in a transaction. Gives the connection back if it can be used again.
    async fn transact(&mut self, mut client: Client) -> Result<Client> {
        let plan = &self.process.plan;
        let name = plan.common(plan.generation(), &mut self.dice);
        let key = Key::new(name.clone().into_bytes())?;
        let revive_after = Duration::ZERO;
        let add = Add { revive_after, ..Add::new(key, When::Now) };
        let transaction = client.transaction().await?;
        let call = self.process.journal.sent(Request::Add(vec![name.clone()]));
        let receipt = if self.does_nothing(&add.key).await? {
            Receipt { added: Added::Duplicate, delay: Duration::ZERO }
        } else {
            let adds = [add.clone()];
            let receipts = self.store.add_in(&transaction, &adds).await?;
            *receipts.first().context("no receipt for the add")?
        };
        // Some stay open for longer than others wait for their key.
        let long = self.dice.percent(5);
        pause(self.dice.millis(if long { 300..700 } else { 0..20 })).await;
        let op = self.raise(name)?;
        transaction.commit().await?;
        let receipt = recorder::receipt(&add, &receipt);
        self.process.journal.answered(call, Answer::Added(vec![receipt]));
        self.process.journal.write(Event::Added { op, acknowledged: true });
        Ok(client)
    }

    /// Whether the seeded bug leaves the key alone.
    async fn does_nothing(&self, key: &Key) -> Result<bool> {
        if self.mutant != Some(Bug::DoNothingAdd) {
            return Ok(false);
        }
        let looks = self.store.look(std::slice::from_ref(key)).await?;
        Ok(looks.iter().any(|look| look.phase != Phase::Absent))
    }

    fn raise(&self, key: String) -> Result<u64> {
        let Process { world, journal, .. } = &self.process;
        let version = world.raise(&key, self.number)?;
        let (op, lane) = (journal.number(), self.number);
        journal.write(Event::Adding { op, key, lane, version, delay: 0 });
        Ok(op)
    }
}
