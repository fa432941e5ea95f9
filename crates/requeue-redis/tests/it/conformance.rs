//! The conformance suite of all stores.

use requeue_redis::{RedisStore, RedisStoreBuilder};

/// Opens a queue twice, as two processes do.
async fn two_handles(builder: RedisStoreBuilder) -> (RedisStore, RedisStore) {
    (builder.clone().open().await.unwrap(), builder.open().await.unwrap())
}

mod one_partition {
    use requeue_redis::RedisStore;
    use requeue_store::EngineClock;

    async fn make(clock: EngineClock) -> Option<(RedisStore, RedisStore)> {
        let url = crate::support::url()?;
        Some(super::two_handles(crate::support::new_queue(&url).clock(clock)).await)
    }

    requeue_store::conformance_tests!(make);
}

mod four_partitions {
    use requeue_redis::RedisStore;
    use requeue_store::EngineClock;

    async fn make(clock: EngineClock) -> Option<(RedisStore, RedisStore)> {
        let url = crate::support::url()?;
        let builder = crate::support::new_queue(&url).clock(clock).partitions(4);
        Some(super::two_handles(builder).await)
    }

    requeue_store::conformance_tests!(make, partitions);
}

mod cluster_with_eight_partitions {
    use requeue_redis::RedisStore;
    use requeue_store::EngineClock;

    async fn make(clock: EngineClock) -> Option<(RedisStore, RedisStore)> {
        let url = crate::support::cluster::shared_url().await?;
        let builder = crate::support::new_queue(&url).clock(clock).partitions(8);
        Some(super::two_handles(builder).await)
    }

    requeue_store::conformance_tests!(make, partitions);
}
