//! `Controller::run`, the interface of kube-runtime.

use std::pin::pin;

use futures::StreamExt;
use tokio::sync::oneshot;

use super::*;
use crate::Error;

#[derive(Debug, thiserror::Error)]
#[error("no value")]
struct NoValue;

async fn reconcile(
    map: Arc<ConfigMap>,
    calls: Arc<UnboundedSender<String>>,
) -> Result<Action, NoValue> {
    let value = value_of(&map);
    calls.send(value.clone()).unwrap_or_default();
    match value.as_str() {
        "" => Err(NoValue),
        "panic" => panic!("on purpose"),
        _ => Ok(Action::requeue(Duration::from_secs(600))),
    }
}

fn policy(_: Arc<ConfigMap>, _: &NoValue, _: Arc<UnboundedSender<String>>) -> Action {
    Action::requeue(Duration::from_secs(5))
}

#[tokio::test(start_paused = true)]
async fn stream_reports_results_failures_and_panics() {
    let cluster = FakeCluster::new();
    let (stop, stopping) = oneshot::channel::<()>();
    let (sender, mut values) = unbounded_channel();
    let mut reports = pin!(
        controller(&cluster)
            .graceful_shutdown_on(async { stopping.await.unwrap_or_default() })
            .run(reconcile, policy, Arc::new(sender))
    );
    cluster.put(&config_map("a", "1"));
    let (key, action) = within(reports.next()).await.unwrap().unwrap();
    assert_eq!(key.name, "a");
    assert_eq!(action.requeue_after(), Some(Duration::from_secs(600)));
    cluster.put(&config_map("a", ""));
    let failed = within(reports.next()).await.unwrap().unwrap_err();
    assert!(matches!(failed, Error::ReconcilerFailed(NoValue, _)), "{failed}");
    let again = timeout(Duration::from_secs(6), reports.next()).await.unwrap().unwrap();
    assert!(again.is_err(), "the policy chose 5 s");
    cluster.put(&config_map("a", "panic"));
    let aborted = within(reports.next()).await.unwrap().unwrap_err();
    assert!(aborted.to_string().contains("on purpose"), "{aborted}");
    cluster.put(&config_map("a", "2"));
    let mut next = within(reports.next()).await.unwrap();
    while next.is_err() {
        next = within(reports.next()).await.unwrap();
    }
    cluster.remove::<ConfigMap>("default", "a");
    settle().await;
    values.close();
    let values: Vec<_> = std::iter::from_fn(|| values.try_recv().ok()).collect();
    assert_eq!(
        values.last().map(String::as_str),
        Some("2"),
        "a deleted object is not run"
    );
    stop.send(()).expect("the controller waits for it");
    assert!(
        within(reports.next()).await.is_none(),
        "the stream ends with the controller"
    );
}

/// In kube-runtime nothing moves while the stream is not polled.
#[tokio::test(start_paused = true)]
async fn controller_runs_without_a_reader_and_ends_with_its_stream() {
    let cluster = FakeCluster::new();
    for index in 0..2000 {
        cluster.put(&config_map(&format!("m{index}"), "1"));
    }
    let (sender, mut values) = unbounded_channel();
    let reports = controller(&cluster).run(reconcile, policy, Arc::new(sender));
    for _ in 0..2000 {
        within(values.recv()).await.expect("the controller runs");
    }
    drop(reports);
    settle().await;
    cluster.put(&config_map("m0", "2"));
    settle().await;
    assert!(values.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn failing_watch_and_sync_are_reported() {
    let cluster = FakeCluster::new();
    cluster.inject(Fault::status(403).on(Verb::List));
    let (sender, _values) = unbounded_channel();
    let reports = controller(&cluster).sync_timeout(Duration::from_secs(10)).run(
        reconcile,
        policy,
        Arc::new(sender),
    );
    let reports: Vec<_> = within(reports.collect()).await;
    assert!(matches!(reports.first(), Some(Err(Error::Watch { .. }))), "{reports:?}");
    assert!(matches!(reports.last(), Some(Err(Error::Sync(_)))), "{reports:?}");
    let text = reports[0].as_ref().unwrap_err().to_string();
    assert!(text.contains("cannot list resource \"configmaps\""), "{text}");
}

/// The failures of a shared watch went to the last controller only.
#[tokio::test(start_paused = true)]
async fn failures_of_a_shared_watch_reach_every_stream() {
    let cluster = FakeCluster::new();
    cluster.inject(Fault::status(403).on(Verb::List));
    let maps = Informer::new(Api::all(cluster.client()), watcher::Config::default());
    let run = || {
        let (sender, _values) = unbounded_channel();
        Controller::for_informer(&maps).run(reconcile, policy, Arc::new(sender))
    };
    let (mut first, mut second) = (pin!(run()), pin!(run()));
    for reports in
        [&mut first as &mut (dyn futures::Stream<Item = _> + Unpin), &mut second]
    {
        let report = within(reports.next()).await.expect("the controller runs");
        assert!(matches!(report, Err(Error::Watch { .. })), "{report:?}");
    }
}
