//! The speed of the store, next to the limits of the server. Needs a dedicated server.
//!
//! `REQUEUE_REDIS_URL=redis://127.0.0.1:7000 cargo bench -p requeue-redis`
//!
//! Add `-- cycles wake_ups` to run only these benchmarks; the names are in `main`.
//!
//! Trust the processor time of the server. Keys per second depend on what else the machine
//! does.
#![allow(clippy::unwrap_used, reason = "a failed call fails the benchmark")]
#![allow(clippy::print_stdout, reason = "it prints a table")]
#![allow(clippy::cast_precision_loss, reason = "figures are rounded")]

use std::future::Future;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use requeue::Finish;
use requeue::{Clock, SystemClock};
use requeue_redis::RedisStore;
use requeue_store::machine::TimeSource;
use requeue_store::{
    Add, FinishRequest, Hold, Key, LeaseRequest, Owner, RepliesExt, SharedQueue, Store,
    When,
};

const BATCH: usize = 100;

struct Bench {
    url: String,
    server: MultiplexedConnection,
}

#[tokio::main]
async fn main() {
    let Ok(url) = std::env::var("REQUEUE_REDIS_URL") else {
        println!("skipped: REQUEUE_REDIS_URL is not set");
        return;
    };
    let client = redis::Client::open(url.as_str()).unwrap();
    // The default timeout of half a second is too short for a busy machine.
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let server = client.get_multiplexed_async_connection_with_config(&config);
    let server = server.await.unwrap();
    let mut bench = Bench { url, server };
    println!("{:42} {:>12} {:>16}", "", "keys/s", "server us/key");
    let names: Vec<_> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let is_selected = |name| names.is_empty() || names.iter().any(|arg| arg == name);
    macro_rules! run {
        ($($name:ident)*) => {
            $(if is_selected(stringify!($name)) {
                bench.$name().await;
            })*
        };
    }
    run!(pipelined_sets single_commands batches cycles priorities singles shared while_processing);
    run!(blocked_pop wake_ups shared_wake_ups delays);
}

impl Bench {
    async fn open(&mut self) -> RedisStore {
        redis::cmd("FLUSHALL").exec_async(&mut self.server).await.unwrap();
        let queue = format!("bench-{}", TimeSource::System.now().micros());
        let timeout = Duration::from_secs(60);
        let builder = RedisStore::builder(&self.url).queue(queue).timeout(timeout);
        builder.open().await.unwrap()
    }

    /// Returns the processor time of the server so far, in microseconds.
    async fn cpu_time(&mut self) -> f64 {
        let info: String =
            redis::cmd("INFO").arg("cpu").query_async(&mut self.server).await.unwrap();
        let seconds = |name: &str| -> f64 {
            let line = info.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim().parse().unwrap()
        };
        (seconds("used_cpu_user:") + seconds("used_cpu_sys:")) * 1e6
    }

    async fn measure(&mut self, name: &str, keys: usize, work: impl Future) {
        let result = self.run(keys, work).await;
        print_result(name, result);
    }

    /// Returns the keys per second, and the processor time of the server per key.
    async fn run(&mut self, keys: usize, work: impl Future) -> (f64, f64) {
        let (cpu_time, began) = (self.cpu_time().await, SystemClock.now());
        work.await;
        let seconds = began.elapsed().as_secs_f64();
        let cpu_time = self.cpu_time().await - cpu_time;
        (keys as f64 / seconds, cpu_time / keys as f64)
    }

    /// The limit of the server: pipelined commands without a script.
    async fn pipelined_sets(&mut self) {
        let mut server = self.server.clone();
        self.measure("SET, pipelines of 100, 8 in flight", 400_000, async move {
            let tasks = (0..8).map(|task| {
                let mut server = server.clone();
                tokio::spawn(async move {
                    for round in 0..500 {
                        let mut pipeline = redis::pipe();
                        for n in 0..BATCH {
                            pipeline.set(name(task * 100_000 + round * BATCH + n), "x");
                        }
                        pipeline.exec_async(&mut server).await.unwrap();
                    }
                })
            });
            all(tasks).await;
            redis::cmd("FLUSHALL").exec_async(&mut server).await.unwrap();
        })
        .await;
    }

    /// A command, and a script that does nothing. A cycle is three scripts.
    async fn single_commands(&mut self) {
        let server = self.server.clone();
        let sets = in_tasks(64, 100_000, move |round| {
            let mut server = server.clone();
            async move {
                let mut command = redis::cmd("SET");
                command.arg(name(round)).arg("x");
                command.exec_async(&mut server).await.unwrap();
            }
        });
        self.measure("SET, one by one, 64 in flight", 100_000, sets).await;
        let script = redis::Script::new("return 1");
        let mut server = self.server.clone();
        script.prepare_invoke().load_async(&mut server).await.unwrap();
        let calls = in_tasks(64, 100_000, move |_| {
            let (script, mut server) = (script.clone(), server.clone());
            async move { call_empty(&script, &mut server).await }
        });
        self.measure("empty script, one by one, 64 in flight", 100_000, calls).await;
    }

