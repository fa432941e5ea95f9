//! A process, or a part of one, that adds keys.

use std::time::Duration;

use anyhow::Result;

use crate::dice::Dice;
use crate::event::Event;
use crate::journal::now;
use crate::process::{Process, Queue, pause};
use crate::world::{AN_HOUR, LANES_EACH};

/// Adds keys in some lanes until the plan ends it. Each add is waited for.
pub(crate) async fn produce(process: Process, producer: usize) -> Result<()> {
    let queue = process.queue();
    let lanes = (producer * LANES_EACH)..((producer + 1) * LANES_EACH);
    let lanes = lanes.map(|number| {
        let dice = process.dice(number);
        let lane = Lane { process: process.clone(), queue: queue.clone(), number, dice };
        tokio::spawn(lane.run())
    });
    for lane in lanes.collect::<Vec<_>>() {
        lane.await??;
    }
    Ok(())
}

/// One task that adds.
struct Lane {
    process: Process,
    queue: Queue,
    number: usize,
    dice: Dice,
}

impl Lane {
    async fn run(mut self) -> Result<()> {
        let mut before = None;
        while now() < self.process.plan.until {
            let generation = self.process.plan.generation();
            if before.replace(generation) != Some(generation) {
                self.delay_twice(generation).await?;
            }
            let (count, rest) = self.process.plan.scene.volley(&mut self.dice);
            for _ in 0..count {
                self.add_some(generation).await?;
            }
            pause(rest).await;
        }
        Ok(())
    }

    /// Adds a key that all lanes add.
    async fn add_some(&mut self, generation: u64) -> Result<()> {
        let plan = &self.process.plan;
        let key = if self.dice.percent(6) {
            plan.grim(generation)
        } else {
            plan.hot(generation, self.dice.below(u64::MAX))
        };
        let delay = if self.dice.percent(8) { 1..60 } else { 0..0 };
        let delay = self.dice.millis(delay);
        self.add(key, delay).await
    }

    /// Delays a key for a moment, and then for an hour: the moment counts.
    async fn delay_twice(&mut self, generation: u64) -> Result<()> {
        let key = self.process.plan.late(generation, self.number);
        self.add(key.clone(), Duration::from_millis(300)).await?;
        self.add(key, Duration::from_micros(AN_HOUR)).await
    }

    async fn add(&self, key: String, delay: Duration) -> Result<()> {
        let Process { world, journal, .. } = &self.process;
        let version = world.raise(&key, self.number)?;
        let (op, lane) = (journal.number(), self.number);
        let micros = requeue_store::micros_of(delay);
        journal.write(Event::Adding {
            op,
            key: key.clone(),
            lane,
            version,
            delay: micros,
        });
        let answer = if delay.is_zero() {
            self.queue.add(key).await
        } else {
            self.queue.add_after(key, delay).await
        };
        journal.write(Event::Added { op, acknowledged: answer.is_ok() });
        Ok(())
    }
}
