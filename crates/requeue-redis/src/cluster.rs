//! The nodes of Redis Cluster, and which partition is on which.
//!
//! A partition is one slot. Where it is need not be known: whatever node is asked names the
//! right one, and that is remembered until it says otherwise or is gone.
//!
//! # Invariants
//!
//! 1. A call is sent again only if the node refused it or was not there: one that may have
//!    been carried out is never sent twice.
//! 2. The calls of one partition are sent to one node, in their order.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{Cmd, RedisError, Value};
use requeue_store::{Error, ErrorKind};
use tokio::task::JoinSet;

use crate::link::{Call, Link, pipeline};

/// How often one call follows a slot that moved. Nodes agree within moments where it is.
const HOPS: usize = 5;

/// What became of one call.
pub(crate) type Answered = Result<Value, Error>;

#[derive(Debug)]
pub(crate) struct Cluster {
    /// The nodes that the address names.
    seeds: Vec<Arc<Link>>,
    place: String,
    /// The lock is never held over a wait.
    map: Mutex<Map>,
}

#[derive(Debug, Default)]
struct Map {
    nodes: HashMap<(String, u16), Arc<Link>>,
    /// The node of each partition, as far as it is known.
    homes: HashMap<usize, Arc<Link>>,
    /// Which of the seeds is asked for what is not known.
    seed: usize,
}

impl Cluster {
    /// There is at least one seed.
    pub(crate) fn new(seeds: Vec<Link>) -> Self {
        let names: Vec<_> = seeds.iter().map(Link::address).collect();
        let place = format!("redis cluster at {}", names.join(","));
        let seeds = seeds.into_iter().map(Arc::new).collect();
        Self { seeds, place, map: Mutex::default() }
    }

    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// The node that has a partition, or one that will tell.
    pub(crate) fn home(&self, partition: usize) -> Arc<Link> {
        let map = self.map();
        let known = map.homes.get(&partition);
        Arc::clone(known.unwrap_or(&self.seeds[map.seed % self.seeds.len()]))
    }

    /// Notes where a partition is, if that is what a node answered: whether it was.
    pub(crate) fn learn(
        &self,
        partition: usize,
        from: &Link,
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
        // A node that does not know its own name leaves it out.
        let unnamed = host.is_empty() || host == "?";
        let host = if unnamed { from.host() } else { host.to_owned() };
        let mut map = self.map();
        let make = || Arc::new(self.seeds[0].elsewhere(host.clone(), port));
        let node = Arc::clone(map.nodes.entry((host.clone(), port)).or_insert_with(make));
        map.homes.insert(partition, node);
        true
    }

    /// Forgets what is on a node that cannot be reached: another may have taken over.
    pub(crate) fn forget(&self, node: &Arc<Link>) {
        let mut map = self.map();
        map.homes.retain(|_, home| !Arc::ptr_eq(home, node));
        map.nodes.retain(|_, known| !Arc::ptr_eq(known, node));
        if Arc::ptr_eq(&self.seeds[map.seed % self.seeds.len()], node) {
            map.seed += 1;
        }
    }

    /// Whether it may be tried elsewhere at once: a seed was not there, and there are others.
    fn spares(&self, node: &Arc<Link>, error: &Error) -> bool {
        let is_seed = self.seeds.iter().any(|seed| Arc::ptr_eq(seed, node));
        is_seed && self.seeds.len() > 1 && error.kind() == ErrorKind::Unavailable
    }

    /// How often a call is sent at most.
    fn hops(&self) -> usize {
        HOPS + self.seeds.len()
    }

    fn homeless(&self) -> Error {
        let text = format!("{}: no node is there that has the slot", self.place);
        Error::new(ErrorKind::Unavailable, text)
    }

    /// Calls scripts, those of one node one after the other.
    pub(crate) async fn call_each(&self, calls: &[Call]) -> Vec<Answered> {
        let mut answers: Vec<Option<Answered>> = calls.iter().map(|_| None).collect();
        for _ in 0..self.hops() {
            let open = (0..calls.len()).filter(|place| answers[*place].is_none());
            let open: Vec<_> = open.collect();
            if open.is_empty() {
                break;
            }
            self.hop(calls, &open, &mut answers).await;
        }
        let lost = || Err(self.homeless());
        answers.into_iter().map(|answer| answer.unwrap_or_else(lost)).collect()
    }

    /// Asks the nodes about the open calls; those that another is to be asked stay open.
    async fn hop(
        &self,
        calls: &[Call],
        open: &[usize],
        answers: &mut [Option<Answered>],
    ) {
        let mut asking = JoinSet::new();
        for (node, places) in self.by_node(calls, open) {
            let calls = places.iter().map(|place| calls[*place].clone()).collect();
            asking.spawn(async move { (node.try_call(calls).await, node, places) });
        }
        while let Some(asked) = asking.join_next().await {
            let Ok((result, node, places)) = asked else { continue };
            match result {
                Ok(values) => {
                    for (place, value) in places.into_iter().zip(values) {
                        answers[place] = self.read(&calls[place], &node, value);
                    }
                }
                Err(error) => {
                    self.forget(&node);
                    if self.spares(&node, &error) {
                        continue;
                    }
                    for place in places {
                        let error = Error::new(error.kind(), error.to_string());
                        answers[place] = Some(Err(error));
                    }
                }
            }
        }
    }

    fn by_node(&self, calls: &[Call], open: &[usize]) -> Vec<(Arc<Link>, Vec<usize>)> {
        let mut groups: Vec<(Arc<Link>, Vec<usize>)> = Vec::new();
        for place in open {
            let home = self.home(calls[*place].partition);
            match groups.iter_mut().find(|(node, _)| Arc::ptr_eq(node, &home)) {
                Some((_, places)) => places.push(*place),
                None => groups.push((home, vec![*place])),
            }
        }
        groups
    }

    /// The answer of a node, unless it is that the slot is elsewhere.
    fn read(&self, call: &Call, node: &Link, value: Value) -> Option<Answered> {
        match value.extract_error() {
            Err(error) if self.learn(call.partition, node, &error) => None,
            Err(error) => Some(Err(node.fault(error))),
            Ok(value) => Some(Ok(value)),
        }
    }

    /// Sends one command that is no script and has a key of this partition.
    pub(crate) async fn ask(&self, partition: usize, command: Cmd) -> Answered {
        for _ in 0..self.hops() {
            let node = self.home(partition);
            let command = pipeline(std::iter::once(command.clone()));
            let answers = match node.send(&command).await {
                Ok(answers) => answers,
                Err(error) => {
                    self.forget(&node);
                    if self.spares(&node, &error) {
                        continue;
                    }
                    return Err(error);
                }
            };
            match answers.into_iter().next().unwrap_or(Value::Nil).extract_error() {
                Err(error) if self.learn(partition, &node, &error) => {}
                answer => return answer.map_err(|error| node.fault(error)),
            }
        }
        Err(self.homeless())
    }

    /// Sends one command to the first of the seeds that can be reached.
    pub(crate) async fn ask_any(&self, command: &Cmd) -> Answered {
        let mut answer = self.seeds[0].ask(command.clone()).await;
        for seed in &self.seeds[1..] {
            match &answer {
                Err(error) if error.is_transient() => {
                    answer = seed.ask(command.clone()).await;
                }
                _ => break,
            }
        }
        answer
    }

    fn map(&self) -> MutexGuard<'_, Map> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
