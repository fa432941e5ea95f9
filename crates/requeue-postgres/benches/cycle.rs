//! The cost of the store: calls in batches of 100, whole cycles, wake-ups and delays, next to
//! the fastest operations of the server.
//!
//! ```sh
//! FSYNC=on scripts/with-servers --postgres cargo bench -p requeue-postgres --bench cycle
//! ```
//!
//! CPU is that of all server processes per key, from `/proc`. Rates depend on the load of the
//! machine; CPU per key hardly does. `KEYS` sets the number of keys of each row, `READY` that
//! of the long queue. `-- wake_ups delays` measures only those; the names are in `all`.
//!
//! The floors show the least that a wake-up or a delayed key can take: a commit that waits
//! for the disk (an add and a lease are one each), a notification, and a round trip. They
//! are also measured after a pause, since an idle processor takes time to wake.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![allow(clippy::unwrap_used, reason = "a failed benchmark stops")]

use std::collections::HashMap;
use std::fs;
use std::future::{Future, poll_fn};
use std::process::Command;
use std::time::{Duration, Instant};

use requeue::Finish;
use requeue::{Clock, SystemClock};
use requeue_postgres::{Durability, PostgresStore};
use requeue_store::{
    Add, FinishRequest, Grant, Hold, Key, LeaseRequest, Owner, RepliesExt, Store, When,
};
use tokio_postgres::{AsyncMessage, NoTls};

const BATCH: usize = 100;
const LANES: usize = 8;

/// Long enough that a worker waits and its processor is idle.
const REST: Duration = Duration::from_millis(15);

const DURABILITIES: [Durability; 3] =
    [Durability::Server, Durability::Adds, Durability::Relaxed];

/// The number of delayed keys that are due in a second.
const TIMERS: u32 = 10_000;

fn main() {
    let Ok(url) = std::env::var("REQUEUE_POSTGRES_URL") else {
        println!("REQUEUE_POSTGRES_URL is not set: run scripts/with-servers");
        return;
    };
    let sizes = Sizes { keys: size("KEYS", 200_000), ready: size("READY", 1_000_000) };
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    // On a thread of the runtime, like the tasks of a program.
    runtime.block_on(runtime.spawn(all(url, sizes))).unwrap();
}

/// The number of keys of the rows.
#[derive(Clone, Copy)]
struct Sizes {
    keys: usize,
    ready: usize,
}

