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

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{Cmd, RedisError, Value};
use requeue_store::{Error, ErrorKind};
use tokio::task::JoinSet;

use crate::node::{Node, ScriptCommand, pipeline};

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
    nodes: HashMap<(String, u16), Arc<Node>>,
    /// The node of each partition, as far as known.
    homes: HashMap<usize, Arc<Node>>,
    /// The seed that is asked about unknown partitions, modulo the number of seeds.
    seed: usize,
}

impl Cluster {
    pub(crate) fn new(seeds: Vec<Node>) -> Self {
        let addresses: Vec<_> = seeds.iter().map(Node::address).collect();
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
        let known = map.homes.get(&partition);
        Arc::clone(known.unwrap_or(&self.seeds[map.seed % self.seeds.len()]))
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
        let is_unnamed = host.is_empty() || host == "?";
        let host = if is_unnamed { from.host() } else { host.to_owned() };
        let mut map = self.map();
        let create = || Arc::new(self.seeds[0].at(host.clone(), port));
        let node = map.nodes.entry((host.clone(), port)).or_insert_with(create);
        let node = Arc::clone(node);
        map.homes.insert(partition, node);
        true
    }

    /// Forgets a node that cannot be reached. Another may have taken over its partitions.
    pub(crate) fn forget(&self, node: &Arc<Node>) {
        let mut map = self.map();
        map.homes.retain(|_, home| !Arc::ptr_eq(home, node));
        map.nodes.retain(|_, known| !Arc::ptr_eq(known, node));
        if Arc::ptr_eq(&self.seeds[map.seed % self.seeds.len()], node) {
            map.seed += 1;
        }
    }

    /// Returns whether to try another seed: this one cannot be reached, and there are others.
    fn has_other_seed(&self, node: &Arc<Node>, error: &Error) -> bool {
        let is_seed = self.seeds.iter().any(|seed| Arc::ptr_eq(seed, node));
        is_seed && self.seeds.len() > 1 && error.kind() == ErrorKind::Unavailable
    }

    fn max_attempts(&self) -> usize {
        MAX_REDIRECTS + self.seeds.len()
    }

    fn no_node(&self) -> Error {
        let text = format!("{}: no reachable node has the slot", self.name);
        Error::new(ErrorKind::Unavailable, text)
    }

    /// Calls scripts on their nodes, all nodes at the same time.
    pub(crate) async fn call_each(
        &self,
        calls: &[ScriptCommand],
    ) -> Vec<Result<Value, Error>> {
        let mut results: Vec<Option<_>> = calls.iter().map(|_| None).collect();
        for _ in 0..self.max_attempts() {
            let open = (0..calls.len()).filter(|index| results[*index].is_none());
            let open: Vec<_> = open.collect();
            if open.is_empty() {
                break;
            }
            self.attempt(calls, &open, &mut results).await;
        }
        let result = |result: Option<_>| result.unwrap_or_else(|| Err(self.no_node()));
        results.into_iter().map(result).collect()
    }

    /// Sends the open calls. Those that must go to another node stay open.
    async fn attempt(
        &self,
        calls: &[ScriptCommand],
        open: &[usize],
        results: &mut [Option<Result<Value, Error>>],
    ) {
        let mut tasks = JoinSet::new();
        for (node, indexes) in self.by_node(calls, open) {
            let calls = indexes.iter().map(|index| calls[*index].clone()).collect();
            tasks.spawn(async move { (node.try_call(calls).await, node, indexes) });
        }
        while let Some(task) = tasks.join_next().await {
            let Ok((result, node, indexes)) = task else { continue };
            match result {
                Ok(replies) => {
                    for (index, reply) in indexes.into_iter().zip(replies) {
                        results[index] = self.read(&calls[index], &node, reply);
                    }
                }
                Err(error) => {
                    self.forget(&node);
                    if self.has_other_seed(&node, &error) {
                        continue;
                    }
                    for index in indexes {
                        let error = Error::new(error.kind(), error.to_string());
                        results[index] = Some(Err(error));
                    }
                }
            }
        }
    }

    fn by_node(
        &self,
        calls: &[ScriptCommand],
        open: &[usize],
    ) -> Vec<(Arc<Node>, Vec<usize>)> {
        let mut groups: Vec<(Arc<Node>, Vec<usize>)> = Vec::new();
        for index in open {
            let home = self.node_of(calls[*index].partition);
            match groups.iter_mut().find(|(node, _)| Arc::ptr_eq(node, &home)) {
                Some((_, indexes)) => indexes.push(*index),
                None => groups.push((home, vec![*index])),
            }
        }
        groups
    }

    /// Returns the result of a call, or `None` if it was redirected.
    fn read(
        &self,
        call: &ScriptCommand,
        node: &Node,
        reply: Value,
    ) -> Option<Result<Value, Error>> {
        match reply.extract_error() {
            Err(error) if self.redirect(call.partition, node, &error) => None,
            Err(error) => Some(Err(node.error(error))),
            Ok(reply) => Some(Ok(reply)),
        }
    }

    /// Sends one command that is not a script, with a Redis key of this partition.
    pub(crate) async fn send(
        &self,
        partition: usize,
        command: Cmd,
    ) -> Result<Value, Error> {
        for _ in 0..self.max_attempts() {
            let node = self.node_of(partition);
            let command = pipeline(std::iter::once(command.clone()));
            let replies = match node.send_pipeline(&command).await {
                Ok(replies) => replies,
                Err(error) => {
                    self.forget(&node);
                    if self.has_other_seed(&node, &error) {
                        continue;
                    }
                    return Err(error);
                }
            };
            match replies.into_iter().next().unwrap_or(Value::Nil).extract_error() {
                Err(error) if self.redirect(partition, &node, &error) => {}
                reply => return reply.map_err(|error| node.error(error)),
            }
        }
        Err(self.no_node())
    }

    /// Sends one command to the first seed that can be reached.
    pub(crate) async fn send_to_any(&self, command: &Cmd) -> Result<Value, Error> {
        let mut result = self.seeds[0].send(command.clone()).await;
        for seed in &self.seeds[1..] {
            match &result {
                Err(error) if error.is_transient() => {
                    result = seed.send(command.clone()).await;
                }
                _ => break,
            }
        }
        result
    }

    fn map(&self) -> MutexGuard<'_, Map> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
