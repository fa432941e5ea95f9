//! Queues with data of another version.

use requeue_redis::RedisStoreBuilder;
use requeue_store::{ErrorKind, Hold, Migration, Owner, Phase, RepliesExt, Store, Token};

use crate::support::invariants::check;
use crate::support::server::TestServer;
use crate::support::{self, add, connect, key, keys, lease, new_queue};

/// Writes a queue as version 4 did: a ready key, a leased one, and one of high priority.
async fn write_version_4(own: &TestServer, builder: &RedisStoreBuilder) {
    let name = |end| support::part(builder, end).replacen("rq5:", "rq:", 1);
    let ballast = "-".repeat(1025);
    let since = "1700000000000000";
    for words in [
        vec!["HSET", &name("m"), "version", "4", "partitions", "1", "token", since],
        vec!["HSET", &name("m"), "place", "1", "o:host:7", since, "arrival", since],
        vec!["HSET", &name("k"), &ballast, "", "a", "R.1700000000000000+0000:0:"],
        vec!["HSET", &name("k"), "b", "P.1700000000000000----0:1:+000host:7"],
        vec!["HSET", &name("k"), "c", "R.1700000000000000+0090:0:"],
        vec!["RPUSH", &name("r"), "1700000000000000a"],
        vec!["ZADD", &name("l"), "inf", &ballast, "9999999999999999", "b"],
        vec!["ZADD", &name("p"), "-316659348799487", "c"],
        vec!["ZADD", &name("w"), "0", "1"],
    ] {
        own.command(&words).await;
    }
}

async fn all_data(own: &TestServer) -> Vec<String> {
    let names: Vec<String> =
        redis::from_redis_value(own.command(&["KEYS", "*"]).await).unwrap();
    let mut all = Vec::new();
    for name in names {
        let kind: String =
            redis::from_redis_value(own.command(&["TYPE", &name]).await).unwrap();
        let dump = own.command(&["DUMP", &name]).await;
        all.push(format!("{name} {kind} {dump:?}"));
    }
    all.sort();
    all
}

#[tokio::test]
async fn data_of_version_4_is_refused_until_it_is_migrated() {
    let Some(own) = TestServer::start().await else { return };
    let builder = new_queue(&own.url);
    write_version_4(&own, &builder).await;
    let before = all_data(&own).await;
    for builder in [builder.clone(), builder.clone().must_exist()] {
        let error = builder.open().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Version);
        let text = error.to_string();
        assert!(text.contains("version 4, this program needs version 5"), "{text}");
        assert!(
            text.contains("run `requeue migrate --store redis://127.0.0.1"),
            "{text}"
        );
    }
    let planned = builder.clone().migrate(true).await.unwrap();
    assert_eq!((planned.from, planned.to, planned.applied), (4, 5, false));
    assert_eq!(planned.steps.len(), 1, "{planned:?}");
    assert_eq!(all_data(&own).await, before, "nothing was changed");
    let done = builder.clone().migrate(false).await.unwrap();
    assert_eq!(done, Migration { applied: true, ..planned });
    let again = builder.clone().migrate(false).await.unwrap();
    assert_eq!((again.from, again.to, again.steps.len()), (5, 5, 0));
    check(&mut connect(&own.url).await, &builder, "after the migration").await;
    let store = builder.open().await.unwrap();
    let looks = store.look(&keys(&["a", "b", "c"])).all().await.unwrap();
    assert_eq!((&looks[0].phase, &looks[2].phase), (&Phase::Ready, &Phase::Ready));
    let held = Hold { key: key("b"), token: Token(1_700_000_000_000_000) };
    let owner = Owner::new("host:7");
    let minute = std::time::Duration::from_secs(60);
    let extended = store.extend(&owner, &[held], minute).all().await.unwrap();
    assert_eq!(extended, [true], "leases are kept");
    add(&store, &["d"]).await;
    let leased = lease(&store, 5).await;
    assert_eq!(leased.len(), 3);
    assert!(leased.iter().all(|hold| hold.token > Token(1_700_000_000_000_000)));
}

/// Programs of version 4 that still run must not create a second queue under the old names.
#[tokio::test]
async fn programs_of_version_4_change_nothing_after_the_migration() {
    let Some(own) = TestServer::start().await else { return };
    let builder = new_queue(&own.url);
    write_version_4(&own, &builder).await;
    builder.clone().migrate(false).await.unwrap();
    let mut server = connect(&own.url).await;
    for (end, command) in [("k", "HGET"), ("m", "HGET"), ("r", "LPOP"), ("w", "BZPOPMIN")]
    {
        let name = support::part(&builder, end).replacen("rq5:", "rq:", 1);
        let error = redis::cmd(command).arg(name).arg(1).exec_async(&mut server).await;
        assert_eq!(error.unwrap_err().code(), Some("WRONGTYPE"), "{command}");
    }
}

#[tokio::test]
async fn an_interrupted_migration_can_be_repeated() {
    let Some(own) = TestServer::start().await else { return };
    let builder = new_queue(&own.url);
    write_version_4(&own, &builder).await;
    let meta = support::part(&builder, "m").replacen("rq5:", "rq:", 1);
    own.command(&["HSET", &meta, "partitions", "2"]).await;
    // The second partition was migrated, the first was not.
    let second = meta.replacen(":0}", ":1}", 1).replacen(":m", ":k", 1);
    let new = second.replacen("rq:", "rq5:", 1);
    own.command(&["HSET", &new, "z", "R.1700000000000000+0000:0:"]).await;
    own.command(&["SET", &second, "5"]).await;
    let done = builder.clone().migrate(false).await.unwrap();
    assert_eq!((done.from, done.steps.len(), done.applied), (4, 2, true));
    let store = builder.open().await.unwrap();
    assert_eq!(store.stats().await.unwrap().processing, 1);
}
