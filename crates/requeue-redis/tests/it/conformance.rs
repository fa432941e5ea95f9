//! The conformance suite of all stores.

mod one_partition {
    use requeue_redis::RedisStore;
    use requeue_store::EngineClock;

    async fn make(clock: EngineClock) -> Option<RedisStore> {
        let url = crate::support::url()?;
        Some(crate::support::open(&url, &clock).await)
    }

    requeue_store::conformance_tests!(make);
}

mod four_partitions {
    use requeue_redis::RedisStore;
    use requeue_store::EngineClock;

    async fn make(clock: EngineClock) -> Option<RedisStore> {
        let url = crate::support::url()?;
        let builder = crate::support::new_queue(&url).clock(clock).partitions(4);
        Some(builder.open().await.unwrap())
    }

    requeue_store::conformance_tests!(make, partitions);
}

mod cluster_with_eight_partitions {
    use requeue_redis::RedisStore;
    use requeue_store::EngineClock;

    async fn make(clock: EngineClock) -> Option<RedisStore> {
        let url = crate::support::cluster::shared_url().await?;
        let builder = crate::support::new_queue(&url).clock(clock).partitions(8);
        Some(builder.open().await.unwrap())
    }

    requeue_store::conformance_tests!(make, partitions);
}