fn size(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

async fn all(url: String, sizes: Sizes) {
    let wanted: Vec<_> =
        std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let is_wanted = |name| wanted.is_empty() || wanted.iter().any(|word| word == name);
    let server = Server::find(&url).await;
    println!("{:<44} {:>9} {:>12}", "", "per s", "server us");
    if is_wanted("ceiling") {
        server.ceiling(&url);
    }
    if is_wanted("cycles") {
        cycles(&server, &url, sizes.keys).await;
    }
    if is_wanted("old_transaction") {
        old_transaction(&server, &url, sizes.keys).await;
    }
    if is_wanted("long_line") {
        long_line(&url, sizes.ready).await;
    }
    if is_wanted("floors") {
        floors(&url).await;
    }
    for durability in DURABILITIES {
        let text = format!("{durability:?}").to_lowercase();
        if is_wanted("wake_ups") {
            let times = round_trips(&url, durability, 300).await;
            show(&format!("a round trip: a lease of nothing ({text})"), times);
            let times = wake_ups(&url, durability, 300).await;
            show(&format!("wake-up, add to lease by another ({text})"), times);
        }
        if is_wanted("delays") {
            let times = delays(&url, durability, 600).await;
            show(&format!("lateness of delayed keys ({text})"), times);
            let times = many_delays(&url, durability).await;
            show(&format!("lateness, {TIMERS} keys in a second ({text})"), times);
        }
    }
}

/// Measures each call, and whole cycles.
async fn cycles(server: &Server, url: &str, keys: usize) {
    for durability in DURABILITIES {
        let bench = Bench::open(url, durability).await;
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
        let stores = bench.open_others(url, durability).await;
        let cycle = cycles_of(&stores, keys);
        server.row(&format!("cycle, 8 stores, empty queue ({text})"), keys, cycle).await;
        bench.fill(keys).await;
        let cycle = bench.cycles(keys);
        server
            .row(&format!("cycle, 8 in flight, {keys} queued ({text})"), keys, cycle)
            .await;
    }
}

/// Measures lower bounds for waiting workers.
async fn floors(url: &str) {
    show("floor: a commit that waits for the disk", commits(url, 300).await);
    for (rest, text) in [(Duration::ZERO, ""), (REST, " after a rest")] {
        show(&format!("floor: a round trip{text}"), selects(url, 300, rest).await);
        let times = notifications(url, 300, rest).await;
        show(&format!("floor: a notification{text}"), times);
    }
}

/// Measures cycles while another transaction is open, so that no dead row can be removed.
async fn old_transaction(server: &Server, url: &str, keys: usize) {
    let bench = Bench::named(url, "old", Durability::Server).await;
    let client = connect(url).await;
    // Removes the dead rows of earlier measurements, which would disturb this one.
    client.batch_execute("vacuum requeue.item").await.unwrap();
    server.row("cycle, before the open transaction", keys, bench.cycles(keys)).await;
    let begin = "begin isolation level repeatable read; select txid_current()";
    client.batch_execute(begin).await.unwrap();
    for part in ["first", "then"] {
        let name = format!("cycle, a transaction stays open ({part})");
        server.row(&name, keys, bench.cycles(keys)).await;
    }
    client.batch_execute("rollback").await.unwrap();
}

/// Measures leases from a queue with one batch, and from a very long one.
async fn long_line(url: &str, ready: usize) {
    let bench = Bench::named(url, "long", Durability::Server).await;
    let mut times = Vec::new();
    for batch in 0..200 {
        bench.store.add(&adds("short", batch)).all().await.unwrap();
        bench.lease_and_end(&mut times).await;
    }
    show("lease of 100, no other key is ready", times);
    bench.fill(ready).await;
    let mut times = Vec::new();
    for _ in 0..200 {
        bench.lease_and_end(&mut times).await;
    }
    show(&format!("lease of 100, {ready} are ready"), times);
    bench.drain().await;
    bench.end().await;
}

async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Measures the smallest change.
async fn commits(url: &str, rounds: usize) -> Vec<Duration> {
    let client = connect(url).await;
    client.batch_execute("create table floor (n integer)").await.unwrap();
    let insert = client.prepare("insert into floor values (1)").await.unwrap();
    let mut times = Vec::new();
    for _ in 0..rounds {
        let begun = SystemClock.now();
        client.execute(&insert, &[]).await.unwrap();
        times.push(begun.elapsed());
    }
    client.batch_execute("drop table floor").await.unwrap();
    times
}

/// Measures a call that does nothing.
async fn selects(url: &str, rounds: usize, rest: Duration) -> Vec<Duration> {
    let client = connect(url).await;
    let select = client.prepare("select 1").await.unwrap();
    let mut times = Vec::new();
    for _ in 0..rounds {
        pass(rest).await;
        let begun = SystemClock.now();
        client.query(&select, &[]).await.unwrap();
        times.push(begun.elapsed());
    }
    times
}

/// Measures a notification from one connection to another.
async fn notifications(url: &str, rounds: usize, rest: Duration) -> Vec<Duration> {
    let (listener, mut connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            if matches!(message, AsyncMessage::Notification(_)) {
                sender.send(SystemClock.now()).unwrap();
            }
        }
    });
    listener.batch_execute("listen floor").await.unwrap();
    let client = connect(url).await;
    let notify = client.prepare("notify floor").await.unwrap();
    let mut times = Vec::new();
    for _ in 0..rounds {
        pass(rest).await;
        let begun = SystemClock.now();
        client.execute(&notify, &[]).await.unwrap();
        let at = receiver.recv().await.unwrap();
        times.push(at.saturating_duration_since(begun));
    }
    times
}

/// The processes of the server.
struct Server {
    postmaster: u32,
}

impl Server {
    async fn find(url: &str) -> Self {
        let client = connect(url).await;
        let pid: i32 =
            client.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
        let (postmaster, _) = stat(u32::try_from(pid).unwrap()).unwrap();
        Self { postmaster }
    }

