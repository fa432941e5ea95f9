//! A process that adds keys.

use std::time::Duration;

use anyhow::Result;
use requeue::AddOptions;
use requeue_store::micros_of;

use super::{Process, Queue};
use crate::history::event::Event;
use crate::random::Random;
use crate::run::plan::{AN_HOUR, LANES_PER_PRODUCER};
use crate::time::{now, sleep};

/// Adds keys in the lanes of this producer until the planned end.
pub(super) async fn run(process: Process, producer: usize) -> Result<()> {
    let (queue, limited) = (process.queue(), process.rate_limited_queue());
    let lanes = (producer * LANES_PER_PRODUCER)..((producer + 1) * LANES_PER_PRODUCER);
    let lanes = lanes.map(|number| {
        let random = process.random(number);
        let (process, queue, limited) = (process.clone(), queue.clone(), limited.clone());
        tokio::spawn(Lane { process, queue, limited, number, random }.run())
    });
    for lane in lanes.collect::<Vec<_>>() {
        lane.await??;
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Method {
    After(Duration),
    Priority(i32),
    RateLimited,
}

/// One task that adds keys, one at a time.
struct Lane {
    process: Process,
    queue: Queue,
    limited: Queue,
    number: usize,
    random: Random,
}

impl Lane {
    async fn run(mut self) -> Result<()> {
        if self.process.plan.scenario.is_steady() {
            return self.run_steadily().await;
        }
        let mut previous = None;
        while now() < self.process.plan.until {
            let generation = self.process.plan.generation();
            if previous.replace(generation) != Some(generation) {
                self.delay_twice(generation).await?;
                self.add_rate_limited(generation).await?;
            }
            let (count, pause) = self.process.plan.scenario.burst(&mut self.random);
            for _ in 0..count {
                self.add_common(generation).await?;
            }
            sleep(pause).await;
        }
        Ok(())
    }

    /// Adds one key per generation at once, then one with a delay, while workers wait.
    async fn run_steadily(mut self) -> Result<()> {
        while now() < self.process.plan.until {
            let plan = &self.process.plan;
            let generation = plan.generation();
            let key = plan.common_key(generation, &mut self.random);
            let delayed = plan.delayed_key(generation, self.number);
            self.add(key, Method::After(Duration::ZERO)).await?;
            sleep(self.random.millis(200..400)).await;
            let delay = self.random.millis(200..800);
            self.add(delayed, Method::After(delay)).await?;
            while self.process.plan.generation() == generation {
                sleep(Duration::from_millis(20)).await;
            }
        }
        Ok(())
    }

    async fn add_common(&mut self, generation: u64) -> Result<()> {
        let key = self.process.plan.common_key(generation, &mut self.random);
        let priority = self.process.plan.scenario.priority(&mut self.random);
        if priority != 0 {
            return self.add(key, Method::Priority(priority)).await;
        }
        let delay = if self.random.percent(8) { 1..60 } else { 0..0 };
        let delay = self.random.millis(delay);
        self.add(key, Method::After(delay)).await
    }

    /// Delays a key shortly and then for an hour. The earlier deadline must win.
    async fn delay_twice(&mut self, generation: u64) -> Result<()> {
        let key = self.process.plan.hour_long_key(generation, self.number);
        self.add(key.clone(), Method::After(Duration::from_millis(300))).await?;
        self.add(key, Method::After(Duration::from_micros(AN_HOUR))).await
    }

    /// Adds keys through the shared rate. All lanes do this at the same time.
    async fn add_rate_limited(&mut self, generation: u64) -> Result<()> {
        for key in self.process.plan.rate_limited_keys(generation, self.number) {
            self.add(key, Method::RateLimited).await?;
        }
        Ok(())
    }

    async fn add(&self, key: String, method: Method) -> Result<()> {
        let Process { versions, journal, .. } = &self.process;
        let version = versions.increment(&key, self.number)?;
        let (op, lane) = (journal.next_number(), self.number);
        let delay = match method {
            Method::After(delay) => micros_of(delay),
            Method::Priority(_) | Method::RateLimited => 0,
        };
        journal.write(Event::Adding { op, key: key.clone(), lane, version, delay });
        let acknowledged = match method {
            Method::After(Duration::ZERO) => self.queue.add(key).await.is_ok(),
            Method::After(delay) => self.queue.add_after(key, delay).await.is_ok(),
            Method::Priority(priority) => {
                let options = AddOptions::new().priority(priority);
                self.queue.add_with(key, options).await.is_ok()
            }
            Method::RateLimited => self.limited.add_rate_limited(key).await.is_ok(),
        };
        journal.write(Event::Added { op, acknowledged });
        Ok(())
    }
}
