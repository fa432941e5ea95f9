//! A slot that moves from node to node, and one whose node is replaced, while its queue is in
//! use.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use requeue::{AddOptions, Finish};
use requeue_redis::{RedisStore, RedisStoreBuilder};
use requeue_store::{
    Add, Backoff, Error, ErrorKind, FinishRequest, Hold, LeaseRequest, Owner,
    SharedQueue, Store, When,
};

use tokio::task::JoinHandle;

use crate::nodes::Nodes;
use crate::server::{self, add, keys, ranked, request};

const HOUR: Duration = Duration::from_secs(3600);

/// Keys that are ready in a queue of which no part is empty: more than are searched for one
/// that is removed.
const READY: usize = 65;

/// Fills every part of a queue.
async fn fill(store: &RedisStore) {
    add(store, &["doomed"]).await;
    let leased = store.lease(&request(1)).await.unwrap();
    let hold = Hold { key: leased.grants[0].key.clone(), token: leased.grants[0].token };
    let dead = FinishRequest::new(hold, Finish::GiveUp).with_error("of this");
    store.finish(&[dead]).await.unwrap();
    let backoff = Backoff { base: HOUR, max: HOUR, rate: None };
    let failed = Add::new(server::key("failed"), When::RateLimited(backoff));
    store.add(&[failed]).await.unwrap();
    let names: Vec<_> = (0..READY).map(|n| format!("k{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    add(store, &names).await;
    store.remove(&keys(&["k64"])).await.unwrap();
    store.add(&ranked(&["urgent"], 9)).await.unwrap();
}

/// Every call that a part of a queue may be touched by.
async fn call_each(store: &RedisStore) -> Vec<(&'static str, Result<(), Error>)> {
    let (some, adds) = (keys(&["k1", "failed"]), server::adds(&["k1", "new"]));
    let owner = request(1).owner;
    vec![
        ("lease", store.lease(&request(100)).await.map(drop)),
        ("lease one", store.lease(&request(1)).await.map(drop)),
        ("add", store.add(&adds).await.map(drop)),
        ("add one", store.add(&adds[..1]).await.map(drop)),
        ("extend", store.extend(&owner, &[], HOUR).await.map(drop)),
        ("expire", store.expire(None).await.map(drop)),
        ("forget", store.forget(&some).await),
        ("remove", store.remove(&some).await.map(drop)),
        ("look", store.look(&some).await.map(drop)),
        ("stats", store.stats().await.map(drop)),
        ("failing", store.failing(9).await.map(drop)),
        ("workers", store.workers().await.map(drop)),
        ("dead", store.dead(9).await.map(drop)),
        ("pause", store.pause().await),
    ]
}

/// A script found all of its parts, emptied one and asked for it again: that node took it
/// for one that had moved, and all keys that were taken from the line until then were lost.
#[tokio::test]
async fn a_call_is_refused_as_a_whole_while_its_slot_moves() {
    let Some(nodes) = Nodes::start().await else { return };
    let builder = server::fresh(&nodes.url());
    let store = builder.clone().open().await.unwrap();
    fill(&store).await;
    let moving = nodes.open_slot(&server::part(&builder, "m")).await;
    assert_eq!(moving.left().await.len(), 11);
    for (what, answer) in call_each(&store).await {
        let error = answer.expect_err(what);
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{what}: {error}");
        assert!(error.to_string().contains("is being moved"), "{what}: {error}");
    }
    moving.call_off().await;
    let leased = store.lease(&request(100)).await.unwrap();
    assert_eq!(leased.grants.len(), READY);
}

/// The short script for a lease tells by the Redis keys that it is given what it may do: the
/// guard is none of them.
#[tokio::test]
async fn nothing_is_written_to_the_guard_when_workers_take_turns() {
    let Some(nodes) = Nodes::start().await else { return };
    let builder = server::fresh(&nodes.url());
    let store = builder.clone().open().await.unwrap();
    for turn in 0..6 {
        add(&store, &[&format!("k{turn}"), "last"]).await;
        let owner = Owner::new(format!("worker-{}", turn % 2));
        let leased = store.lease(&LeaseRequest { owner, ..request(1) }).await.unwrap();
        assert_eq!(leased.grants.len(), 1);
    }
    let mut workers: Vec<_> = store.workers().await.unwrap();
    workers.sort_by(|a, b| a.owner.as_str().cmp(b.owner.as_str()));
    let workers: Vec<_> = workers.iter().map(|worker| worker.processing).collect();
    assert_eq!(workers, [3, 3]);
    let moving = nodes.open_slot(&server::part(&builder, "m")).await;
    assert!(!moving.left().await.contains(&server::part(&builder, "g")));
}

/// A cluster of which one node has all of a queue can be used like a server.
#[tokio::test]
async fn a_node_that_is_taken_for_the_whole_refuses_calls_as_a_whole_too() {
    let Some(nodes) = Nodes::start().await else { return };
    let url = format!("redis://{}", nodes.addresses()[0]);
    let (builder, store) = loop {
        let builder = server::fresh(&url);
        if let Ok(store) = builder.clone().open().await {
            break (builder, store);
        }
    };
    fill(&store).await;
    let moving = nodes.open_slot(&server::part(&builder, "m")).await;
    let error = store.lease(&request(100)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    moving.call_off().await;
    let leased = store.lease(&request(100)).await.unwrap();
    assert_eq!(leased.grants.len(), READY);
}

/// Adds keys until it is told to stop, of all sorts: those that were acknowledged.
async fn produce(
    queue: SharedQueue<String, RedisStore>,
    stop: Arc<Mutex<bool>>,
) -> HashSet<String> {
    let mut acknowledged = HashSet::new();
    for n in 0_u64.. {
        if *stop.lock().unwrap() {
            break;
        }
        let key = format!("key-{n}");
        let options = AddOptions::new();
        let options = match n % 4 {
            0 => options.priority(9),
            1 => options.after(Duration::from_millis(1)),
            _ => options,
        };
        queue.add_with(key.clone(), options).await.unwrap();
        acknowledged.insert(key);
    }
    acknowledged
}

/// Works on keys until the queue is closed, some twice: those that were done.
async fn work(queue: SharedQueue<String, RedisStore>) -> HashSet<String> {
    let mut done = HashSet::new();
    while let Some(lease) = queue.get().await.unwrap() {
        let key = lease.key().clone();
        if key.ends_with('7') && lease.num_requeues() == 0 {
            lease.retry().await.unwrap();
        } else {
            lease.succeed().await.unwrap();
            done.insert(key);
        }
    }
    done
}

/// A queue in use.
struct Busy {
    queue: SharedQueue<String, RedisStore>,
    stop: Arc<Mutex<bool>>,
    producing: JoinHandle<HashSet<String>>,
    working: Vec<JoinHandle<HashSet<String>>>,
}

impl Busy {
    async fn start(builder: &RedisStoreBuilder) -> Self {
        let store = builder.clone().open().await.unwrap();
        let queue = SharedQueue::builder(store).lease(HOUR).patience(HOUR).build();
        let stop = Arc::default();
        let producing = tokio::spawn(produce(queue.clone(), Arc::clone(&stop)));
        let working = (0..4).map(|_| tokio::spawn(work(queue.clone()))).collect();
        Self { queue, stop, producing, working }
    }

    /// Until something was done from now on.
    async fn until_it_goes_on(&self) {
        self.queue.add("between".to_owned()).await.unwrap();
    }

    /// Lets it come to rest: every key that was acknowledged must have been done.
    async fn judge(self) {
        *self.stop.lock().unwrap() = true;
        let acknowledged = self.producing.await.unwrap();
        loop {
            let stats = self.queue.stats().await.unwrap();
            if stats.ready + stats.delayed + stats.processing == 0 {
                break;
            }
        }
        self.queue.close();
        let mut done = HashSet::new();
        for worker in self.working {
            done.extend(worker.await.unwrap());
        }
        let lost: Vec<_> = acknowledged.difference(&done).collect();
        assert!(lost.is_empty(), "{} of {}: {lost:?}", lost.len(), acknowledged.len());
    }
}

#[tokio::test]
async fn no_key_is_lost_while_its_slot_moves_part_by_part() {
    let Some(nodes) = Nodes::start().await else { return };
    let builder = server::fresh(&nodes.url());
    let busy = Busy::start(&builder).await;
    for _ in 0..6 {
        let moving = nodes.open_slot(&server::part(&builder, "m")).await;
        for key in moving.left().await {
            moving.carry(&[key]).await;
        }
        moving.settle().await;
        busy.until_it_goes_on().await;
    }
    busy.judge().await;
}

#[tokio::test]
async fn no_key_is_lost_when_a_replica_takes_over_that_has_all() {
    let Some(nodes) = Nodes::start().await else { return };
    let builder = server::fresh(&nodes.url());
    let busy = Busy::start(&builder).await;
    let pair = nodes.add_replica(&server::part(&builder, "m")).await;
    pair.fail_over().await;
    busy.until_it_goes_on().await;
    busy.judge().await;
}
