//! Queues in stores to test with: embedded, and on each available server.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::harness::{Cmd, Dir};
use crate::proxy::Proxy;

/// One use of each verb that takes a store.
pub(crate) const VERBS: [&[&str]; 10] = [
    &["run", "true"],
    &["add", "k"],
    &["status"],
    &["watch"],
    &["dead", "list"],
    &["dead", "drop", "--all"],
    &["forget", "k"],
    &["pause"],
    &["resume"],
    &["migrate"],
];

/// A queue in a store, and a directory to run commands in.
pub(crate) struct TestStore {
    pub(crate) dir: Dir,
    address: String,
    queue: Option<String>,
}

/// Runs a test on an embedded store and on each available server.
pub(crate) fn on_each_store(test: impl Fn(&TestStore)) {
    test(&embedded());
    on_each_server(test);
}

/// Runs a test on each available server.
pub(crate) fn on_each_server(test: impl Fn(&TestStore)) {
    for name in ["REQUEUE_REDIS_URL", "REQUEUE_POSTGRES_URL"] {
        if let Some(url) = server(name) {
            test(&TestStore::on(&url, Some(&queue_name())));
        }
    }
}

/// Returns the address of a server, if it is available.
#[expect(clippy::print_stdout, reason = "skipped tests are reported")]
pub(crate) fn server(variable: &str) -> Option<String> {
    let url = std::env::var(variable).ok();
    let required = std::env::var_os("CI").is_some_and(|ci| ci == "true");
    assert!(
        url.is_some() || !required,
        "{variable} is not set: see scripts/with-servers"
    );
    if url.is_none() {
        println!("skipped: {variable} is not set, see scripts/with-servers");
    }
    url
}

pub(crate) fn embedded() -> TestStore {
    TestStore { dir: Dir::new(), address: "queue.db".to_owned(), queue: None }
}

/// Returns a unique queue name.
pub(crate) fn queue_name() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    #[expect(clippy::disallowed_methods, reason = "only for a unique name")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    format!("cli-{}-{number}-{}", std::process::id(), now.as_nanos())
}

impl TestStore {
    /// A queue on a server; without a name, the default queue.
    pub(crate) fn on(url: &str, queue: Option<&str>) -> Self {
        let queue = queue.map(str::to_owned);
        Self { dir: Dir::new(), address: url.to_owned(), queue }
    }

    /// Prepares `requeue` with the store in its environment.
    pub(crate) fn requeue(&self) -> Cmd {
        let command = self.dir.requeue().env("REQUEUE_STORE", &self.address);
        match &self.queue {
            Some(queue) => command.env("REQUEUE_QUEUE", queue),
            None => command,
        }
    }

    /// Prepares `requeue` with a proxy between it and the server.
    pub(crate) fn through_proxy(&self) -> (Proxy, Cmd) {
        let (scheme, rest) = self.address.split_once("://").unwrap();
        let (user, host) = rest.rsplit_once('@').map_or(("", rest), |parts| parts);
        let (host, database) = host.split_once('/').map_or((host, ""), |parts| parts);
        let proxy = Proxy::to(host);
        let at = if user.is_empty() { "" } else { "@" };
        let url = format!("{scheme}://{user}{at}{}/{database}", proxy.address);
        let queue = self.queue.as_deref().unwrap();
        let command = self.dir.requeue().env("REQUEUE_STORE", &url);
        (proxy, command.env("REQUEUE_QUEUE", queue))
    }

    pub(crate) fn run(&self, args: &[&str]) -> Cmd {
        self.requeue().arg("run").args(args)
    }

    /// Creates an empty queue.
    pub(crate) fn create(&self) {
        self.run(&["true"]).ran().expect(0);
    }

    /// Adds keys.
    pub(crate) fn add(&self, keys: &[&str]) {
        self.requeue().arg("add").args(keys).ran().expect(0);
    }

    pub(crate) fn status(&self) -> Value {
        let ran = self.requeue().args(["status", "--json"]).ran().expect(0);
        serde_json::from_str(&ran.out).unwrap()
    }

    pub(crate) fn dead(&self) -> Vec<Value> {
        let ran = self.requeue().args(["dead", "list", "--json"]).ran().expect(0);
        ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}
