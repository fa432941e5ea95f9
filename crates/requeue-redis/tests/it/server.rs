//! The server that tests use, and queues on it.

use std::sync::atomic::{AtomicU64, Ordering};

use requeue_redis::{Builder, RedisStore};
use requeue_store::{Add, EngineClock, Key, LeaseRequest, Owner, Receipt, Store, When};

use std::time::Duration;

/// The address of the server, if there is one: tests without it end at once.
///
/// # Panics
///
/// Where tests must not be left out, if there is none.
pub(crate) fn url() -> Option<String> {
    let url = std::env::var("REQUEUE_REDIS_URL").ok();
    if url.is_none() {
        let must = std::env::var("CI").is_ok_and(|ci| ci == "true");
        assert!(
            !must,
            "REQUEUE_REDIS_URL is not set: run the tests by scripts/with-servers"
        );
        println!("left out: REQUEUE_REDIS_URL is not set");
    }
    url
}

/// Settings for a queue that nobody else uses.
pub(crate) fn fresh(url: &str) -> Builder {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let now = requeue_store::Now::System.read().micros();
    let queue = format!("test-{}-{count}-{now}", std::process::id());
    RedisStore::builder(url).queue(queue)
}

pub(crate) async fn open(url: &str, clock: &EngineClock) -> RedisStore {
    fresh(url).clock(clock.clone()).open().await.unwrap()
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(name.as_bytes()).unwrap()
}

pub(crate) fn keys(names: &[&str]) -> Vec<Key> {
    names.iter().map(|name| key(name)).collect()
}

pub(crate) fn adds(names: &[&str]) -> Vec<Add> {
    let add = |name: &&str| Add {
        key: key(name),
        when: When::Now,
        revive_after: Duration::ZERO,
    };
    names.iter().map(add).collect()
}

pub(crate) async fn add(store: &RedisStore, names: &[&str]) -> Vec<Receipt> {
    store.add(&adds(names)).await.unwrap()
}

pub(crate) fn request(max: usize) -> LeaseRequest {
    LeaseRequest {
        owner: Owner::new("worker"),
        max,
        lease: Duration::from_secs(30),
        max_deliveries: None,
    }
}
