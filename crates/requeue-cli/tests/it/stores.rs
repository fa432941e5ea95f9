//! The stores that scenarios run on: the embedded one always, servers where they are.

use std::sync::atomic::{AtomicU32, Ordering};

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::harness::{Cmd, Dir};
use crate::proxy::Proxy;

/// A queue of a store, and a folder to run in.
pub(crate) struct Home {
    pub(crate) dir: Dir,
    store: String,
    queue: Option<String>,
}

/// Does the same on an embedded store and on each server that is there.
pub(crate) fn on_each_store(scenario: impl Fn(&Home)) {
    scenario(&embedded());
    on_each_server(scenario);
}

/// Does the same on each server that is there.
pub(crate) fn on_each_server(scenario: impl Fn(&Home)) {
    for name in ["REQUEUE_REDIS_URL", "REQUEUE_POSTGRES_URL"] {
        if let Some(url) = server(name) {
            scenario(&Home::on(&url, Some(&queue_name())));
        }
    }
}

/// Where a server is, if it is.
#[expect(clippy::print_stdout, reason = "what is left out is said")]
pub(crate) fn server(variable: &str) -> Option<String> {
    let url = std::env::var(variable).ok();
    let demanded = std::env::var_os("CI").is_some_and(|ci| ci == "true");
    assert!(
        url.is_some() || !demanded,
        "{variable} is not set: see scripts/with-servers"
    );
    if url.is_none() {
        println!("left out: {variable} is not set, see scripts/with-servers");
    }
    url
}

pub(crate) fn embedded() -> Home {
    Home { dir: Dir::new(), store: "queue.db".to_owned(), queue: None }
}

/// A name that no other test has, in this run or another.
pub(crate) fn queue_name() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    #[expect(clippy::disallowed_methods, reason = "only to be unlike others")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    format!("cli-{}-{number}-{}", std::process::id(), now.as_nanos())
}

impl Home {
    /// A queue of a server; without a name, the one that is used if none is given.
    pub(crate) fn on(url: &str, queue: Option<&str>) -> Self {
        let queue = queue.map(str::to_owned);
        Self { dir: Dir::new(), store: url.to_owned(), queue }
    }

    /// The command, told of the store by its environment.
    pub(crate) fn requeue(&self) -> Cmd {
        let command = self.dir.requeue().env("REQUEUE_STORE", &self.store);
        match &self.queue {
            Some(queue) => command.env("REQUEUE_QUEUE", queue),
            None => command,
        }
    }

    /// The command with a proxy between it and the server.
    pub(crate) fn through_proxy(&self) -> (Proxy, Cmd) {
        let (scheme, rest) = self.store.split_once("://").unwrap();
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

    /// Makes the queue, with nothing in it.
    pub(crate) fn make(&self) {
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