    /// Measures `pgbench -S`: selects by primary key, prepared, 8 clients.
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
        let (before, processes) = (self.cpu(), self.processes().count());
        let output =
            run(&["-S", "-M", "prepared", "-c", "8", "-j", "2", "-T", "5"]).stdout;
        let text = String::from_utf8(output).unwrap();
        let tps = text.lines().find_map(|line| line.strip_prefix("tps = "));
        let tps: f64 = tps.unwrap().split(' ').next().unwrap().parse().unwrap();
        // The time of a process counts once it has been reaped.
        while self.processes().count() > processes {
            std::thread::yield_now();
        }
        let cpu = self.cpu().saturating_sub(before).as_secs_f64() * 1e6 / (tps * 5.0);
        println!("{:<44} {tps:>9.0} {cpu:>12.1}", "pgbench -S, 8 clients: the ceiling");
    }

    /// Returns the processor time of all its processes so far, including ended ones.
    fn cpu(&self) -> Duration {
        Duration::from_millis(self.processes().sum::<u64>() * 10)
    }

    /// Returns the ticks of each process.
    fn processes(&self) -> impl Iterator<Item = u64> {
        fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let (parent, ticks) = stat(pid)?;
            (pid == self.postmaster || parent == self.postmaster).then_some(ticks)
        })
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

/// Returns the parent of a process, and the ticks of 10 ms of it and its ended children.
fn stat(pid: u32) -> Option<(u32, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<_> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = (11..15).map(|field| fields[field].parse::<u64>().unwrap_or(0)).sum();
    Some((fields[1].parse().ok()?, ticks))
}

/// A queue, and the leases that were granted.
struct Bench {
    queue: String,
    store: PostgresStore,
    held: std::sync::Mutex<Vec<Vec<Grant>>>,
}

impl Bench {
    async fn open(url: &str, durability: Durability) -> Self {
        Self::named(url, &format!("{durability:?}"), durability).await
    }

    async fn named(url: &str, name: &str, durability: Durability) -> Self {
        let queue = format!("bench-{name}-{}", std::process::id());
        let builder = PostgresStore::builder(url).queue(&*queue).connections(LANES);
        let store = builder.durability(durability).open().await.unwrap();
        Self { queue, store, held: std::sync::Mutex::default() }
    }

    /// Adds keys, in batches, eight at a time.
    async fn fill(&self, keys: usize) {
        lanes(|lane| {
            let store = self.store.clone();
            async move {
                for batch in (lane..keys / BATCH).step_by(LANES) {
                    store.add(&adds("queued", batch)).all().await.unwrap();
                }
            }
        })
        .await;
    }

    /// Leases all ready keys.
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

    /// Leases a batch, times that, and finishes it.
    async fn lease_and_end(&self, times: &mut Vec<Duration>) {
        let begun = SystemClock.now();
        let grants = self.store.lease(&request(BATCH)).await.unwrap().grants;
        times.push(begun.elapsed());
        self.store.finish(&ends(&grants)).all().await.unwrap();
    }

    /// Finishes all leases.
    async fn end(&self) {
        let (store, held) = (&self.store, &self.held);
        let lane = || async move {
            loop {
                let grants = held.lock().unwrap().pop();
                let Some(grants) = grants else { return };
                store.finish(&ends(&grants)).all().await.unwrap();
            }
        };
        tokio::join!(lane(), lane(), lane(), lane(), lane(), lane(), lane(), lane());
    }

    /// Adds, leases and finishes this many keys, in batches, eight at a time.
    async fn cycles(&self, keys: usize) {
        cycles_of(&vec![self.store.clone(); LANES], keys).await;
    }

    /// Opens the queue once for each lane, like eight processes.
    async fn open_others(&self, url: &str, durability: Durability) -> Vec<PostgresStore> {
        let mut stores = Vec::new();
        for _ in 0..LANES {
            let builder = PostgresStore::builder(url).queue(&*self.queue).connections(1);
            stores.push(builder.durability(durability).open().await.unwrap());
        }
        stores
    }
}

/// Adds, leases and finishes this many keys, in batches, each lane on its own store.
async fn cycles_of(stores: &[PostgresStore], keys: usize) {
    lanes(|lane| {
        let store = stores[lane].clone();
        async move {
            for batch in (lane..keys / BATCH).step_by(LANES) {
                store.add(&adds("cycle", batch)).all().await.unwrap();
                let grants = store.lease(&request(BATCH)).await.unwrap().grants;
                store.finish(&ends(&grants)).all().await.unwrap();
            }
        }
    })
    .await;
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
    Add { revive_after: Duration::from_secs(1), ..Add::new(key, when) }
}

fn request(max: usize) -> LeaseRequest {
    LeaseRequest {
        owner: Owner::new("bench"),
        max,
        lease: Duration::from_secs(30),
        max_deliveries: None,
    }
}

