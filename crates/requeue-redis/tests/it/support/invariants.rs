//! Checks the invariants of the data in Redis, see `PARTS` in `script.rs`.

use std::collections::{HashMap, HashSet};

use redis::FromRedisValue;
use redis::aio::MultiplexedConnection;
use requeue_redis::RedisStoreBuilder;

use super::part;

type Names = HashSet<String>;

/// The data of one partition.
struct Data {
    records: HashMap<String, String>,
    ready: Vec<String>,
    ranked: Names,
    leases: Names,
    delays: Names,
    errors: Names,
    dead: Names,
    meta: HashMap<String, String>,
}

/// Checks all invariants of the first partition of a queue.
pub(crate) async fn check(
    server: &mut MultiplexedConnection,
    queue: &RedisStoreBuilder,
    context: &str,
) {
    let data = Data::read(server, queue).await;
    let with = |filter: fn(&Record<'_>) -> bool| data.keys_with(filter);
    assert_eq!(data.leases, with(|record| "PD".contains(record.phase)), "{context}");
    assert_eq!(data.delays, with(|record| record.is_delayed), "{context}");
    assert_eq!(data.dead, with(|record| record.phase == 'X'), "{context}");
    assert_eq!(data.ranked, with(is_ranked), "{context}");
    let has_error = |record: &Record<'_>| record.failures > 0 || record.phase == 'X';
    assert_eq!(data.errors, with(has_error), "{context}");
    let dirty = with(|record| record.phase == 'D').len();
    assert_eq!(data.number("dirty"), dirty, "{context}");
    data.check_ready(context);
    for text in data.records.values() {
        Record::parse(text).check(text, context);
    }
}

impl Data {
    async fn read(server: &mut MultiplexedConnection, queue: &RedisStoreBuilder) -> Self {
        let is_key = |name: &String| name.len() <= 1024; // the ballast is longer
        let mut records: HashMap<String, String> =
            query(server, "HGETALL", part(queue, "k"), &[]).await;
        records.retain(|name, _| is_key(name));
        let all = &["0", "-1"][..];
        let mut leases: Names = query(server, "ZRANGE", part(queue, "l"), all).await;
        leases.retain(is_key);
        Self {
            records,
            ready: {
                let compacted = query(server, "LRANGE", part(queue, "c"), all).await;
                let ready: Vec<String> =
                    query(server, "LRANGE", part(queue, "r"), all).await;
                [compacted, ready].concat()
            },
            ranked: query(server, "ZRANGE", part(queue, "p"), all).await,
            leases,
            delays: query(server, "ZRANGE", part(queue, "d"), all).await,
            errors: query(server, "HKEYS", part(queue, "e"), &[]).await,
            dead: query(server, "ZRANGE", part(queue, "x"), all).await,
            meta: query(server, "HGETALL", part(queue, "m"), &[]).await,
        }
    }

    fn keys_with(&self, filter: impl Fn(&Record<'_>) -> bool) -> Names {
        let records = self.records.iter();
        let matching = records.filter(|(_, text)| filter(&Record::parse(text)));
        matching.map(|(name, _)| name.clone()).collect()
    }

    fn number(&self, field: &str) -> usize {
        let digits = self.meta.get(field).map(|text| text.trim_end_matches('c'));
        digits.map_or(0, |digits| digits.parse().unwrap())
    }

    /// Invariant 3.
    fn check_ready(&self, context: &str) {
        let is_listed = |record: &Record<'_>| record.phase == 'R' && !is_ranked(record);
        let mut missing = self.keys_with(is_listed);
        let is_empty = missing.is_empty();
        let mut stale = 0;
        for entry in &self.ready {
            let (since, name) = entry.split_at(16);
            let record = self.records.get(name).map(|text| Record::parse(text));
            let is_live =
                record.is_some_and(|record| is_listed(&record) && record.time == since);
            if !is_live || !missing.remove(name) {
                stale += 1;
            }
        }
        assert!(missing.is_empty(), "not in the list: {missing:?}, {context}");
        assert_eq!(self.number("stale"), stale, "{context}");
        assert_eq!(self.ready.is_empty(), is_empty, "{context}");
    }
}

/// What the check needs of a record.
struct Record<'a> {
    phase: char,
    is_delayed: bool,
    time: &'a str,
    priority: &'a str,
    failures: u32,
}

impl<'a> Record<'a> {
    fn parse(text: &'a str) -> Self {
        Self {
            phase: text.chars().next().unwrap(),
            is_delayed: &text[1..2] == "*",
            time: &text[2..18],
            priority: &text[18..22],
            failures: text[22..].split(':').next().unwrap().parse().unwrap(),
        }
    }

    /// Invariants 1, 4 and 5.
    fn check(&self, text: &str, context: &str) {
        let is_pending = self.is_delayed || "RD".contains(self.phase);
        assert_eq!(self.priority != "----", is_pending, "{text}, {context}");
        let says_something = self.is_delayed || self.failures > 0 || self.phase != 'A';
        assert!(says_something, "{text}, {context}");
        assert!(self.phase != 'X' || !self.is_delayed, "{text}, {context}");
    }
}

fn is_ranked(record: &Record<'_>) -> bool {
    record.phase == 'R' && record.priority != "+000"
}

async fn query<T: FromRedisValue>(
    server: &mut MultiplexedConnection,
    command: &str,
    name: String,
    args: &[&str],
) -> T {
    redis::cmd(command).arg(name).arg(args).query_async(server).await.unwrap()
}
