//! What the store costs: calls in batches of 100, whole cycles, wake-ups and delays, beside
//! what the server can do at best.
//!
//! ```sh
//! FSYNC=on scripts/with-servers --postgres cargo bench -p requeue-postgres --bench cycle
//! ```
//!
//! CPU is that of all processes of the server, by key, from `/proc`. Rates move with the
//! load of the machine; CPU by key hardly does. `KEYS` sets how many keys each row has.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![allow(clippy::unwrap_used, reason = "a benchmark that fails is to stop")]

use std::fs;
use std::future::Future;
use std::process::Command;
use std::time::{Duration, Instant};

use requeue::{Clock, SystemClock};
use requeue_postgres::{Durability, PostgresStore};
use requeue_store::{
    Add, End, Ending, Grant, Hold, Key, LeaseRequest, Owner, Store, When,
};
use tokio_postgres::NoTls;

const BATCH: usize = 100;
const LANES: usize = 8;

fn main() {
    let Ok(url) = std::env::var("REQUEUE_POSTGRES_URL") else {
        println!("REQUEUE_POSTGRES_URL is not set: run scripts/with-servers");
        return;
    };
    let keys = std::env::var("KEYS").ok().and_then(|keys| keys.parse().ok());
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(all(url, keys.unwrap_or(200_000)));
}

async fn all(url: String, keys: usize) {
    let server = Server::find(&url).await;
    println!("{:<44} {:>9} {:>12}", "", "per s", "server us");
    server.ceiling(&url);
    for durability in [Durability::Server, Durability::Relaxed] {
        let bench = Bench::open(&url, durability).await;
        let text = format!("{durability:?}").to_lowercase();
        server
            .row(&format!("add, batches of 100 ({text})"), keys, bench.fill(keys))
            .await;
        server.row(&format!("lease, batches of 100 ({text})"), keys, bench.drain()).await;
        server.row(&format!("finish, batches of 100 ({text})"), keys, bench.end()).await;
        let cycle = bench.cycles(keys);
        server
            .row(&format!("cycle, 8 in flight, empty queue ({text})"), keys, cycle)
            .await;
        bench.fill(keys).await;
        let cycle = bench.cycles(keys);
        server
            .row(&format!("cycle, 8 in flight, {keys} queued ({text})"), keys, cycle)
            .await;
    }
    let times = round_trips(&url, 300).await;
    show("a round trip: a lease of nothing", times);
    let times = wake_ups(&url, 300).await;
    show("wake-up, add to lease by another store", times);
    let times = delays(&url, 300).await;
    show("lateness of delayed keys, from their time", times);
}

/// The processes of the server.
struct Server {
    postmaster: u32,
}

impl Server {
    async fn find(url: &str) -> Self {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let pid: i32 =
            client.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
        let (postmaster, _) = stat(u32::try_from(pid).unwrap()).unwrap();
        Self { postmaster }
    }

    /// What `pgbench` reads at best: a key by its number, prepared, 8 clients.
    fn ceiling(&self, url: &str) {
        let find = "ls -d /usr/lib/postgresql/*/bin/pgbench | sort -V | tail -1";
        let found = Command::new("sh").args(["-c", find]).output().unwrap().stdout;
        let pgbench = String::from_utf8(found).unwrap().trim().to_owned();
        if pgbench.is_empty() {
            println!("pgbench is not installed: no ceiling");
            return;
        }
        let run =
            |args: &[&str]| Command::new(&pgbench).args(args).arg(url).output().unwrap();
        run(&["-i", "-q", "-s", "1"]);
        let before = self.cpu();
        let output =
            run(&["-S", "-M", "prepared", "-c", "8", "-j", "2", "-T", "5"]).stdout;
        let text = String::from_utf8(output).unwrap();
        let tps = text.lines().find_map(|line| line.strip_prefix("tps = "));
        let tps: f64 = tps.unwrap().split(' ').next().unwrap().parse().unwrap();
        let cpu = self.cpu().saturating_sub(before).as_secs_f64() * 1e6 / (tps * 5.0);
        println!("{:<44} {tps:>9.0} {cpu:>12.1}", "pgbench -S, 8 clients: the ceiling");
    }

    /// Processor time of all its processes so far, also of those that have ended.
    fn cpu(&self) -> Duration {
        let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let (parent, ticks) = stat(pid)?;
            (pid == self.postmaster || parent == self.postmaster).then_some(ticks)
        });
        Duration::from_millis(processes.sum::<u64>() * 10)
    }

    async fn row(&self, name: &str, keys: usize, work: impl Future<Output = ()>) {
        let (cpu, begun) = (self.cpu(), SystemClock.now());
        work.await;
        let took = begun.elapsed().as_secs_f64();
        let cpu = self.cpu().saturating_sub(cpu).as_secs_f64() * 1e6;
        let keys = f64::from(u32::try_from(keys).unwrap());
        println!("{name:<44} {:>9.0} {:>12.1}", keys / took, cpu / keys);
    }
}

/// The parent of a process, and the ticks of 10 ms that it and its ended children took.
fn stat(pid: u32) -> Option<(u32, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<_> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = (11..15).map(|field| fields[field].parse::<u64>().unwrap_or(0)).sum();
    Some((fields[1].parse().ok()?, ticks))
}

/// A queue, and the leases that it has given out.
struct Bench {
    store: PostgresStore,
    held: std::sync::Mutex<Vec<Vec<Grant>>>,
}

impl Bench {
    async fn open(url: &str, durability: Durability) -> Self {
        let queue = format!("bench-{durability:?}-{}", std::process::id());
        let builder = PostgresStore::builder(url).queue(queue).connections(LANES);
        let store = builder.durability(durability).open().await.unwrap();
        Self { store, held: std::sync::Mutex::default() }
    }

