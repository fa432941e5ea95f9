//! How fast the store is, next to what the server can do at all; needs a server of its own.
//!
//! `REQUEUE_REDIS_URL=redis://127.0.0.1:7000 cargo bench -p requeue-redis`
//!
//! `-- cycles wake_ups` after it measures only those; the names are in `main`.
//!
//! The server's own count of its processor time is the figure to trust: keys a second
//! depend on what else the machine does.
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on has failed")]
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
    Add, FinishRequest, Hold, Key, LeaseRequest, Owner, SharedQueue, Store, When,
};

const BATCH: usize = 100;

struct Bench {
    url: String,
    server: MultiplexedConnection,
}

#[tokio::main]
async fn main() {
    let Ok(url) = std::env::var("REQUEUE_REDIS_URL") else {
        println!("left out: REQUEUE_REDIS_URL is not set");
        return;
    };
    let client = redis::Client::open(url.as_str()).unwrap();
    // A busy machine may take longer than the half second that is usual.
    let patient = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let server = client.get_multiplexed_async_connection_with_config(&patient);
    let server = server.await.unwrap();
    let mut bench = Bench { url, server };
    println!("{:42} {:>12} {:>16}", "", "keys/s", "server us/key");
    let wanted: Vec<_> =
        std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let is_wanted = |name| wanted.is_empty() || wanted.iter().any(|word| word == name);
    macro_rules! measure {
        ($($name:ident)*) => {
            $(if is_wanted(stringify!($name)) {
                bench.$name().await;
            })*
        };
    }
    measure!(ceiling floor batches cycles priorities singles shared while_processing);
    measure!(wake_up_floor wake_ups shared_wake_ups delays);
}

impl Bench {
    async fn open(&mut self) -> RedisStore {
        redis::cmd("FLUSHALL").exec_async(&mut self.server).await.unwrap();
        let queue = format!("bench-{}", TimeSource::System.now().micros());
        let patience = Duration::from_secs(60);
        let builder = RedisStore::builder(&self.url).queue(queue).timeout(patience);
        builder.open().await.unwrap()
    }

    /// The processor time that the server has used, in microseconds.
    async fn used(&mut self) -> f64 {
        let info: String =
            redis::cmd("INFO").arg("cpu").query_async(&mut self.server).await.unwrap();
        let seconds = |name: &str| -> f64 {
            let line = info.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim().parse().unwrap()
        };
        (seconds("used_cpu_user:") + seconds("used_cpu_sys:")) * 1e6
    }

    async fn measure(&mut self, name: &str, keys: usize, work: impl Future) {
        let figures = self.take(keys, work).await;
        print_figures(name, figures);
    }

    /// Keys a second, and what each took of the server's time.
    async fn take(&mut self, keys: usize, work: impl Future) -> (f64, f64) {
        let (used, began) = (self.used().await, SystemClock.now());
        work.await;
        let took = began.elapsed().as_secs_f64();
        let used = self.used().await - used;
        (keys as f64 / took, used / keys as f64)
    }

