//! Metrics under the names of Kubernetes and controller-runtime.

use requeue::metrics::Prometheus;

use super::*;

#[tokio::test(start_paused = true)]
async fn queue_and_workers_are_measured() {
    let cluster = FakeCluster::new();
    for name in ["a", "b", "fails"] {
        cluster.put(&config_map(name, "1"));
    }
    let prometheus = Prometheus::new();
    let reconcile = |request: Request<ConfigMap>, _: Arc<()>| async move {
        match request.key.name.as_str() {
            "fails" => Err("on purpose"),
            _ => Ok(Action::await_change()),
        }
    };
    let handle = controller(&cluster)
        .name("maps")
        .workers(3)
        .max_retries(1)
        .metrics(prometheus.clone())
        .start(reconcile, Arc::new(()))
        .expect("there is a runtime");
    within(handle.synced()).await.expect("the server works");
    within(handle.queue().wait_idle()).await;
    let text = prometheus.encode();
    for line in [
        "workqueue_adds_total{name=\"maps\"} 4",
        "workqueue_depth{name=\"maps\"} 0",
        "workqueue_retries_total{name=\"maps\"} 1",
        "controller_runtime_reconcile_total{controller=\"maps\",result=\"success\"} 2",
        "controller_runtime_reconcile_total{controller=\"maps\",result=\"error\"} 2",
        "controller_runtime_max_concurrent_reconciles{controller=\"maps\"} 3",
        "controller_runtime_reconcile_time_seconds_count{controller=\"maps\"} 4",
    ] {
        assert!(text.contains(&format!("{line}\n")), "{line} is not in\n{text}");
    }
}