    /// Adds keys, in batches, eight at a time.
    async fn fill(&self, keys: usize) {
        lanes(|lane| {
            let store = self.store.clone();
            async move {
                for batch in (lane..keys / BATCH).step_by(LANES) {
                    store.add(&adds("queued", batch)).await.unwrap();
                }
            }
        })
        .await;
    }

    /// Leases all that is there.
    async fn drain(&self) {
        let (store, held) = (&self.store, &self.held);
        let lane = || async move {
            loop {
                let grants = store.lease(&request(BATCH)).await.unwrap().grants;
                if grants.is_empty() {
                    return;
                }
                held.lock().unwrap().push(grants);
            }
        };
        tokio::join!(lane(), lane(), lane(), lane(), lane(), lane(), lane(), lane());
    }

    /// Ends all that was leased.
    async fn end(&self) {
        let (store, held) = (&self.store, &self.held);
        let lane = || async move {
            loop {
                let grants = held.lock().unwrap().pop();
                let Some(grants) = grants else { return };
                store.finish(&ends(&grants)).await.unwrap();
            }
        };
        tokio::join!(lane(), lane(), lane(), lane(), lane(), lane(), lane(), lane());
    }

    /// Adds, leases and ends as many keys, in batches, eight at a time.
    async fn cycles(&self, keys: usize) {
        lanes(|lane| {
            let store = self.store.clone();
            async move {
                for batch in (lane..keys / BATCH).step_by(LANES) {
                    store.add(&adds("cycle", batch)).await.unwrap();
                    let grants = store.lease(&request(BATCH)).await.unwrap().grants;
                    store.finish(&ends(&grants)).await.unwrap();
                }
            }
        })
        .await;
    }
}

async fn lanes<F: Future<Output = ()> + Send + 'static>(lane: impl Fn(usize) -> F) {
    let lanes: Vec<_> = (0..LANES).map(|number| tokio::spawn(lane(number))).collect();
    for lane in lanes {
        lane.await.unwrap();
    }
}

fn adds(name: &str, batch: usize) -> Vec<Add> {
    (0..BATCH).map(|n| add(&format!("{name}-{batch:06}/{n:04}"), When::Now)).collect()
}

fn add(name: &str, when: When) -> Add {
    let key = Key::new(name.as_bytes()).unwrap();
    Add { key, when, revive_after: Duration::from_secs(1) }
}

fn request(max: usize) -> LeaseRequest {
    LeaseRequest {
        owner: Owner::new("bench"),
        max,
        lease: Duration::from_secs(30),
        max_deliveries: None,
    }
}

fn ends(grants: &[Grant]) -> Vec<End> {
    let end = |grant: &Grant| End {
        hold: Hold { key: grant.key.clone(), token: grant.token },
        ending: Ending::Succeed,
    };
    grants.iter().map(end).collect()
}

/// How long the least call takes: what the rows below are made of.
async fn round_trips(url: &str, rounds: usize) -> Vec<Duration> {
    let (store, _) = two(url, "nothing").await;
    let mut times = Vec::new();
    for _ in 0..rounds {
        let begun = SystemClock.now();
        store.lease(&request(1)).await.unwrap();
        times.push(begun.elapsed());
    }
    times
}

/// How long a worker that waits takes to have a key that another store adds.
async fn wake_ups(url: &str, rounds: usize) -> Vec<Duration> {
    let (producer, worker) = two(url, "wake").await;
    let mut times = Vec::new();
    for round in 0..rounds {
        let waiting = tokio::spawn(next(worker.clone()));
        // Long enough for it to wait, and for the producer's next notification.
        pass(Duration::from_millis(15)).await;
        let begun = SystemClock.now();
        producer.add(&[add(&round.to_string(), When::Now)]).await.unwrap();
        let (grants, at) = waiting.await.unwrap();
        times.push(at.saturating_duration_since(begun));
        worker.finish(&ends(&grants)).await.unwrap();
    }
    times
}

/// How much later than its time a worker that waits has a delayed key. The time is the
/// earliest at which the server can have made it ready: early is a panic.
async fn delays(url: &str, rounds: usize) -> Vec<Duration> {
    let (producer, worker) = two(url, "delay").await;
    let delay = Duration::from_millis(30);
    let mut times = Vec::new();
    for round in 0..rounds {
        let waiting = tokio::spawn(next(worker.clone()));
        let begun = SystemClock.now();
        producer.add(&[add(&round.to_string(), When::After(delay))]).await.unwrap();
        let (grants, at) = waiting.await.unwrap();
        let late = at.saturating_duration_since(begun).checked_sub(delay);
        times.push(late.expect("no key is early"));
        worker.finish(&ends(&grants)).await.unwrap();
    }
    times
}

async fn two(url: &str, name: &str) -> (PostgresStore, PostgresStore) {
    let queue = format!("bench-{name}-{}", std::process::id());
    let open = || PostgresStore::builder(url).queue(&*queue).open();
    (open().await.unwrap(), open().await.unwrap())
}

/// The next keys of a store, and when they were there.
async fn next(store: PostgresStore) -> (Vec<Grant>, Instant) {
    loop {
        let leased = store.lease(&request(10)).await.unwrap();
        if !leased.grants.is_empty() {
            return (leased.grants, SystemClock.now());
        }
        let longest = leased.more_in.unwrap_or(Duration::MAX);
        store.wait(longest).await.unwrap();
    }
}

async fn pass(time: Duration) {
    SystemClock.timer(SystemClock.now() + time).await;
}

fn show(name: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |share: usize| times[(times.len() - 1) * share / 100];
    println!("{name:<44} p50 {:?}, p99 {:?}, most {:?}", at(50), at(99), at(100));
}
