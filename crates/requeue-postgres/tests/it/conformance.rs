//! The conformance suite of all stores.

use requeue_postgres::PostgresStore;
use requeue_store::EngineClock;

use crate::tools;

/// Opens a queue twice, as two processes do.
async fn make(clock: EngineClock) -> Option<(PostgresStore, PostgresStore)> {
    let (url, name) = (tools::url()?, tools::new_name());
    let open = async || {
        let builder = PostgresStore::builder(url.clone()).queue(name.clone());
        builder.clock(clock.clone()).open().await.expect("the store opens")
    };
    Some((open().await, open().await))
}

requeue_store::conformance_tests!(make);