    /// Each step of a cycle, with 200,000 keys queued.
    async fn batches(&mut self) {
        let store = self.open().await;
        let count = 200_000;
        let adds = in_tasks(8, count / BATCH, {
            let store = store.clone();
            move |round| {
                let store = store.clone();
                async move { add(&store, round * BATCH, BATCH).await }
            }
        });
        self.measure("add, batches of 100, 8 in flight", count, adds).await;
        let held = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let leases = in_tasks(8, count / BATCH, {
            let (store, held) = (store.clone(), std::sync::Arc::clone(&held));
            move |_| {
                let (store, held) = (store.clone(), std::sync::Arc::clone(&held));
                async move {
                    let holds = lease(&store, BATCH).await;
                    held.lock().unwrap().push(holds);
                }
            }
        });
        self.measure("lease, batches of 100, 8 in flight", count, leases).await;
        let finishes = in_tasks(8, count / BATCH, {
            let store = store.clone();
            move |_| {
                let (store, holds) = (store.clone(), held.lock().unwrap().pop().unwrap());
                async move { finish(&store, holds).await }
            }
        });
        self.measure("finish, batches of 100, 8 in flight", count, finishes).await;
    }

    async fn cycles(&mut self) {
        let store = self.open().await;
        let cycles = cycles(store, BATCH, 8, 2000);
        self.measure("cycle, batches of 100, 8 in flight", 2000 * BATCH, cycles).await;
    }

    async fn priorities(&mut self) {
        for (batch, tasks, rounds) in [(BATCH, 8, 1000), (1, 64, 10_000)] {
            let store = self.open().await;
            let cycles = in_tasks(tasks, rounds, move |round| {
                let store = store.clone();
                async move {
                    add_with_priorities(&store, round * batch, batch).await;
                    let holds = lease(&store, batch).await;
                    finish(&store, holds).await;
                }
            });
            let name = format!("cycle of nine priorities, batches of {batch}");
            self.measure(&name, rounds * batch, cycles).await;
        }
    }

    /// Cycles of one key, alternating with empty scripts. Prints the medians.
    async fn singles(&mut self) {
        for (tasks, rounds) in [(64, 10_000), (1, 1000)] {
            let (mut empty_results, mut results) = (Vec::new(), Vec::new());
            for _ in 0..7 {
                let empty = self.empty_cycles(tasks, rounds).await;
                empty_results.push(self.run(rounds, empty).await);
                let store = self.open().await;
                results.push(self.run(rounds, cycles(store, 1, tasks, rounds)).await);
            }
            let name = format!("three empty scripts, {tasks} in flight");
            print_result(&name, median(empty_results));
            let name = format!("cycle, one by one, {tasks} in flight");
            print_result(&name, median(results));
        }
    }

    async fn empty_cycles(
        &self,
        tasks: usize,
        rounds: usize,
    ) -> impl Future<Output = ()> + use<> {
        let mut server = self.server.clone();
        let script = redis::Script::new("return 1");
        script.prepare_invoke().load_async(&mut server).await.unwrap();
        in_tasks(tasks, rounds, move |_| {
            let (script, mut server) = (script.clone(), server.clone());
            async move {
                for _ in 0..3 {
                    call_empty(&script, &mut server).await;
                }
            }
        })
    }

    /// Tasks that each add, get and finish one key at a time through a `SharedQueue`, which
    /// batches their calls.
    async fn shared(&mut self) {
        let queue = SharedQueue::<String, _>::new(self.open().await);
        let cycles = in_tasks(512, 100_000, move |round| {
            let queue = queue.clone();
            async move {
                queue.add(format!("key-{round}")).await.unwrap();
                let lease = queue.get().await.unwrap().unwrap();
                lease.succeed().await.unwrap();
            }
        });
        self.measure("cycle by SharedQueue, 512 tasks", 100_000, cycles).await;
    }

    /// Adds of processing keys, while few or many keys are processing.
    async fn while_processing(&mut self) {
        for count in [100, 10_000] {
            let store = self.open().await;
            add(&store, 0, count).await;
            while !lease(&store, 500).await.is_empty() {}
            let adds = in_tasks(64, 50_000, move |round| {
                let store = store.clone();
                async move { add(&store, round % 100, 1).await }
            });
            let name = format!("add of a processing key, {count} processing");
            self.measure(&name, 50_000, adds).await;
        }
    }

