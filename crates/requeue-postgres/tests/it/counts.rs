//! The counts of a queue are sums of changes. They must equal the number of keys.

use std::num::NonZeroU32;
use std::time::Duration;

use requeue::Finish;
use requeue_postgres::PostgresStore;
use requeue_store::{
    Add, Backoff, EngineClock, FinishRequest, LeaseRequest, RepliesExt, Stats, Store,
    When, Which,
};

use crate::tools::{
    Bench, add, connect, done, finish, key, lease, new_name, patiently, request, run,
};

/// Counts the keys one by one.
async fn counted(bench: &Bench) -> Stats {
    let text = "select
            count(*) filter (where state = 1), count(delayed_until),
            count(*) filter (where state = 2), count(*) filter (where state = 2 and dirty),
            count(*) filter (where failures > 0 and state <> 3),
            count(*) filter (where state = 3)
        from requeue.item where queue = $1";
    let row = bench.client.query_one(text, &[&bench.queue_id().await]).await;
    let row = row.expect("the keys are counted");
    let count =
        |column| u64::try_from(row.get::<_, i64>(column)).expect("no count is negative");
    Stats {
        ready: count(0),
        delayed: count(1),
        processing: count(2),
        dirty: count(3),
        failing: count(4),
        dead: count(5),
        ..Stats::default()
    }
}

async fn assert_counts(bench: &Bench, what: &str) {
    let stats = bench.store.stats().await.expect("the store answers");
    let stats = Stats { oldest_ready: None, paused: false, ..stats };
    assert_eq!(stats, counted(bench).await, "after {what}");
}

#[test]
fn counts_are_right_after_each_kind_of_call() {
    run(|bench| async move {
        let store = &bench.store;
        let minute = Duration::from_secs(60);
        let later = |name| Add { when: When::After(minute), ..add(name) };
        let failed =
            |name| Add { when: When::RateLimited(Backoff::default()), ..add(name) };
        let names: Vec<_> = (0..20).map(|n| format!("k{n:02}")).collect();
        let all: Vec<_> = names.iter().map(|name| add(name)).collect();
        store.add(&all).all().await.unwrap();
        assert_counts(&bench, "new keys").await;
        store
            .add(&[later("k00"), later("x"), failed("k01"), failed("y")])
            .all()
            .await
            .unwrap();
        assert_counts(&bench, "delays of known and new keys").await;
        store.add(&[later("x"), add("x"), add("y"), add("k00")]).all().await.unwrap();
        assert_counts(&bench, "adds of delayed keys").await;
        let grants = lease(store, 12).await;
        assert_counts(&bench, "a lease").await;
        store.add(&all).all().await.unwrap();
        store.add(&[later("k02"), later("k03"), failed("k04")]).all().await.unwrap();
        assert_counts(&bench, "adds of processing keys").await;
        let ways = [
            Finish::Succeed,
            Finish::Retry,
            Finish::GiveUp,
            Finish::Release,
            Finish::Done,
            Finish::RequeueAfter(minute),
            Finish::RetryAfter(minute),
        ];
        let finishes: Vec<_> = grants
            .iter()
            .zip(ways.iter().cycle())
            .take(10)
            .map(|(grant, &how)| FinishRequest::new(done(grant).hold, how))
            .collect();
        store.finish(&finishes).all().await.unwrap();
        assert_counts(&bench, "finishes of dirty keys").await;
        assert_eq!(store.reclaim(&request(1).owner, &[]).await.unwrap(), 2);
        assert_counts(&bench, "a reclaim").await;
        for how in ways {
            let ends: Vec<_> = lease(store, 3)
                .await
                .iter()
                .map(|grant| FinishRequest::new(done(grant).hold, how))
                .collect();
            store.finish(&ends).all().await.unwrap();
            assert_counts(&bench, &format!("{how:?}")).await;
        }
        store.forget(&names.iter().map(|name| key(name)).collect::<Vec<_>>()).await;
        assert_counts(&bench, "forgetting").await;
        store.add(&[add("k05"), later("k06"), failed("k07")]).all().await.unwrap();
        assert_counts(&bench, "adds of dead keys").await;
        store.revive(&Which::Keys(vec![key("k08"), key("k09")])).await.unwrap();
        assert_counts(&bench, "a revival").await;
        store.drop_dead(&Which::All).await.unwrap();
        assert_counts(&bench, "dropping dead keys").await;
        store.remove(&names.iter().map(|name| key(name)).collect::<Vec<_>>()).await;
        assert_counts(&bench, "removing").await;
    });
}

