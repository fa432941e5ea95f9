//! Keys that leave the line without being handed out.

use requeue_store::{EngineClock, MemoryStore, Store};

use crate::server::{self, add, adds, keys, request};

/// Longer than what is searched through for a removed key.
fn names() -> Vec<String> {
    (0..200).map(|n| format!("k{n}")).collect()
}

fn some(names: &[String], of: impl Fn(usize) -> bool) -> Vec<&str> {
    let chosen = names.iter().enumerate().filter(|(place, _)| of(*place));
    chosen.map(|(_, name)| name.as_str()).collect()
}

#[tokio::test]
async fn keys_that_were_removed_and_added_again_run_once_and_in_their_new_place() {
    let Some(url) = server::url() else { return };
    let clock = EngineClock::new();
    let store = server::open(&url, &clock).await;
    let model = MemoryStore::with_clock(clock);
    let names = names();
    let (all, thirds) = (some(&names, |_| true), some(&names, |n| n % 3 == 0));
    for _ in 0..3 {
        add(&store, &all).await;
        model.add(&adds(&all)).await.unwrap();
        let removed = store.remove(&keys(&thirds)).await.unwrap();
        assert_eq!(removed, model.remove(&keys(&thirds)).await.unwrap());
        assert_eq!(store.stats().await.unwrap(), model.stats().await.unwrap());
    }
    add(&store, &thirds).await;
    model.add(&adds(&thirds)).await.unwrap();
    for max in [1, 7, 50, 500] {
        let expected = model.lease(&request(max)).await.unwrap();
        assert_eq!(store.lease(&request(max)).await.unwrap(), expected);
        assert_eq!(store.stats().await.unwrap(), model.stats().await.unwrap());
    }
}

#[tokio::test]
async fn a_line_of_which_all_was_removed_wakes_for_the_next_key() {
    // Entries that only wait to be passed over must not pass for keys: the mark is set
    // when a key comes into an empty line.
    let Some(url) = server::url() else { return };
    let store = server::open(&url, &EngineClock::new()).await;
    let names = names();
    let all = some(&names, |_| true);
    add(&store, &all).await;
    assert_eq!(store.lease(&request(1)).await.unwrap().grants.len(), 1);
    store.remove(&keys(&all)).await.unwrap();
    assert_eq!(store.lease(&request(1)).await.unwrap().grants.len(), 0);
    let no_time = std::time::Duration::ZERO;
    // Takes the mark of the first key, which is still there.
    store.wait(std::time::Duration::from_secs(60)).await.unwrap();
    store.wait(no_time).await.unwrap();
    add(&store, &["next"]).await;
    store.wait(std::time::Duration::from_secs(60)).await.unwrap();
    let leased = store.lease(&request(5)).await.unwrap();
    assert_eq!(leased.grants.len(), 1);
}

#[tokio::test]
async fn a_line_does_not_grow_by_keys_that_come_and_go() {
    let Some(url) = server::url() else { return };
    let builder = server::fresh(&url);
    let store = builder.clone().open().await.unwrap();
    let names = names();
    let all = some(&names, |_| true);
    add(&store, &["first"]).await;
    for _ in 0..30 {
        add(&store, &all).await;
        store.remove(&keys(&all)).await.unwrap();
    }
    let mut server = server::connection(&url).await;
    let line = server::part(&builder, "r");
    let length: usize =
        redis::cmd("LLEN").arg(line).query_async(&mut server).await.unwrap();
    assert!(length < 2500, "{length} entries for one key");
    assert_eq!(store.stats().await.unwrap().ready, 1);
}
