//! Metrics of a `SharedQueue`.

use requeue::metrics::Prometheus;
use requeue_store::{Add, Key, Receipt, RepliesExt, Store, When};

use super::spy::Fault;
use super::*;

/// Creates a bench whose queue has metrics.
fn measured() -> (Bench, Prometheus) {
    let prometheus = Prometheus::with_bounds([1.0]);
    let Bench { spy, local, engine, .. } = Bench::new();
    let queue = SharedQueue::builder(spy.clone())
        .name("mail")
        .lease(LEASE)
        .clock(local.clone())
        .metrics(prometheus.clone())
        .build();
    (Bench { queue, spy, local, engine }, prometheus)
}

/// Returns the samples of a page, without comments.
fn samples(prometheus: &Prometheus) -> String {
    let page = prometheus.encode();
    let lines = page.split_inclusive('\n').filter(|line| !line.starts_with('#'));
    lines.collect::<String>().replace("name=\"mail\"", "")
}

#[tokio::test]
async fn short_history_is_measured_exactly() {
    let _limit = Limit::start();
    let (bench, prometheus) = measured();
    let queue = &bench.queue;
    bench.add("a").await;
    bench.add("a").await;
    bench.add("b").await;
    queue.add_after("c".to_owned(), 60 * SECOND).await.unwrap();
    let a = queue.get().await.unwrap().unwrap();
    bench.pass(2 * SECOND);
    bench.add("a").await;
    a.succeed().await.unwrap();
    let b = queue.get().await.unwrap().unwrap();
    b.with_error("no route").retry().await.unwrap();
    let _a = queue.get().await.unwrap().unwrap();
    bench.pass(3 * SECOND);
    queue.stats().await.unwrap();
    bench.pass(SECOND);
    queue.stats().await.unwrap();
    let wanted = "\
        requeue_dead{} 0\n\
        requeue_delayed{} 1\n\
        requeue_dirty{} 0\n\
        requeue_failing{} 1\n\
        requeue_oldest_ready_seconds{} 1\n\
        requeue_panics_total{} 0\n\
        requeue_parked{} 0\n\
        requeue_paused{} 0\n\
        requeue_processing{} 1\n\
        requeue_ready{} 1\n\
        workqueue_adds_total{} 5\n\
        workqueue_depth{} 1\n\
        workqueue_longest_running_processor_seconds{} 4\n\
        workqueue_queue_duration_seconds_bucket{,le=\"1\"} 2\n\
        workqueue_queue_duration_seconds_bucket{,le=\"+Inf\"} 3\n\
        workqueue_queue_duration_seconds_sum{} 2\n\
        workqueue_queue_duration_seconds_count{} 3\n\
        workqueue_retries_total{} 2\n\
        workqueue_unfinished_work_seconds{} 4\n\
        workqueue_work_duration_seconds_bucket{,le=\"1\"} 1\n\
        workqueue_work_duration_seconds_bucket{,le=\"+Inf\"} 2\n\
        workqueue_work_duration_seconds_sum{} 2\n\
        workqueue_work_duration_seconds_count{} 2\n";
    assert_eq!(samples(&prometheus), wanted);
}

#[tokio::test]
async fn measuring_never_calls_the_store() {
    let _limit = Limit::start();
    let (bench, prometheus) = measured();
    bench.add("a").await;
    assert!(
        !samples(&prometheus).contains("workqueue_depth"),
        "stats were not called yet"
    );
    bench.queue.stats().await.unwrap();
    bench.add("b").await;
    assert!(samples(&prometheus).contains("workqueue_depth{} 1\n"), "the last stats");
    bench.queue.stats().await.unwrap();
    assert!(samples(&prometheus).contains("workqueue_depth{} 2\n"));
    assert_eq!(bench.spy.calls("stats").len(), 2);
}

