//! Which commits wait for the disk.

use requeue::Finish;
use requeue_postgres::{Durability, PostgresStore};
use requeue_store::{FinishRequest, Hold, RepliesExt, Store, Which};
use tokio_postgres::Client;

use crate::tools::{add, block_on, connect, done, key, lease, new_name, request, url};

/// Records `synchronous_commit` of every commit that changes a key or a queue. Deferred
/// triggers run right before the commit.
const WATCH: &str = "
    create table S.noted (setting text);
    create function S.note() returns trigger language plpgsql as $$
    begin
        insert into S.noted values (current_setting('synchronous_commit'));
        return null;
    end $$;
    create constraint trigger note after insert or update or delete on S.item
    deferrable initially deferred for each row execute function S.note();
    create constraint trigger note after update on S.queue
    deferrable initially deferred for each row when (new.paused <> old.paused)
    execute function S.note();";

const ANSWERED: &str = "the call succeeds";

struct Watched {
    store: PostgresStore,
    client: Client,
    schema: String,
}

impl Watched {
    async fn open(url: &str, durability: Durability) -> Self {
        let schema = new_name();
        let builder = PostgresStore::builder(url).schema(&*schema).durability(durability);
        let store = builder.open().await.expect("the store opens");
        let client = connect(url).await;
        let watch = WATCH.replace("S.", &format!("{schema}."));
        client.batch_execute(&watch).await.expect("the triggers are created");
        Self { store, client, schema }
    }

    /// Returns the distinct settings of the commits since the last call.
    async fn noted(&self) -> Vec<String> {
        let text = format!(
            "with gone as (delete from {}.noted returning setting)
             select distinct setting from gone",
            self.schema
        );
        let rows =
            self.client.query(&text, &[]).await.expect("the settings are recorded");
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Returns the settings of calls that must last, and those of leases and finishes.
    async fn both(&self) -> [Vec<String>; 2] {
        let store = &self.store;
        store.add(&[add("a"), add("b"), add("c")]).all().await.expect(ANSWERED);
        store.remove(&[key("c")]).all().await.expect(ANSWERED);
        store.pause().await.expect(ANSWERED);
        store.resume().await.expect(ANSWERED);
        let mut asked = self.noted().await;

        let grants = lease(store, 2).await;
        let holds: Vec<_> = grants.iter().map(|grant| done(grant).hold).collect();
        let request = request(1);
        let extended = store
            .extend(&request.owner, &holds, request.lease)
            .all()
            .await
            .expect(ANSWERED);
        assert_eq!(extended, [true, true]);
        assert_eq!(store.reclaim(&request.owner, &holds[..1]).await.expect(ANSWERED), 1);
        let again = lease(store, 1).await;
        store.finish(&[done(&again[0])]).all().await.expect(ANSWERED);
        store.finish(&[bury(&holds[0])]).all().await.expect(ANSWERED);
        let others = self.noted().await;

        assert_eq!(store.revive(&Which::All).await.expect(ANSWERED), 1);
        asked.extend(self.noted().await);
        asked.dedup();
        let drop = format!("drop schema {} cascade", self.schema);
        self.client.batch_execute(&drop).await.expect(ANSWERED);
        [asked, others]
    }
}

fn bury(hold: &Hold) -> FinishRequest {
    FinishRequest::new(hold.clone(), Finish::GiveUp).with_error("no use")
}

fn waits_for(durability: Durability, asked: &str, others: &str) {
    let Some(url) = url() else { return };
    let noted = block_on(async { Watched::open(&url, durability).await.both().await });
    assert_eq!(noted, [[asked.to_owned()], [others.to_owned()]]);
}

#[test]
fn all_commits_follow_the_server_by_default() {
    waits_for(Durability::Server, "on", "on");
}

#[test]
fn leases_and_finishes_do_not_wait_with_durable_adds() {
    waits_for(Durability::Adds, "on", "off");
}

#[test]
fn no_commit_waits_if_relaxed() {
    waits_for(Durability::Relaxed, "off", "off");
}
