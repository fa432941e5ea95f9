//! Opening a queue, and what can be in the way.

use requeue_redis::RedisStore;
use requeue_store::{Error, ErrorKind, Phase, Store};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::server;

fn told(error: &Error) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    format!("{error} {}", cause.unwrap_or_default())
}

#[tokio::test]
async fn other_partitions_are_refused_with_both_numbers() {
    let Some(url) = server::url() else { return };
    let builder = server::fresh(&url).partitions(4);
    builder.clone().open().await.unwrap();
    builder.clone().open().await.unwrap();
    let error = builder.partitions(2).open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let text = error.to_string();
    assert!(text.contains('4') && text.contains('2'), "{text}");
    assert!(text.contains("open it with 4, or without a number"), "{text}");
}

/// One without a number was opened with 1, and refused for that.
#[tokio::test]
async fn a_queue_is_opened_with_as_many_partitions_as_it_has() {
    let Some(url) = server::url() else { return };
    let builder = server::fresh(&url);
    let made = builder.clone().partitions(4).open().await.unwrap();
    let names: Vec<_> = (0..40).map(|number| format!("k{number}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    server::add(&made, &names).await;
    let opened = builder.open().await.unwrap();
    assert_eq!(opened.stats().await.unwrap().ready, 40);
    let looks = opened.look(&server::keys(&names)).await.unwrap();
    assert!(looks.iter().all(|look| look.phase == Phase::Ready), "{looks:?}");
    assert_eq!(opened.lease(&server::request(100)).await.unwrap().grants.len(), 40);
}

#[tokio::test]
async fn a_new_queue_has_one_partition_unless_told() {
    let Some(url) = server::url() else { return };
    let builder = server::fresh(&url);
    builder.clone().open().await.unwrap();
    builder.clone().partitions(1).open().await.unwrap();
    let error = builder.partitions(2).open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
}

/// A hundred thousand made a queue that took a minute to tell how it stands, for ever.
#[tokio::test]
async fn more_partitions_than_can_be_asked_are_refused() {
    let nowhere = RedisStore::builder("redis://127.0.0.1:1");
    let error = nowhere.clone().partitions(1025).open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let text = error.to_string();
    assert!(text.contains("1025") && text.contains("the most are 1024"), "{text}");
    let error = nowhere.partitions(1024).open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

/// Whoever mistyped a name made a queue, with one partition for ever.
#[tokio::test]
async fn a_queue_that_must_exist_is_not_made() {
    let Some(url) = server::url() else { return };
    let builder = server::fresh(&url);
    let error = builder.clone().must_exist().open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let text = error.to_string();
    assert!(
        text.starts_with("no queue test-") && text.contains(" on redis at "),
        "{text}"
    );
    let mut server = server::connection(&url).await;
    let pattern = server::part(&builder, "*");
    let made: Vec<String> =
        redis::cmd("KEYS").arg(pattern).query_async(&mut server).await.unwrap();
    assert_eq!(made, Vec::<String>::new());
    builder.clone().partitions(3).open().await.unwrap();
    builder.must_exist().open().await.unwrap();
}

#[tokio::test]
async fn a_queue_of_another_version_is_left_alone() {
    let Some(url) = server::url() else { return };
    let builder = server::fresh(&url);
    builder.clone().open().await.unwrap();
    let mut server = server::connection(&url).await;
    for (version, advice) in [(1, "use an older one"), (99, "use a newer one")] {
        let mut other = redis::cmd("HSET");
        other.arg(server::part(&builder, "m")).arg("version").arg(version);
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
    let Some(url) = server::url() else { return };
    let with_password = url.replacen("redis://", "redis://nobody:hunter2@", 1);
    let error = RedisStore::builder(with_password).open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(!told(&error).contains("hunter2"), "{}", told(&error));
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable_and_named() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let url = format!("redis://:hunter2@127.0.0.1:{port}/3");
    let error = RedisStore::builder(url).open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = told(&error);
    assert!(text.contains(&format!("redis at 127.0.0.1:{port}/3")), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
}

#[tokio::test]
async fn an_address_that_makes_no_sense_is_invalid_and_not_shown() {
    let error = RedisStore::builder("hunter2@nowhere").open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(!told(&error).contains("hunter2"), "{}", told(&error));
}

#[tokio::test]
async fn braces_in_the_name_of_a_queue_are_refused() {
    let error = RedisStore::builder("redis://localhost").queue("a{b").open().await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Invalid);
}

/// A server that answers whatever it is asked with its version.
async fn old_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let info = "# Server\r\nredis_version:6.0.16\r\n";
        let info = format!("${}\r\n{info}\r\n", info.len());
        let mut asked = Vec::new();
        let mut buffer = [0; 1024];
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            asked.extend_from_slice(&buffer[..count]);
            let commands = asked.split(|byte| *byte == b'*').count() - 1;
            let is_info = asked.windows(6).any(|word| word == b"\nINFO\r");
            asked.clear();
            let okay = "+OK\r\n".repeat(commands);
            let answer = if is_info { &info } else { &okay };
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    port
}

#[tokio::test]
async fn a_server_that_is_too_old_is_refused_with_its_version() {
    let port = old_server().await;
    let url = format!("redis://127.0.0.1:{port}");
    let error = RedisStore::builder(url).open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Version);
    assert!(error.to_string().contains("6.0.16"), "{error}");
}

#[tokio::test]
async fn a_store_says_where_it_is() {
    let Some(url) = server::url() else { return };
    let store = RedisStore::builder(&url).queue("told").open().await.unwrap();
    let described = store.describe();
    assert!(described.starts_with("redis at "), "{described}");
    assert!(described.ends_with("/0, queue told"), "{described}");
    assert!(format!("{store:?}").contains(&described));
}