    /// What the server can do without any queue.
    async fn ceiling(&mut self) {
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

    /// What a command costs, and a call of a script that does nothing: a cycle is three calls.
    async fn floor(&mut self) {
        let server = self.server.clone();
        let setting = in_tasks(64, 100_000, move |round| {
            let mut server = server.clone();
            async move {
                let mut command = redis::cmd("SET");
                command.arg(name(round)).arg("x");
                command.exec_async(&mut server).await.unwrap();
            }
        });
        self.measure("SET, one by one, 64 in flight", 100_000, setting).await;
        let script = redis::Script::new("return 1");
        let mut server = self.server.clone();
        script.prepare_invoke().load_async(&mut server).await.unwrap();
        let calling = in_tasks(64, 100_000, move |_| {
            let (script, mut server) = (script.clone(), server.clone());
            async move { call_empty(&script, &mut server).await }
        });
        self.measure("empty script, one by one, 64 in flight", 100_000, calling).await;
    }

    /// Each step for itself, with what the steps before it left.
    async fn batches(&mut self) {
        let store = self.open().await;
        let count = 200_000;
        let adding = in_tasks(8, count / BATCH, {
            let store = store.clone();
            move |round| {
                let store = store.clone();
                async move { add(&store, round * BATCH, BATCH).await }
            }
        });
        self.measure("add, batches of 100, 8 in flight", count, adding).await;
        let held = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let leasing = in_tasks(8, count / BATCH, {
            let (store, held) = (store.clone(), std::sync::Arc::clone(&held));
            move |_| {
                let (store, held) = (store.clone(), std::sync::Arc::clone(&held));
                async move {
                    let holds = lease(&store, BATCH).await;
                    held.lock().unwrap().push(holds);
                }
            }
        });
        self.measure("lease, batches of 100, 8 in flight", count, leasing).await;
        let finishing = in_tasks(8, count / BATCH, {
            let store = store.clone();
            move |_| {
                let (store, holds) = (store.clone(), held.lock().unwrap().pop().unwrap());
                async move { finish(&store, holds).await }
            }
        });
        self.measure("finish, batches of 100, 8 in flight", count, finishing).await;
    }

    async fn cycles(&mut self) {
        let store = self.open().await;
        let cycling = cycles(store, BATCH, 8, 2000);
        self.measure("cycle, batches of 100, 8 in flight", 2000 * BATCH, cycling).await;
    }

    async fn priorities(&mut self) {
        for (batch, tasks, rounds) in [(BATCH, 8, 1000), (1, 64, 10_000)] {
            let store = self.open().await;
            let cycling = in_tasks(tasks, rounds, move |round| {
                let store = store.clone();
                async move {
                    add_ranked(&store, round * batch, batch).await;
                    let holds = lease(&store, batch).await;
                    finish(&store, holds).await;
                }
            });
            let name = format!("cycle of nine priorities, batches of {batch}");
            self.measure(&name, rounds * batch, cycling).await;
        }
    }

    /// Keys that go one by one, and as many scripts that do nothing, turn by turn: the
    /// middle of each.
    async fn singles(&mut self) {
        for (tasks, rounds) in [(64, 10_000), (1, 1000)] {
            let (mut ceilings, mut figures) = (Vec::new(), Vec::new());
            for _ in 0..7 {
                let empty = self.empty_cycles(tasks, rounds).await;
                ceilings.push(self.take(rounds, empty).await);
                let store = self.open().await;
                figures.push(self.take(rounds, cycles(store, 1, tasks, rounds)).await);
            }
            let name = format!("three empty scripts, {tasks} in flight");
            print_figures(&name, middle(ceilings));
            let name = format!("cycle, one by one, {tasks} in flight");
            print_figures(&name, middle(figures));
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

    /// What programs use: tasks that each add, get and finish one key at a time, and whose
    /// calls go together.
    async fn shared(&mut self) {
        let queue = SharedQueue::<String, _>::new(self.open().await);
        let cycling = in_tasks(512, 100_000, move |round| {
            let queue = queue.clone();
            async move {
                queue.add(format!("key-{round}")).await.unwrap();
                let lease = queue.get().await.unwrap().unwrap();
                lease.succeed().await.unwrap();
            }
        });
        self.measure("cycle by SharedQueue, 512 tasks", 100_000, cycling).await;
    }

    /// Adding keys that are with a worker, while few or many are.
    async fn while_processing(&mut self) {
        for count in [100, 10_000] {
            let store = self.open().await;
            add(&store, 0, count).await;
            while !lease(&store, 500).await.is_empty() {}
            let adding = in_tasks(64, 50_000, move |round| {
                let store = store.clone();
                async move { add(&store, round % 100, 1).await }
            });
            let name = format!("add of a processing key, {count} processing");
            self.measure(&name, 50_000, adding).await;
        }
    }

    /// How long it takes from a push onto a bare list until one who waited at it has that.
    async fn wake_up_floor(&mut self) {
        let client = redis::Client::open(self.url.as_str()).unwrap();
        let patient = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        let waiter = client.get_multiplexed_async_connection_with_config(&patient);
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
        print_times("floor: LPUSH until BLPOP has it", times);
    }

    /// How long it takes from an add until one who waited has the key.
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

    /// As [`wake_ups`](Self::wake_ups), by what programs use.
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

    /// How late delayed keys are: a thousand in a second, added one by one meanwhile, and
    /// ten thousand in a second, added before.
    async fn delays(&mut self) {
        let store = self.open().await;
        let adding = tokio::spawn(add_delayed(store.clone(), 2000));
        let had = collect(&store, 2000).await;
        show_lateness("delayed key: how late it is leased", &had, &adding.await.unwrap());
        let store = self.open().await;
        let due = plan(&store, 20_000).await;
        let had = collect(&store, due.len()).await;
        show_lateness("the same, 10000 in a second", &had, &due);
    }
}

/// Adds keys with some delay, about one in a millisecond: when each is due at the earliest.
async fn add_delayed(store: RedisStore, count: usize) -> Vec<Instant> {
    let mut due = Vec::new();
    for n in 0..count {
        let delay = Duration::from_millis(50 + (n as u64 * 37) % 100);
        due.push(SystemClock.now() + delay);
        store.add(&[Add::new(key(n), When::After(delay))]).await.unwrap();
        pause(Duration::from_millis(1)).await;
    }
    due
}

/// Adds keys of which one is due in each tenth of a millisecond: when each is at the earliest.
async fn plan(store: &RedisStore, count: u32) -> Vec<Instant> {
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
        store.add(&adds).await.unwrap();
    }
    due
}

fn show_lateness(name: &str, had: &[(usize, Instant)], due: &[Instant]) {
    let early = had.iter().filter(|(n, at)| *at < due[*n]).count();
    let late = had.iter().map(|(n, at)| at.saturating_duration_since(due[*n]));
    print_times(name, late.collect());
    println!("{:42} {early:>12}", "of these early");
}

/// Leases keys as they come, as a worker would: which, and when.
async fn collect(store: &RedisStore, count: usize) -> Vec<(usize, Instant)> {
    let mut had = Vec::new();
    while had.len() < count {
        let leased = store.lease(&request(100)).await.unwrap();
        let now = SystemClock.now();
        let ends = leased.grants.iter().map(|grant| {
            let number: &str = std::str::from_utf8(&grant.key[3..]).unwrap();
            had.push((number.parse().unwrap(), now));
            Hold { key: grant.key.clone(), token: grant.token }
        });
        let ends: Vec<_> = ends.collect();
        if ends.is_empty() {
            let more_in = leased.more_in.unwrap_or(Duration::from_secs(1));
            store.wait(more_in).await.unwrap();
        } else {
            finish(store, ends).await;
        }
    }
    had
}

async fn call_empty(script: &redis::Script, server: &mut MultiplexedConnection) {
    let mut command = redis::cmd("EVALSHA");
    command.arg(script.get_hash()).arg(0);
    command.exec_async(server).await.unwrap();
}

/// Adds, leases and ends so many keys at a time.
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
    store.add(&adds).await.unwrap();
}

/// As [`add`], with priorities from 1 to 9.
async fn add_ranked(store: &RedisStore, from: usize, count: usize) {
    let priority = |n: usize| i8::try_from(n % 9 + 1).unwrap();
    let add = |n| Add { priority: priority(n), ..Add::new(key(n), When::Now) };
    let adds: Vec<_> = (from..from + count).map(add).collect();
    store.add(&adds).await.unwrap();
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
    let end = |hold| FinishRequest::new(hold, Finish::Succeed);
    let ends: Vec<_> = holds.into_iter().map(end).collect();
    store.finish(&ends).await.unwrap();
}

async fn pause(time: Duration) {
    SystemClock.timer(SystemClock.now() + time).await;
}

/// Does the rounds in so many tasks at once.
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

/// The middle of each column.
fn middle(figures: Vec<(f64, f64)>) -> (f64, f64) {
    let (mut rates, mut costs): (Vec<_>, Vec<_>) = figures.into_iter().unzip();
    rates.sort_by(f64::total_cmp);
    costs.sort_by(f64::total_cmp);
    (rates[rates.len() / 2], costs[costs.len() / 2])
}

fn print_figures(name: &str, (rate, cost): (f64, f64)) {
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
