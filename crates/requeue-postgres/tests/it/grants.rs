//! Users with the least permissions, as documented.

use std::num::NonZeroU32;
use std::time::Duration;

use requeue::Finish;
use requeue_postgres::PostgresStore;
use requeue_store::{
    Add, Backoff, ErrorKind, FinishRequest, Rate, RepliesExt, Store, TakeRequest, Which,
};
use tokio_postgres::Client;

use crate::tools::{add, block_on, connect, done, key, lease, new_name, request, url};

/// A schema with the documented roles, dropped by `end`.
struct Granted {
    url: String,
    schema: String,
    client: Client,
}

impl Granted {
    async fn create(url: String) -> Self {
        let (schema, client) = (new_name(), connect(&url).await);
        let builder = PostgresStore::builder(&*url).schema(&*schema).queue("q");
        drop(builder.open().await.expect("the store opens"));
        let mut grants = include_str!("../../sql/grants.sql").to_owned();
        for role in ["producer", "worker", "reader"] {
            let create = format!("create role {schema}_{role} login password 'pass'");
            client.batch_execute(&create).await.expect("the role is created");
            grants =
                grants.replace(&format!("to {role}"), &format!("to {schema}_{role}"));
        }
        let grants = grants.replace("schema requeue", &format!("schema {schema}"));
        let grants = grants.replace("requeue.", &format!("{schema}."));
        client.batch_execute(&grants).await.expect("the permissions are granted");
        Self { url, schema, client }
    }

    async fn open(&self, role: &str) -> PostgresStore {
        let (_, place) = self.url.split_once('@').expect("the address has a password");
        let url = format!("postgres://{}_{role}:pass@{place}", self.schema);
        let builder = PostgresStore::builder(url).schema(&*self.schema).queue("q");
        builder.open().await.expect("the role opens the store")
    }

    async fn end(self) {
        let schema = &self.schema;
        let drop = format!(
            "drop schema {schema} cascade;
             drop role {schema}_producer, {schema}_worker, {schema}_reader"
        );
        self.client.batch_execute(&drop).await.expect("everything is dropped");
    }
}

#[test]
fn producer_adds_and_does_nothing_else() {
    let Some(url) = url() else { return };
    block_on(async {
        let granted = Granted::create(url).await;
        let producer = granted.open("producer").await;
        let rate = Rate { interval: Duration::from_secs(1), burst: NonZeroU32::MIN };
        let backoff = Backoff { rate: Some(rate), ..Backoff::default() };
        let adds = [
            add("a"),
            Add { priority: 5, ..add("b") },
            Add { when: requeue_store::When::After(Duration::from_secs(9)), ..add("c") },
            Add { when: requeue_store::When::RateLimited(backoff), ..add("d") },
        ];
        for _ in 0..2 {
            producer.add(&adds).all().await.unwrap();
        }
        producer.wake();
        assert_eq!(producer.stats().await.unwrap().ready, 3);
        let error = producer.lease(&request(1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        drop(producer);
        granted.end().await;
    });
}

#[test]
fn worker_makes_all_calls_but_cannot_change_the_tables() {
    let Some(url) = url() else { return };
    block_on(async {
        let granted = Granted::create(url).await;
        let worker = granted.open("worker").await;
        worker.add(&["a", "b", "c"].map(add)).all().await.unwrap();
        let grants = lease(&worker, 3).await;
        let held: Vec<_> = grants.iter().map(|grant| done(grant).hold).collect();
        let owner = request(1).owner;
        let minute = Duration::from_secs(60);
        assert_eq!(worker.extend(&owner, &held, minute).all().await.unwrap(), [true; 3]);
        worker.heartbeat(&owner).await.unwrap();
        let dead = FinishRequest::new(held[0].clone(), Finish::GiveUp);
        worker.finish(&[dead, done(&grants[1])]).all().await.unwrap();
        assert_eq!(worker.reclaim(&owner, &[]).await.unwrap(), 1);
        assert_eq!(worker.revive(&Which::All).await.unwrap(), 1);
        worker.remove(&[key("a"), key("c")]).all().await.unwrap();
        worker.forget(&[key("a")]).all().await.unwrap();
        worker.expire(None).await.unwrap();
        let rate = Rate { interval: minute, burst: NonZeroU32::MIN };
        let take =
            TakeRequest { limiter: "l".into(), rate, n: 1, max_wait: Duration::ZERO };
        worker.take(&take).await.unwrap();
        worker.pause().await.unwrap();
        worker.resume().await.unwrap();
        worker.wait(Duration::ZERO).await.unwrap();
        assert_eq!(worker.stats().await.unwrap().ready, 0);
        drop(worker);
        let (_, place) = granted.url.split_once('@').unwrap();
        let url = format!("postgres://{}_worker:pass@{place}", granted.schema);
        let plain = connect(&url).await;
        let alter = format!("alter table {}.item add column mine text", granted.schema);
        plain.batch_execute(&alter).await.unwrap_err();
        drop(plain);
        granted.end().await;
    });
}

#[test]
fn reader_only_looks() {
    let Some(url) = url() else { return };
    block_on(async {
        let granted = Granted::create(url).await;
        let worker = granted.open("worker").await;
        worker.add(&["a", "b"].map(add)).all().await.unwrap();
        let grant = lease(&worker, 1).await.remove(0);
        let reader = granted.open("reader").await;
        let stats = reader.stats().await.unwrap();
        assert_eq!((stats.ready, stats.processing), (1, 1));
        assert!(stats.oldest_ready.is_some());
        let look = reader.look(&[grant.key]).all().await.unwrap();
        assert_eq!(look[0].deliveries, 1);
        assert!(reader.failing(9).await.unwrap().is_empty());
        assert!(reader.dead(9).await.unwrap().is_empty());
        assert_eq!(reader.workers().await.unwrap().len(), 1);
        reader.wait(Duration::ZERO).await.unwrap();
        let error = reader.add(&[add("c")]).all().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        let error = reader.lease(&request(1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        drop((reader, worker));
        granted.end().await;
    });
}
