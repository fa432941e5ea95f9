//! The nodes of a Redis Cluster, and the node of each partition.
//!
//! A partition is in one slot. The client does not ask for a map of the slots: a node that
//! does not have the slot names the one that does. That is remembered until the named node
//! says otherwise or cannot be reached.
//!
//! # Invariants
//!
//! 1. A call is sent again only if the node refused it or could not be reached. A call that
//!    may have been executed is never repeated.
//! 2. The calls of one partition go to one node, in order.
//! 3. The partitions of a call are independent: a node that does not answer delays only its
//!    own partitions. Once a call had no answer in time, other calls to that node fail at
//!    once, until a probe in the background gets an answer.

use std::collections::{BTreeMap, HashMap};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use redis::{Cmd, RedisError, Value};
use requeue_store::{Error, ErrorKind};
use tokio::task::JoinSet;

use crate::node::{Node, RedisOrStore, ScriptCommand, Sending};

/// How often a call follows a redirection. Nodes soon agree where a slot is.
const MAX_REDIRECTS: usize = 5;

#[derive(Debug)]
pub(crate) struct Cluster {
    /// The nodes that the address names; at least one.
    seeds: Vec<Arc<Node>>,
    name: String,
    /// Not locked while anything is awaited.
    map: Mutex<Map>,
}

#[derive(Debug, Default)]
struct Map {
    /// All nodes that were ever named, except the seeds.
    nodes: HashMap<(String, u16), Arc<Node>>,
    /// The node of each partition, as far as known.
    homes: HashMap<usize, Arc<Node>>,
    /// The seed that is asked about unknown partitions, modulo the number of seeds.
    seed: usize,
}

