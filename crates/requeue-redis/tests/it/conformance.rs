//! The suite of all stores.

mod one_partition {
    use requeue_redis::RedisStore;
    use requeue_store::EngineClock;

    async fn make(clock: EngineClock) -> Option<RedisStore> {
        let url = crate::server::url()?;
        Some(crate::server::open(&url, &clock).await)
    }

    requeue_store::conformance_tests!(make);
}

mod four_partitions {
    use requeue_redis::RedisStore;
    use requeue_store::EngineClock;

    async fn make(clock: EngineClock) -> Option<RedisStore> {
        let url = crate::server::url()?;
        let builder = crate::server::fresh(&url).clock(clock).partitions(4);
        Some(builder.open().await.unwrap())
    }

    requeue_store::conformance_tests!(make, partitions);
}

mod eight_partitions_of_a_cluster {
    use requeue_redis::RedisStore;
    use requeue_store::EngineClock;

    async fn make(clock: EngineClock) -> Option<RedisStore> {
        let url = crate::nodes::shared_url().await?;
        let builder = crate::server::fresh(&url).clock(clock).partitions(8);
        Some(builder.open().await.unwrap())
    }

    requeue_store::conformance_tests!(make, partitions);
}
