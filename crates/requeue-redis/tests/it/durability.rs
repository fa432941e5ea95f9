//! Adds that wait for replicas or disks.

use std::time::Duration;

use requeue_redis::Durability;
use requeue_store::{ErrorKind, RepliesExt, Store};

use crate::support::server::TestServer;
use crate::support::{add, adds, new_queue};

const MINUTE: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(100);

#[tokio::test]
async fn an_add_waits_for_replicas() {
    let Some(primary) = TestServer::start().await else { return };
    let Some(replica) = TestServer::start().await else { return };
    replica.replicate(&primary).await;
    let builder = new_queue(&primary.url);
    let patient = Durability::Replicas { count: 1, within: MINUTE };
    let patient = builder.clone().durability(patient).open().await.unwrap();
    add(&patient, &["a"]).await;
    add(&patient, &["b", "c"]).await;
    let impatient = Durability::Replicas { count: 1, within: SHORT };
    let impatient = builder.durability(impatient).open().await.unwrap();
    replica.signal("STOP");
    for names in [&["d"][..], &["e", "f"]] {
        let results = impatient.add(&adds(names)).await;
        assert_eq!(results.len(), names.len());
        for result in results {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
            assert!(error.to_string().contains("0 of 1 replicas"), "{error}");
        }
    }
    // Other calls do not wait, and are not delayed by adds that do.
    let waiting = tokio::spawn(async move { patient.add(&adds(&["g"])).all().await });
    while impatient.stats().await.unwrap().ready < 7 {}
    replica.signal("CONT");
    waiting.await.unwrap().unwrap();
}

/// A server forgets its scripts. The repeated call is confirmed as well.
#[tokio::test]
async fn an_add_with_a_missing_script_waits_for_replicas() {
    let Some(primary) = TestServer::start().await else { return };
    let durability = Durability::Replicas { count: 1, within: SHORT };
    let builder = new_queue(&primary.url).durability(durability);
    let store = builder.open().await.unwrap();
    let error = store.add(&adds(&["a", "b"])).all().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
    assert_eq!(store.stats().await.unwrap().ready, 2);
}

#[tokio::test]
async fn an_add_waits_for_the_disk() {
    let folder = format!("requeue-durability-{}", std::process::id());
    let folder = std::env::temp_dir().join(folder);
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.to_str().unwrap();
    let Some(own) = TestServer::start_with(&["--dir", path, "--appendonly", "yes"]).await
    else {
        return;
    };
    let disk = |replicas, within| Durability::Disk { replicas, within };
    let builder = new_queue(&own.url);
    let opened = builder.clone().durability(disk(0, MINUTE)).open().await;
    if let Err(error) = &opened {
        // Debian's server is older than WAITAOF.
        assert_eq!(error.kind(), ErrorKind::Version, "{error}");
        assert!(error.to_string().contains("at least 7.2"), "{error}");
    } else {
        add(&opened.unwrap(), &["a"]).await;
        let store = builder.durability(disk(1, SHORT)).open().await.unwrap();
        let error = store.add(&adds(&["b"])).all().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
    }
    drop(own);
    std::fs::remove_dir_all(&folder).unwrap();
}