impl Cluster {
    pub(crate) fn new(seeds: Vec<Node>) -> Self {
        let address = |node: &Node| {
            node.host_and_port().map(|(host, port)| format!("{host}:{port}"))
        };
        let addresses: Vec<_> = seeds.iter().filter_map(address).collect();
        let name = format!("redis cluster at {}", addresses.join(","));
        let seeds = seeds.into_iter().map(Arc::new).collect();
        Self { seeds, name, map: Mutex::default() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the node of a partition, or a node that knows it.
    pub(crate) fn node_of(&self, partition: usize) -> Arc<Node> {
        let map = self.map();
        if let Some(home) = map.homes.get(&partition) {
            return Arc::clone(home);
        }
        let count = self.seeds.len();
        let seeds = (0..count).map(|n| &self.seeds[(map.seed + n) % count]);
        let mut answering =
            seeds.chain(map.nodes.values()).filter(|node| !node.is_hung());
        Arc::clone(answering.next().unwrap_or(&self.seeds[map.seed % count]))
    }

    /// Returns the nodes of all known partitions.
    pub(crate) fn homes(&self) -> Vec<Arc<Node>> {
        let map = self.map();
        let by_name = map.homes.values().map(|node| (node.name(), node));
        by_name.collect::<BTreeMap<_, _>>().into_values().map(Arc::clone).collect()
    }

    /// Remembers where a partition is, if the error is a redirection. Returns whether it was.
    pub(crate) fn redirect(
        &self,
        partition: usize,
        from: &Node,
        error: &RedisError,
    ) -> bool {
        let moved = error.code() == Some("MOVED");
        let Some((address, _)) = error.redirect_node().filter(|_| moved) else {
            return false;
        };
        let Some((host, Ok(port))) =
            address.rsplit_once(':').map(|(host, port)| (host, port.parse()))
        else {
            return false;
        };
        // A node that does not know its own host name leaves it out.
        let own_host = from.host_and_port().map_or("", |(host, _)| host);
        let host = if host.is_empty() || host == "?" { own_host } else { host };
        let mut map = self.map();
        let node = self.node_at(&mut map, host, port);
        map.homes.insert(partition, node);
        true
    }

    fn node_at(&self, map: &mut Map, host: &str, port: u16) -> Arc<Node> {
        let is_same = |node: &&Arc<Node>| node.host_and_port() == Some((host, port));
        if let Some(seed) = self.seeds.iter().find(is_same) {
            return Arc::clone(seed);
        }
        let create = || Arc::new(self.seeds[0].at(host.to_owned(), port));
        Arc::clone(map.nodes.entry((host.to_owned(), port)).or_insert_with(create))
    }

    /// Forgets what a node that cannot be reached has. Another may have taken over.
    pub(crate) fn forget(&self, node: &Arc<Node>) {
        let mut map = self.map();
        map.homes.retain(|_, home| !Arc::ptr_eq(home, node));
        if Arc::ptr_eq(&self.seeds[map.seed % self.seeds.len()], node) {
            map.seed += 1;
        }
    }

    fn max_attempts(&self) -> usize {
        MAX_REDIRECTS + self.seeds.len()
    }

    fn no_node(&self) -> Error {
        let text = format!("{}: no reachable node has the slot", self.name);
        Error::new(ErrorKind::Unavailable, text)
    }

    /// Calls scripts, those of one partition in order. Returns a result for each.
    pub(crate) async fn call(
        self: &Arc<Self>,
        calls: Vec<ScriptCommand>,
        sending: Sending,
    ) -> Vec<Result<Value, Error>> {
        let mut results: Vec<_> = calls.iter().map(|_| Err(self.no_node())).collect();
        let mut by_partition: BTreeMap<usize, (Vec<usize>, Vec<ScriptCommand>)> =
            BTreeMap::new();
        for (index, call) in calls.into_iter().enumerate() {
            let part = by_partition.entry(call.partition).or_default();
            part.0.push(index);
            part.1.push(call);
        }
        let mut tasks = JoinSet::new();
        for (partition, (indexes, calls)) in by_partition {
            let cluster = Arc::clone(self);
            tasks.spawn(async move {
                (indexes, cluster.call_partition(partition, &calls, sending).await)
            });
        }
        while let Some(task) = tasks.join_next().await {
            let Ok((indexes, part)) = task else { continue };
            for (index, result) in indexes.into_iter().zip(part) {
                results[index] = result;
            }
        }
        results
    }

    async fn call_partition(
        &self,
        partition: usize,
        calls: &[ScriptCommand],
        sending: Sending,
    ) -> Vec<Result<Value, Error>> {
        let mut results: Vec<Option<_>> = calls.iter().map(|_| None).collect();
        for _ in 0..self.max_attempts() {
            let open = (0..calls.len()).filter(|index| results[*index].is_none());
            let open: Vec<_> = open.collect();
            if open.is_empty() {
                break;
            }
            let node = self.node_of(partition);
            let sent: Vec<_> = open.iter().map(|index| calls[*index].clone()).collect();
            let answers = self.call_node(&node, &sent, sending).await;
            for (index, answer) in open.into_iter().zip(answers) {
                results[index] = self.read(partition, &node, answer);
            }
        }
        let result = |result: Option<_>| result.unwrap_or_else(|| Err(self.no_node()));
        results.into_iter().map(result).collect()
    }

    /// Keeps invariant 3.
    async fn call_node(
        &self,
        node: &Arc<Node>,
        calls: &[ScriptCommand],
        sending: Sending,
    ) -> Vec<Result<Value, RedisOrStore>> {
        let every = |kind, text: &str| {
            let error = Error::new(kind, format!("{}: {text}", node.name()));
            calls.iter().map(|_| Err(error.clone().into())).collect()
        };
        if node.is_hung() {
            self.forget(node);
            node.probe();
            return every(ErrorKind::Unavailable, "it does not answer");
        }
        let answers = unless(node.call(calls, sending), node.hung()).await;
        let answers = answers.unwrap_or_else(|| {
            let text = "it stopped answering, the call may have been executed";
            every(ErrorKind::Unknown, text)
        });
        if answers.iter().any(|answer| matches!(answer, Err(RedisOrStore::Store(_)))) {
            self.forget(node);
        }
        if node.is_hung() {
            node.probe();
        }
        answers
    }

    /// Returns the result of a call, or `None` if it must be sent to another node.
    fn read(
        &self,
        partition: usize,
        node: &Arc<Node>,
        answer: Result<Value, RedisOrStore>,
    ) -> Option<Result<Value, Error>> {
        match answer {
            Ok(reply) => Some(Ok(reply)),
            Err(RedisOrStore::Redis(error)) if self.redirect(partition, node, &error) => {
                None
            }
            Err(RedisOrStore::Store(error)) if self.has_other_seed(node, &error) => None,
            Err(error) => Some(Err(node.error(error))),
        }
    }

    /// Returns whether to try another seed: this one cannot be reached, and there are others.
    fn has_other_seed(&self, node: &Arc<Node>, error: &Error) -> bool {
        let is_seed = self.seeds.iter().any(|seed| Arc::ptr_eq(seed, node));
        is_seed
            && self.seeds.len() > 1
            && error.kind() == ErrorKind::Unavailable
            && !node.is_hung()
    }

    /// Sends one command that is not a script, with a Redis key of this partition.
    pub(crate) async fn send(
        &self,
        partition: usize,
        command: Cmd,
    ) -> Result<Value, Error> {
        for _ in 0..self.max_attempts() {
            let node = self.node_of(partition);
            let answer = node.send(command.clone()).await;
            if matches!(answer, Err(RedisOrStore::Store(_))) {
                self.forget(&node);
            }
            if let Some(result) = self.read(partition, &node, answer) {
                return result;
            }
        }
        Err(self.no_node())
    }

    /// Sends one command to the first seed that can be reached.
    pub(crate) async fn send_to_any(&self, command: &Cmd) -> Result<Value, Error> {
        let mut last = Err(self.no_node());
        for seed in &self.seeds {
            last = seed.send(command.clone()).await.map_err(|error| seed.error(error));
            if !matches!(&last, Err(error) if error.is_transient()) {
                break;
            }
        }
        last
    }

    fn map(&self) -> MutexGuard<'_, Map> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for `first`. Returns `None` if `other` is ready before it.
async fn unless<T>(
    first: impl Future<Output = T>,
    other: impl Future<Output = ()>,
) -> Option<T> {
    let (mut first, mut other) = (pin!(first), pin!(other));
    poll_fn(|cx| match first.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => other.as_mut().poll(cx).map(|()| None),
    })
    .await
}