fn ends(grants: &[Grant]) -> Vec<FinishRequest> {
    let end = |grant: &Grant| {
        FinishRequest::new(
            Hold { key: grant.key.clone(), token: grant.token },
            Finish::Succeed,
        )
    };
    grants.iter().map(end).collect()
}

/// Measures the smallest call of the store.
async fn round_trips(url: &str, durability: Durability, rounds: usize) -> Vec<Duration> {
    let (store, _) = two(url, "nothing", durability).await;
    let mut times = Vec::new();
    for _ in 0..rounds {
        let begun = SystemClock.now();
        store.lease(&request(1)).await.unwrap();
        times.push(begun.elapsed());
    }
    times
}

/// Measures the time from an add to a lease by a waiting worker of another store.
async fn wake_ups(url: &str, durability: Durability, rounds: usize) -> Vec<Duration> {
    let (producer, worker) = two(url, "wake", durability).await;
    let mut times = Vec::new();
    for round in 0..rounds {
        let waiting = tokio::spawn(next(worker.clone()));
        pass(REST).await;
        let begun = SystemClock.now();
        producer.add(&[add(&round.to_string(), When::Now)]).all().await.unwrap();
        let (grants, at) = waiting.await.unwrap();
        times.push(at.saturating_duration_since(begun));
        worker.finish(&ends(&grants)).all().await.unwrap();
    }
    times
}

/// Measures how late a waiting worker gets a delayed key. Panics if a key is early. The first
/// key does not count, because the server plans the statements.
async fn delays(url: &str, durability: Durability, rounds: usize) -> Vec<Duration> {
    let (producer, worker) = two(url, "delay", durability).await;
    let delay = Duration::from_millis(30);
    let mut times = Vec::new();
    for round in 0..=rounds {
        let waiting = tokio::spawn(next(worker.clone()));
        let begun = SystemClock.now();
        producer.add(&[add(&round.to_string(), When::After(delay))]).all().await.unwrap();
        let (grants, at) = waiting.await.unwrap();
        let late = at.saturating_duration_since(begun).checked_sub(delay);
        times.push(late.expect("no key is early"));
        worker.finish(&ends(&grants)).all().await.unwrap();
    }
    times.split_off(1)
}

/// Measures the same for many delayed keys. The first second does not count: in it the store
/// connects, and the server plans the statements.
async fn many_delays(url: &str, durability: Durability) -> Vec<Duration> {
    let (producer, worker) = two(url, "timers", durability).await;
    let (due, counted) = plan(&producer, 3 * TIMERS).await;
    let (mut times, mut seen) = (Vec::new(), 0);
    while seen < due.len() {
        let leased = worker.lease(&request(256)).await.unwrap();
        let now = SystemClock.now();
        for grant in &leased.grants {
            let at = due[&grant.key];
            let late = now.checked_duration_since(at).expect("no key is early");
            times.extend((at >= counted).then_some(late));
        }
        seen += leased.grants.len();
        if leased.grants.is_empty() {
            worker.wait(leased.more_in.unwrap_or(Duration::MAX)).await.unwrap();
        } else {
            let worker = worker.clone();
            let ending = async move { worker.finish(&ends(&leased.grants)).all().await };
            tokio::spawn(ending);
        }
    }
    times
}

/// Adds delayed keys. Returns the earliest time at which each may be leased, and the time
/// from which keys count.
async fn plan(store: &PostgresStore, number: u32) -> (HashMap<Key, Instant>, Instant) {
    let first = SystemClock.now() + Duration::from_secs(3);
    let mut due = HashMap::new();
    for batch in (0..number).collect::<Vec<_>>().chunks(BATCH) {
        let begun = SystemClock.now();
        let mut adds = Vec::new();
        for n in batch {
            let at = first + Duration::from_secs(1) / TIMERS * *n;
            let delay = at.saturating_duration_since(begun);
            adds.push(add(&n.to_string(), When::After(delay)));
            due.insert(adds[adds.len() - 1].key.clone(), begun + delay);
        }
        store.add(&adds).all().await.unwrap();
    }
    (due, first + Duration::from_secs(1))
}

async fn two(
    url: &str,
    name: &str,
    durability: Durability,
) -> (PostgresStore, PostgresStore) {
    let queue = format!("bench-{name}-{durability:?}-{}", std::process::id());
    let open =
        || PostgresStore::builder(url).queue(&*queue).durability(durability).open();
    (open().await.unwrap(), open().await.unwrap())
}

/// Waits for keys. Returns them, and when they were leased.
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
