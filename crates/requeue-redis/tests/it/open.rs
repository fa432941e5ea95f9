//! Opening a queue.

use requeue_redis::RedisStore;
use requeue_store::{ErrorKind, Phase, RepliesExt, Store};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::{self, connect, error_text, names, new_queue, part, select};

#[tokio::test]
async fn another_number_of_partitions_is_refused() {
    let Some(url) = support::url() else { return };
    let builder = new_queue(&url).partitions(4);
    builder.clone().open().await.unwrap();
    builder.clone().open().await.unwrap();
    let error = builder.partitions(2).open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let text = error.to_string();
    assert!(text.contains("has 4 partitions, not 2"), "{text}");
    assert!(text.contains("open it with 4 or without a number"), "{text}");
}

/// A queue was opened with 1 partition by default, and refused because it had more.
#[tokio::test]
async fn a_queue_is_opened_with_its_number_of_partitions() {
    let Some(url) = support::url() else { return };
    let builder = new_queue(&url);
    let created = builder.clone().partitions(4).open().await.unwrap();
    let names = names(40);
    let names = select(&names, |_| true);
    support::add(&created, &names).await;
    let opened = builder.open().await.unwrap();
    assert_eq!(opened.stats().await.unwrap().ready, 40);
    let looks = opened.look(&support::keys(&names)).all().await.unwrap();
    assert!(looks.iter().all(|look| look.phase == Phase::Ready), "{looks:?}");
    assert_eq!(opened.lease(&support::request(100)).await.unwrap().grants.len(), 40);
}

#[tokio::test]
async fn a_new_queue_has_one_partition_by_default() {
    let Some(url) = support::url() else { return };
    let builder = new_queue(&url);
    builder.clone().open().await.unwrap();
    builder.clone().partitions(1).open().await.unwrap();
    let error = builder.partitions(2).open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
}

/// The statistics of a queue with a hundred thousand partitions took a minute.
#[tokio::test]
async fn more_than_1024_partitions_are_refused() {
    let nowhere = RedisStore::builder("redis://127.0.0.1:1");
    let error = nowhere.clone().partitions(1025).open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let text = error.to_string();
    assert!(text.contains("1025") && text.contains("the maximum is 1024"), "{text}");
    let error = nowhere.partitions(1024).open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

/// A mistyped name created a queue, with one partition forever.
#[tokio::test]
async fn a_queue_that_must_exist_is_not_created() {
    let Some(url) = support::url() else { return };
    let builder = new_queue(&url);
    let error = builder.clone().must_exist().open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let text = error.to_string();
    assert!(
        text.starts_with("queue \"test-") && text.contains("not exist on redis at "),
        "{text}"
    );
    let mut server = connect(&url).await;
    let pattern = part(&builder, "*");
    let created: Vec<String> =
        redis::cmd("KEYS").arg(pattern).query_async(&mut server).await.unwrap();
    assert_eq!(created, Vec::<String>::new());
    builder.clone().partitions(3).open().await.unwrap();
    builder.must_exist().open().await.unwrap();
}

#[tokio::test]
async fn a_queue_of_another_version_is_left_alone() {
    let Some(url) = support::url() else { return };
    let builder = new_queue(&url);
    builder.clone().open().await.unwrap();
    let mut server = connect(&url).await;
    for (version, advice) in [(3, "use an older program"), (99, "use the newer program")]
    {
        let mut other = redis::cmd("HSET");
        other.arg(part(&builder, "m")).arg("version").arg(version);
        other.exec_async(&mut server).await.unwrap();
        let error = builder.clone().open().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Version);
        let text = error.to_string();
        assert!(text.contains(&format!("version {version},")), "{text}");
        assert!(text.contains(advice), "{text}");
    }
}

#[tokio::test]
async fn a_wrong_password_is_denied_and_not_shown() {
    let Some(url) = support::url() else { return };
    let with_password = url.replacen("redis://", "redis://unknown:hunter2@", 1);
    let error = RedisStore::builder(with_password).open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(!error_text(&error).contains("hunter2"), "{}", error_text(&error));
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
}

#[tokio::test]
async fn an_unreachable_server_is_unavailable_and_named() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let url = format!("redis://:hunter2@127.0.0.1:{port}/3");
    let error = RedisStore::builder(url).open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error_text(&error);
    assert!(text.contains(&format!("redis at 127.0.0.1:{port}/3")), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
}

#[tokio::test]
async fn an_invalid_address_is_not_shown() {
    let error = RedisStore::builder("hunter2@nowhere").open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(!error_text(&error).contains("hunter2"), "{}", error_text(&error));
}

#[tokio::test]
async fn queue_names_with_braces_are_refused() {
    let error = RedisStore::builder("redis://localhost").queue("a{b").open().await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Invalid);
}

/// Starts a server that only answers INFO, with an old version.
async fn old_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let info = "# Server\r\nredis_version:6.0.16\r\n";
        let info = format!("${}\r\n{info}\r\n", info.len());
        let mut received = Vec::new();
        let mut buffer = [0; 1024];
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            received.extend_from_slice(&buffer[..count]);
            let commands = received.split(|byte| *byte == b'*').count() - 1;
            let is_info = received.windows(6).any(|word| word == b"\nINFO\r");
            received.clear();
            let okay = "+OK\r\n".repeat(commands);
            let answer = if is_info { &info } else { &okay };
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    port
}

#[tokio::test]
async fn a_server_that_is_too_old_is_refused() {
    let port = old_server().await;
    let url = format!("redis://127.0.0.1:{port}");
    let error = RedisStore::builder(url).open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Version);
    assert!(error.to_string().contains("6.0.16"), "{error}");
}

#[tokio::test]
async fn a_store_is_described_by_server_and_queue() {
    let Some(url) = support::url() else { return };
    let store = RedisStore::builder(&url).queue("described").open().await.unwrap();
    let described = store.describe();
    assert!(described.starts_with("redis at "), "{described}");
    assert!(described.ends_with("/0, queue described"), "{described}");
    assert!(format!("{store:?}").contains(&described));
}