    /// The limit for wake-ups: the time from a push to the end of a blocked pop.
    async fn blocked_pop(&mut self) {
        let client = redis::Client::open(self.url.as_str()).unwrap();
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        let waiter = client.get_multiplexed_async_connection_with_config(&config);
        let waiter = waiter.await.unwrap();
        let mut times = Vec::new();
        for _ in 0..500 {
            let waiting = tokio::spawn({
                let mut waiter = waiter.clone();
                async move {
                    let mut pop = redis::cmd("BLPOP");
                    pop.arg("floor").arg(5).exec_async(&mut waiter).await.unwrap();
                    SystemClock.now()
                }
            });
            pause(Duration::from_millis(1)).await;
            let began = SystemClock.now();
            let mut push = redis::cmd("LPUSH");
            push.arg("floor").arg("key").exec_async(&mut self.server).await.unwrap();
            times.push(waiting.await.unwrap() - began);
        }
        print_times("LPUSH until BLPOP returns", times);
    }

    /// The time from an add until a waiter has leased the key.
    async fn wake_ups(&mut self) {
        let store = self.open().await;
        let mut times = Vec::new();
        for round in 0..500 {
            let waiting = tokio::spawn({
                let store = store.clone();
                async move {
                    loop {
                        store.wait(Duration::from_secs(5)).await.unwrap();
                        let holds = lease(&store, 1).await;
                        if !holds.is_empty() {
                            return (SystemClock.now(), holds);
                        }
                    }
                }
            });
            pause(Duration::from_millis(1)).await;
            let began = SystemClock.now();
            add(&store, round, 1).await;
            let (woken, holds) = waiting.await.unwrap();
            times.push(woken - began);
            finish(&store, holds).await;
        }
        print_times("wake-up: add until leased", times);
    }

    /// As [`wake_ups`](Self::wake_ups), through a `SharedQueue`.
    async fn shared_wake_ups(&mut self) {
        let store = self.open().await;
        let queue = SharedQueue::<String, _>::new(store.clone());
        let mut times = Vec::new();
        for round in 0..500 {
            let waiting = tokio::spawn({
                let queue = queue.clone();
                async move { (queue.get().await.unwrap().unwrap(), SystemClock.now()) }
            });
            pause(Duration::from_millis(2)).await;
            let began = SystemClock.now();
            add(&store, round, 1).await;
            let (lease, woken) = waiting.await.unwrap();
            times.push(woken - began);
            lease.succeed().await.unwrap();
        }
        print_times("wake-up by SharedQueue: add until got", times);
    }

    /// How late delayed keys are leased: a thousand per second that are added meanwhile, and
    /// ten thousand per second that were added before.
    async fn delays(&mut self) {
        let store = self.open().await;
        let adding = tokio::spawn(add_delayed(store.clone(), 2000));
        let leased = collect(&store, 2000).await;
        print_lateness("lateness of delayed keys", &leased, &adding.await.unwrap());
        let store = self.open().await;
        let due = add_many_delayed(&store, 20_000).await;
        let leased = collect(&store, due.len()).await;
        print_lateness("the same, 10000 per second", &leased, &due);
    }
}

/// Adds a delayed key about every millisecond. Returns when each is due at the earliest.
async fn add_delayed(store: RedisStore, count: usize) -> Vec<Instant> {
    let mut due = Vec::new();
    for n in 0..count {
        let delay = Duration::from_millis(50 + (n as u64 * 37) % 100);
        due.push(SystemClock.now() + delay);
        store.add(&[Add::new(key(n), When::After(delay))]).all().await.unwrap();
        pause(Duration::from_millis(1)).await;
    }
    due
}

/// Adds keys of which one is due every tenth of a millisecond. Returns when each is due at the
/// earliest.
async fn add_many_delayed(store: &RedisStore, count: u32) -> Vec<Instant> {
    let first = SystemClock.now() + Duration::from_secs(1);
    let mut due = Vec::new();
    for batch in (0..count).collect::<Vec<_>>().chunks(BATCH) {
        let begun = SystemClock.now();
        let mut adds = Vec::new();
        for n in batch {
            let delay = first + Duration::from_micros(100) * *n - begun;
            due.push(begun + delay);
            adds.push(Add::new(key(*n as usize), When::After(delay)));
        }
        store.add(&adds).all().await.unwrap();
    }
    due
}

fn print_lateness(name: &str, leased: &[(usize, Instant)], due: &[Instant]) {
    let early = leased.iter().filter(|(n, at)| *at < due[*n]).count();
    let late = leased.iter().map(|(n, at)| at.saturating_duration_since(due[*n]));
    print_times(name, late.collect());
    println!("{:42} {early:>12}", "of these too early");
}

