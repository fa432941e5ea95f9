//! The conformance suite of all stores.

use requeue_postgres::PostgresStore;
use requeue_store::EngineClock;

use crate::tools;

async fn make(clock: EngineClock) -> Option<PostgresStore> {
    let builder = PostgresStore::builder(tools::url()?).queue(tools::new_name());
    Some(builder.clock(clock).open().await.expect("the store opens"))
}

requeue_store::conformance_tests!(make);