#[tokio::test]
async fn gauges_are_omitted_after_failed_stats() {
    let _limit = Limit::start();
    let (bench, prometheus) = measured();
    bench.queue.stats().await.unwrap();
    bench.spy.fail("stats", Fault::Unreachable);
    bench.queue.stats().await.unwrap_err();
    let samples = samples(&prometheus);
    assert!(!samples.contains("workqueue_depth"), "{samples}");
    assert!(samples.contains("requeue_parked{} 0\n"), "{samples}");
}

#[tokio::test]
async fn waiting_getters_and_running_keys_are_measured() {
    let _limit = Limit::start();
    let (bench, prometheus) = measured();
    let waiting = tokio::spawn(bench.queue.get());
    let gone = start(bench.queue.get());
    settle().await;
    drop(gone);
    assert!(samples(&prometheus).contains("requeue_parked{} 1\n"));
    bench.add("a").await;
    let lease = waiting.await.unwrap().unwrap().unwrap();
    bench.add("b").await;
    bench.pass(SECOND);
    let other = bench.queue.get().await.unwrap().unwrap();
    bench.pass(SECOND);
    let page = samples(&prometheus);
    assert!(page.contains("requeue_parked{} 0\n"), "{page}");
    assert!(page.contains("workqueue_longest_running_processor_seconds{} 2\n"), "{page}");
    assert!(page.contains("workqueue_unfinished_work_seconds{} 3\n"), "{page}");
    drop((lease, other));
    let page = samples(&prometheus);
    assert!(page.contains("workqueue_unfinished_work_seconds{} 0\n"), "{page}");
    assert!(page.contains("workqueue_work_duration_seconds_sum{} 3\n"), "{page}");
}

#[tokio::test]
async fn undelivered_key_is_not_measured_as_a_run() {
    let _limit = Limit::start();
    let (bench, prometheus) = measured();
    bench.add("a").await;
    let get = start(bench.queue.get());
    settle().await;
    drop(get);
    settle().await;
    let page = samples(&prometheus);
    assert!(page.contains("workqueue_work_duration_seconds_count{} 0\n"), "{page}");
    assert!(page.contains("workqueue_queue_duration_seconds_count{} 0\n"), "{page}");
}

#[tokio::test]
async fn lease_dropped_by_a_panic_is_counted() {
    let _limit = Limit::start();
    let (bench, prometheus) = measured();
    bench.add("a").await;
    let lease = bench.queue.get().await.unwrap().unwrap();
    let run = tokio::spawn(async move {
        let _lease = lease;
        panic!("on purpose");
    });
    run.await.unwrap_err();
    bench.queue.shutdown().await;
    let page = samples(&prometheus);
    assert!(page.contains("requeue_panics_total{} 1\n"), "{page}");
    assert!(page.contains("workqueue_retries_total{} 1\n"), "{page}");
}

#[tokio::test]
async fn direct_adds_can_be_counted() {
    let _limit = Limit::start();
    let (bench, prometheus) = measured();
    let add = |key: &'static str, when| {
        let key = Key::new(key.as_bytes()).unwrap();
        Add { revive_after: Duration::ZERO, ..Add::new(key, when) }
    };
    let adds = [add("a", When::Now), add("a", When::Now), add("b", When::After(SECOND))];
    let receipts: Vec<Receipt> = bench.spy.add(&adds).all().await.unwrap();
    bench.queue.count_added(&adds, &receipts);
    let page = samples(&prometheus);
    assert!(page.contains("workqueue_adds_total{} 2\n"), "{page}");
    assert!(page.contains("workqueue_retries_total{} 1\n"), "{page}");
}

#[tokio::test]
async fn gauges_end_with_the_queue_and_counters_stay() {
    let _limit = Limit::start();
    let (bench, prometheus) = measured();
    bench.add("a").await;
    bench.queue.stats().await.unwrap();
    drop(bench);
    settle().await;
    let page = samples(&prometheus);
    assert!(page.contains("workqueue_adds_total{} 1\n"), "{page}");
    assert!(!page.contains("requeue_ready"), "{page}");
}