/// Leases keys like a worker. Returns their numbers and times.
async fn collect(store: &RedisStore, count: usize) -> Vec<(usize, Instant)> {
    let mut all = Vec::new();
    while all.len() < count {
        let leased = store.lease(&request(100)).await.unwrap();
        let now = SystemClock.now();
        let holds = leased.grants.iter().map(|grant| {
            let number: &str = std::str::from_utf8(&grant.key[3..]).unwrap();
            all.push((number.parse().unwrap(), now));
            Hold { key: grant.key.clone(), token: grant.token }
        });
        let holds: Vec<_> = holds.collect();
        if holds.is_empty() {
            let more_in = leased.more_in.unwrap_or(Duration::from_secs(1));
            store.wait(more_in).await.unwrap();
        } else {
            finish(store, holds).await;
        }
    }
    all
}

async fn call_empty(script: &redis::Script, server: &mut MultiplexedConnection) {
    let mut command = redis::cmd("EVALSHA");
    command.arg(script.get_hash()).arg(0);
    command.exec_async(server).await.unwrap();
}

/// Adds, leases and finishes batches of keys.
async fn cycles(store: RedisStore, batch: usize, tasks: usize, rounds: usize) {
    in_tasks(tasks, rounds, move |round| {
        let store = store.clone();
        async move {
            add(&store, round * batch, batch).await;
            let holds = lease(&store, batch).await;
            finish(&store, holds).await;
        }
    })
    .await;
}

fn name(n: usize) -> String {
    format!("ns/{n:017}")
}

fn key(n: usize) -> Key {
    Key::new(name(n).into_bytes()).unwrap()
}

async fn add(store: &RedisStore, from: usize, count: usize) {
    let add = |n| Add { revive_after: Duration::ZERO, ..Add::new(key(n), When::Now) };
    let adds: Vec<_> = (from..from + count).map(add).collect();
    store.add(&adds).all().await.unwrap();
}

/// As [`add`], with priorities from 1 to 9.
async fn add_with_priorities(store: &RedisStore, from: usize, count: usize) {
    let priority = |n: usize| i8::try_from(n % 9 + 1).unwrap();
    let add = |n| Add { priority: priority(n), ..Add::new(key(n), When::Now) };
    let adds: Vec<_> = (from..from + count).map(add).collect();
    store.add(&adds).all().await.unwrap();
}

fn request(max: usize) -> LeaseRequest {
    LeaseRequest {
        owner: Owner::new("worker-1.example:4711"),
        max,
        lease: Duration::from_secs(30),
        max_deliveries: None,
    }
}

async fn lease(store: &RedisStore, max: usize) -> Vec<Hold> {
    let leased = store.lease(&request(max)).await.unwrap();
    let holds = leased.grants.into_iter();
    holds.map(|grant| Hold { key: grant.key, token: grant.token }).collect()
}

async fn finish(store: &RedisStore, holds: Vec<Hold>) {
    let request = |hold| FinishRequest::new(hold, Finish::Succeed);
    let requests: Vec<_> = holds.into_iter().map(request).collect();
    store.finish(&requests).all().await.unwrap();
}

async fn pause(time: Duration) {
    SystemClock.timer(SystemClock.now() + time).await;
}

/// Divides the rounds among tasks.
async fn in_tasks<F, W>(tasks: usize, rounds: usize, work: W)
where
    F: Future<Output = ()> + Send,
    W: Fn(usize) -> F + Clone + Send + 'static,
{
    let run = |task| {
        let work = work.clone();
        tokio::spawn(async move {
            for round in (task..rounds).step_by(tasks) {
                work(round).await;
            }
        })
    };
    all((0..tasks).map(run)).await;
}

async fn all(tasks: impl Iterator<Item = tokio::task::JoinHandle<()>>) {
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

/// Returns the median of each column.
fn median(results: Vec<(f64, f64)>) -> (f64, f64) {
    let (mut rates, mut costs): (Vec<_>, Vec<_>) = results.into_iter().unzip();
    rates.sort_by(f64::total_cmp);
    costs.sort_by(f64::total_cmp);
    (rates[rates.len() / 2], costs[costs.len() / 2])
}

fn print_result(name: &str, (rate, cost): (f64, f64)) {
    println!("{name:42} {rate:12.0} {cost:16.2}");
}

fn print_times(name: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |part: usize| times[(times.len() - 1) * part / 100].as_secs_f64() * 1e3;
    println!(
        "{name:42} p50 {:.3} ms, p99 {:.3} ms, worst {:.3} ms",
        at(50),
        at(99),
        at(100)
    );
}