#[test]
fn counts_are_right_after_leases_expire() {
    run(|bench| async move {
        let clock = EngineClock::new();
        let builder = PostgresStore::builder(&*bench.url).queue(&*bench.queue);
        let store = builder.clock(clock.clone()).open().await.unwrap();
        store.add(&["a", "b", "c", "d"].map(add)).all().await.unwrap();
        let short = LeaseRequest { max_deliveries: NonZeroU32::new(1), ..request(4) };
        assert_eq!(store.lease(&short).await.unwrap().grants.len(), 4);
        let delay = When::After(Duration::from_secs(100));
        let adds = [add("a"), Add { when: delay, ..add("b") }];
        store.add(&adds).all().await.unwrap();
        clock.advance(Duration::from_secs(61));
        let expired = store.expire(short.max_deliveries).await.unwrap();
        assert_eq!((expired.returned, expired.dead), (1, 3));
        let stats = store.stats().await.unwrap();
        let counted = counted(&bench).await;
        assert_eq!(stats, Stats { oldest_ready: None, paused: false, ..counted });
        assert_eq!((stats.delayed, stats.dead, stats.processing), (1, 3, 0));
    });
}

/// Changes are replaced by their sum while other calls add more.
#[test]
fn counts_are_right_after_concurrent_calls() {
    run(|bench| async move {
        let fold = "select requeue.fold_counts($1)";
        let tasks: Vec<_> = (0..4)
            .map(|task| {
                let store = bench.store.clone();
                tokio::spawn(async move {
                    for round in 0..30 {
                        let adds: Vec<_> = (0..10)
                            .map(|n| add(&format!("{}", (task * 7 + round + n) % 40)))
                            .collect();
                        patiently(|| store.add(&adds).all()).await;
                        let ends: Vec<_> =
                            lease(&store, 7).await.iter().map(done).collect();
                        finish(&store, &ends).await;
                    }
                })
            })
            .collect();
        let queue = bench.queue_id().await;
        for task in tasks {
            while !task.is_finished() {
                bench.client.execute(fold, &[&queue]).await.unwrap();
            }
            task.await.unwrap();
        }
        assert_counts(&bench, "concurrent calls").await;
        bench.client.execute(fold, &[&queue]).await.unwrap();
        assert_counts(&bench, "folding").await;
        let rows = "select count(*) from requeue.count_change where queue = $1";
        let rows: i64 = bench.client.query_one(rows, &[&queue]).await.unwrap().get(0);
        assert_eq!(rows, 1);
    });
}

/// `stats` counted all keys, 0.3 s for a million.
#[test]
fn stats_read_no_more_with_many_keys() {
    run(|bench| async move {
        let schema = new_name();
        let builder = PostgresStore::builder(&*bench.url).schema(&*schema);
        let store = builder.open().await.unwrap();
        let client = connect(&bench.url).await;
        let fill = format!(
            "insert into {schema}.item (queue, key, seq, state, since)
             select 1, int4send(n), n, 1, n from generate_series(1, 20000) n;
             select {schema}.recount()"
        );
        client.batch_execute(&fill).await.unwrap();
        assert_eq!(store.stats().await.unwrap().ready, 20_000);
        // The server also counts what this connection has read before.
        let client = connect(&bench.url).await;
        let read = format!(
            "select coalesce(sum(idx_tup_fetch + seq_tup_read), 0)::bigint
             from pg_stat_xact_user_tables where schemaname = '{schema}'"
        );
        let stats = format!(
            "set enable_seqscan = off; set enable_bitmapscan = off;
             begin; select {schema}.stats(1, null)"
        );
        client.batch_execute(&stats).await.unwrap();
        let rows: i64 = client.query_one(&read, &[]).await.unwrap().get(0);
        client.batch_execute("rollback").await.unwrap();
        assert!(rows < 50, "{rows} rows were read");
        drop(store);
        client.batch_execute(&format!("drop schema {schema} cascade")).await.unwrap();
    });
}

/// All dead keys were revived in one statement, which takes longer the more there are.
#[test]
fn thousands_of_dead_keys_are_revived_and_dropped_in_parts() {
    run(|bench| async move {
        let fill = "insert into requeue.item (queue, key, seq, state, since, reason)
            select $1, int4send(n), n, 3, n, 'no use' from generate_series(1, 2500) n";
        let queue = bench.queue_id().await;
        bench.client.execute(fill, &[&queue]).await.unwrap();
        let change = "insert into requeue.count_change values ($1, 0, 0, 0, 0, 0, 2500)";
        bench.client.execute(change, &[&queue]).await.unwrap();
        assert_eq!(bench.store.revive(&Which::All).await.unwrap(), 2500);
        assert_counts(&bench, "a revival of all").await;
        let order: Vec<_> =
            lease(&bench.store, 3).await.into_iter().map(|g| g.key).collect();
        let expected =
            [1_u32, 2, 3].map(|n| requeue_store::Key::new(n.to_be_bytes()).unwrap());
        assert_eq!(order, expected, "the longest dead come first");

        let kill = "update requeue.item set state = 3, reason = 'no use' where queue = $1
            and state = 1";
        let dead = bench.client.execute(kill, &[&queue]).await.unwrap();
        bench.client.batch_execute("select requeue.recount()").await.unwrap();
        assert_eq!(bench.store.drop_dead(&Which::All).await.unwrap(), dead);
        assert_counts(&bench, "dropping all").await;
    });
}
