//! A process, or a part of one, that adds keys.

use std::time::Duration;

use anyhow::Result;
use requeue::AddOptions;

use crate::dice::Dice;
use crate::event::Event;
use crate::journal::now;
use crate::process::{Process, Queue, pause};
use crate::world::{AN_HOUR, LANES_EACH};

/// Adds keys in some lanes until the plan ends it. Each add is waited for.
pub(crate) async fn produce(process: Process, producer: usize) -> Result<()> {
    let (queue, paced) = (process.queue(), process.paced());
    let lanes = (producer * LANES_EACH)..((producer + 1) * LANES_EACH);
    let lanes = lanes.map(|number| {
        let dice = process.dice(number);
        let (process, queue, paced) = (process.clone(), queue.clone(), paced.clone());
        tokio::spawn(Lane { process, queue, paced, number, dice }.run())
    });
    for lane in lanes.collect::<Vec<_>>() {
        lane.await??;
    }
    Ok(())
}

/// How a key is added.
#[derive(Clone, Copy)]
enum How {
    After(Duration),
    /// Now, and with this priority.
    Ranked(i32),
    Paced,
}

/// One task that adds.
struct Lane {
    process: Process,
    queue: Queue,
    paced: Queue,
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
                self.add_paced(generation).await?;
            }
            let (count, rest) = self.process.plan.scene.volley(&mut self.dice);
            for _ in 0..count {
                self.add_some(generation).await?;
            }
            pause(rest).await;
        }
        Ok(())
    }

    async fn add_some(&mut self, generation: u64) -> Result<()> {
        let key = self.process.plan.common(generation, &mut self.dice);
        let priority = self.process.plan.scene.priority(&mut self.dice);
        if priority != 0 {
            return self.add(key, How::Ranked(priority)).await;
        }
        let delay = if self.dice.percent(8) { 1..60 } else { 0..0 };
        let delay = self.dice.millis(delay);
        self.add(key, How::After(delay)).await
    }

    /// Delays a key for a moment, and then for an hour: the moment counts.
    async fn delay_twice(&mut self, generation: u64) -> Result<()> {
        let key = self.process.plan.late(generation, self.number);
        self.add(key.clone(), How::After(Duration::from_millis(300))).await?;
        self.add(key, How::After(Duration::from_micros(AN_HOUR))).await
    }

    /// Adds keys when the shared rate says, all lanes at the same time.
    async fn add_paced(&mut self, generation: u64) -> Result<()> {
        for key in self.process.plan.paced(generation, self.number) {
            self.add(key, How::Paced).await?;
        }
        Ok(())
    }

    async fn add(&self, key: String, how: How) -> Result<()> {
        let Process { world, journal, .. } = &self.process;
        let version = world.raise(&key, self.number)?;
        let (op, lane) = (journal.number(), self.number);
        let micros = match how {
            How::After(delay) => requeue_store::micros_of(delay),
            How::Ranked(_) | How::Paced => 0,
        };
        journal.write(Event::Adding {
            op,
            key: key.clone(),
            lane,
            version,
            delay: micros,
        });
        let acknowledged = match how {
            How::After(Duration::ZERO) => self.queue.add(key).await.is_ok(),
            How::After(delay) => self.queue.add_after(key, delay).await.is_ok(),
            How::Ranked(priority) => {
                let options = AddOptions::new().priority(priority);
                self.queue.add_with(key, options).await.is_ok()
            }
            How::Paced => self.paced.add_rate_limited(key).await.is_ok(),
        };
        journal.write(Event::Added { op, acknowledged });
        Ok(())
    }
}
