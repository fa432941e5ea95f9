//! Slots that move between nodes, and nodes that are replaced, while a queue is in use.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use requeue::{AddOptions, Finish};
use requeue_redis::{RedisStore, RedisStoreBuilder};
use requeue_store::{
    Add, Backoff, Error, ErrorKind, FinishRequest, Hold, LeaseRequest, Owner, RepliesExt,
    SharedQueue, Store, Token, When,
};
use tokio::task::JoinHandle;

use crate::support::cluster::TestCluster;
use crate::support::{
    self, add, adds_with_priority, keys, lease, names, new_queue, part, request, select,
};

const HOUR: Duration = Duration::from_secs(3600);

/// The number of ready keys in a queue with all parts: more than are searched for one key.
const READY: usize = 65;

/// Makes every part of a queue exist.
async fn fill(store: &RedisStore) {
    add(store, &["doomed"]).await;
    let hold = lease(store, 1).await.remove(0);
    let dead = FinishRequest::new(hold, Finish::GiveUp).with_error("of this");
    store.finish(&[dead]).all().await.unwrap();
    let backoff = Backoff { base: HOUR, max: HOUR, rate: None };
    let failed = Add::new(support::key("failed"), When::RateLimited(backoff));
    store.add(&[failed]).all().await.unwrap();
    let names = names(READY);
    add(store, &select(&names, |_| true)).await;
    store.remove(&keys(&["k64"])).all().await.unwrap();
    store.add(&adds_with_priority(&["urgent"], 9)).all().await.unwrap();
}

/// Executes every call of the store.
async fn call_each(store: &RedisStore) -> Vec<(&'static str, Result<(), Error>)> {
    let (some, adds) = (keys(&["k1", "failed"]), support::adds(&["k1", "new"]));
    let (owner, token) = (request(1).owner, Token(1));
    let held = [Hold { key: support::key("k1"), token }];
    vec![
        ("lease", store.lease(&request(100)).await.map(drop)),
        ("lease one", store.lease(&request(1)).await.map(drop)),
        ("add", store.add(&adds).all().await.map(drop)),
        ("add one", store.add(&adds[..1]).all().await.map(drop)),
        ("extend", store.extend(&owner, &held, HOUR).all().await.map(drop)),
        ("heartbeat", store.heartbeat(&owner).await),
        ("expire", store.expire(None).await.map(drop)),
        ("forget", store.forget(&some).all().await.map(drop)),
        ("remove", store.remove(&some).all().await.map(drop)),
        ("look", store.look(&some).all().await.map(drop)),
        ("stats", store.stats().await.map(drop)),
        ("failing", store.failing(9).await.map(drop)),
        ("workers", store.workers().await.map(drop)),
        ("dead", store.dead(9).await.map(drop)),
        ("pause", store.pause().await),
    ]
}

/// A script found all of its Redis keys, emptied one and used it again. The node took that
/// key for a moved one and aborted the script. All keys leased until then were lost.
#[tokio::test]
async fn a_call_is_refused_as_a_whole_while_its_slot_moves() {
    let Some(cluster) = TestCluster::start().await else { return };
    let builder = new_queue(&cluster.url());
    let store = builder.clone().open().await.unwrap();
    fill(&store).await;
    let migration = cluster.start_migration(&part(&builder, "m")).await;
    assert_eq!(migration.remaining_keys().await.len(), 9, "all parts exist");
    for (call, result) in call_each(&store).await {
        let error = result.expect_err(call);
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{call}: {error}");
        assert!(error.to_string().contains("is being moved"), "{call}: {error}");
    }
    migration.cancel().await;
    assert_eq!(lease(&store, 100).await.len(), READY);
}

#[tokio::test]
async fn no_call_creates_the_guard() {
    let Some(cluster) = TestCluster::start().await else { return };
    let builder = new_queue(&cluster.url());
    let store = builder.clone().open().await.unwrap();
    for turn in 0..6 {
        add(&store, &[&format!("k{turn}"), "last"]).await;
        let owner = Owner::new(format!("worker-{}", turn % 2));
        let leased = store.lease(&LeaseRequest { owner, ..request(1) }).await.unwrap();
        assert_eq!(leased.grants.len(), 1);
    }
    for (call, result) in call_each(&store).await {
        result.expect(call);
    }
    let migration = cluster.start_migration(&part(&builder, "m")).await;
    assert!(!migration.remaining_keys().await.contains(&part(&builder, "g")));
}

/// A node that has all partitions of a queue can be used like a server.
#[tokio::test]
async fn a_node_used_as_a_server_refuses_calls_as_a_whole() {
    let Some(cluster) = TestCluster::start().await else { return };
    let url = format!("redis://{}", cluster.addresses()[0]);
    let (builder, store) = loop {
        let builder = new_queue(&url);
        if let Ok(store) = builder.clone().open().await {
            break (builder, store);
        }
    };
    fill(&store).await;
    let migration = cluster.start_migration(&part(&builder, "m")).await;
    let error = store.lease(&request(100)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    migration.cancel().await;
    assert_eq!(lease(&store, 100).await.len(), READY);
}

/// Adds keys of all kinds until it is stopped. Returns the acknowledged ones.
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

/// Processes keys until the queue is closed, some of them twice. Returns the finished ones.
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

/// A queue with a producer and workers.
struct BusyQueue {
    queue: SharedQueue<String, RedisStore>,
    stop: Arc<Mutex<bool>>,
    producing: JoinHandle<HashSet<String>>,
    working: Vec<JoinHandle<HashSet<String>>>,
}

impl BusyQueue {
    async fn start(builder: &RedisStoreBuilder) -> Self {
        let store = builder.clone().open().await.unwrap();
        let queue = SharedQueue::builder(store).lease(HOUR).patience(HOUR).build();
        let stop = Arc::default();
        let producing = tokio::spawn(produce(queue.clone(), Arc::clone(&stop)));
        let working = (0..4).map(|_| tokio::spawn(work(queue.clone()))).collect();
        Self { queue, stop, producing, working }
    }

    /// Waits until the queue can be used again.
    async fn wait_until_usable(&self) {
        self.queue.add("between".to_owned()).await.unwrap();
    }

    /// Stops the producer, and checks that all acknowledged keys are processed.
    async fn check(self) {
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
async fn no_key_is_lost_while_its_slot_moves() {
    let Some(cluster) = TestCluster::start().await else { return };
    let builder = new_queue(&cluster.url());
    let busy = BusyQueue::start(&builder).await;
    for _ in 0..6 {
        let migration = cluster.start_migration(&part(&builder, "m")).await;
        for key in migration.remaining_keys().await {
            migration.move_keys(&[key]).await;
        }
        migration.finish().await;
        busy.wait_until_usable().await;
    }
    busy.check().await;
}

#[tokio::test]
async fn no_key_is_lost_when_an_up_to_date_replica_takes_over() {
    let Some(cluster) = TestCluster::start().await else { return };
    let builder = new_queue(&cluster.url());
    let busy = BusyQueue::start(&builder).await;
    let pair = cluster.add_replica(&part(&builder, "m")).await;
    pair.fail_over().await;
    busy.wait_until_usable().await;
    busy.check().await;
}
