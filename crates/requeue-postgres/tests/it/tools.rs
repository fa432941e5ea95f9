//! Helpers of the tests.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use requeue::Finish;
use requeue_postgres::PostgresStore;
use requeue_store::{
    Add, ErrorKind, FinishRequest, Finished, Grant, Hold, Key, LeaseRequest, Owner,
    Reply, Store, When,
};
use tokio_postgres::{Client, NoTls};

/// Time limit of a test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the address of the server. Without one, tests skip themselves.
pub(crate) fn url() -> Option<String> {
    variable("REQUEUE_POSTGRES_URL")
}

/// Returns a variable that `scripts/with-servers` sets. Without it, tests skip themselves.
#[expect(clippy::print_stderr, reason = "reports a skipped test")]
pub(crate) fn variable(name: &str) -> Option<String> {
    let value = std::env::var(name).ok();
    if value.is_none() {
        let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
        assert!(!ci, "{name} is not set: run scripts/with-servers");
        eprintln!("skipped: {name} is not set, see scripts/with-servers");
    }
    value
}

/// Returns a unique name for a queue or a schema.
pub(crate) fn new_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    #[expect(clippy::disallowed_methods, reason = "only has to be unique")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("test_{}_{count}_{}", std::process::id(), now.subsec_nanos())
}

/// A new queue, and a plain connection.
pub(crate) struct Bench {
    pub(crate) store: PostgresStore,
    pub(crate) queue: String,
    pub(crate) url: String,
    pub(crate) client: Client,
}

/// Runs a test on a new queue, if there is a server.
pub(crate) fn run<F: Future<Output = ()>>(test: impl FnOnce(Bench) -> F) {
    let Some(url) = url() else { return };
    block_on(async {
        let queue = new_name();
        let store = PostgresStore::builder(&*url).queue(&*queue).open().await;
        let store = store.expect("the store opens");
        let client = connect(&url).await;
        test(Bench { store, queue, url, client }).await;
    });
}

/// Runs a future on a new runtime, with a time limit.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build();
    runtime.expect("a runtime starts").block_on(async {
        tokio::time::timeout(PATIENCE, future).await.expect("the test ends in time")
    })
}

/// Opens a plain connection.
pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) =
        tokio_postgres::connect(url, NoTls).await.expect("the server answers");
    tokio::spawn(connection);
    client
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(name.as_bytes()).expect("the key is short")
}

pub(crate) fn add(name: &str) -> Add {
    Add { revive_after: Duration::from_secs(1), ..Add::new(key(name), When::Now) }
}

pub(crate) fn request(max: usize) -> LeaseRequest {
    LeaseRequest {
        owner: Owner::new("tester"),
        max,
        lease: Duration::from_secs(60),
        max_deliveries: None,
    }
}

pub(crate) fn done(grant: &Grant) -> FinishRequest {
    let hold = Hold { key: grant.key.clone(), token: grant.token };
    FinishRequest::new(hold, Finish::Done)
}

pub(crate) async fn lease(store: &PostgresStore, max: usize) -> Vec<Grant> {
    store.lease(&request(max)).await.expect("the lease succeeds").grants
}

/// Repeats a call while it is busy: on a slow machine it may wait too long for a lock.
pub(crate) async fn patiently<'a, T>(call: impl Fn() -> Reply<'a, T>) -> T {
    loop {
        match call().await {
            Err(error) if error.kind() == ErrorKind::Busy => {}
            answer => return answer.expect("the call succeeds"),
        }
    }
}

/// Repeats finishes while they are busy.
pub(crate) async fn finish(
    store: &PostgresStore,
    ends: &[FinishRequest],
) -> Vec<Finished> {
    let mut answers = vec![None; ends.len()];
    while answers.contains(&None) {
        let open: Vec<_> = (0..ends.len()).filter(|&at| answers[at].is_none()).collect();
        let requests: Vec<_> = open.iter().map(|&at| ends[at].clone()).collect();
        for (at, answer) in open.into_iter().zip(store.finish(&requests).await) {
            match answer {
                Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "{error}"),
                Ok(finished) => answers[at] = Some(finished),
            }
        }
    }
    answers.into_iter().flatten().collect()
}

impl Bench {
    /// Returns the id of the queue.
    pub(crate) async fn queue_id(&self) -> i32 {
        let text = "select id from requeue.queue where name = $1";
        let row = self.client.query_one(text, &[&self.queue]).await;
        row.expect("the queue exists").get(0)
    }

    /// Waits until a connection is blocked by the transaction of `holder`.
    pub(crate) async fn until_blocked_by(&self, holder: i32) {
        while self.blocked_by(holder).await.is_empty() {
            tokio::task::yield_now().await;
        }
    }

    /// Returns the names of the connections that the transaction of `holder` blocks.
    pub(crate) async fn blocked_by(&self, holder: i32) -> Vec<String> {
        let text = "select application_name from pg_stat_activity \
                    where $1 = any (pg_blocking_pids(pid))";
        let rows = self.client.query(text, &[&holder]).await;
        let rows = rows.expect("the server lists blocked connections");
        rows.iter().map(|row| row.get(0)).collect()
    }
}

/// Returns the server process of a connection.
pub(crate) async fn pid(client: &impl tokio_postgres::GenericClient) -> i32 {
    let row = client.query_one("select pg_backend_pid()", &[]).await;
    row.expect("the server returns its process id").get(0)
}
