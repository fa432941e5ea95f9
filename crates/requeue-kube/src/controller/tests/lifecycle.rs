//! Workers, stopping and health.

use tokio::sync::{Semaphore, oneshot};

use super::*;
use crate::health::Health;

struct Gated {
    gate: Semaphore,
    calls: UnboundedSender<Seen>,
}

async fn pass_gate(
    request: Request<ConfigMap>,
    state: Arc<Gated>,
) -> Result<Action, String> {
    state.gate.acquire().await.map_err(|error| error.to_string())?.forget();
    state.calls.send(seen(&request)).map_err(|error| error.to_string())?;
    Ok(Action::await_change())
}

fn gated(permits: usize) -> (Arc<Gated>, Calls) {
    let (sender, calls) = Calls::new();
    (Arc::new(Gated { gate: Semaphore::new(permits), calls: sender }), calls)
}

#[tokio::test(start_paused = true)]
async fn drain_reconciles_what_is_ready_and_returns_the_rest() {
    let cluster = FakeCluster::new();
    for index in 0..100 {
        cluster.put(&config_map(&format!("m{index}"), "1"));
    }
    let (state, mut calls) = gated(0);
    let handle = controller(&cluster)
        .workers(8)
        .start(pass_gate, Arc::clone(&state))
        .expect("there is a runtime");
    within(handle.synced()).await.expect("the server works");
    settle().await;
    assert_eq!(handle.queue().counts().processing, 8);
    let later = ObjectRef::new("later").within("default");
    handle
        .queue()
        .add_after(later.clone(), Duration::from_secs(600))
        .expect("it is open");
    state.gate.add_permits(100);
    let stopped = within(handle.drain(Duration::from_secs(30))).await;
    assert!(stopped.in_time());
    assert_eq!(stopped.left, [later]);
    assert_eq!(calls.rest().await.len(), 100);
    assert_eq!(within(handle.stopped()).await, Ok(()));
    let watches = cluster.count(Verb::Watch, "configmaps");
    cluster.close_watches();
    settle().await;
    assert_eq!(cluster.count(Verb::Watch, "configmaps"), watches, "the watch has ended");
}

#[tokio::test(start_paused = true)]
async fn stop_returns_the_keys_that_did_not_run() {
    let cluster = FakeCluster::new();
    for index in 0..10 {
        cluster.put(&config_map(&format!("m{index}"), "1"));
    }
    let (state, _calls) = gated(0);
    let handle = controller(&cluster)
        .workers(2)
        .start(pass_gate, Arc::clone(&state))
        .expect("there is a runtime");
    within(handle.synced()).await.expect("the server works");
    settle().await;
    let stopped = within(handle.stop(Duration::from_secs(5))).await;
    assert_eq!((stopped.still_running.len(), stopped.left.len()), (2, 8));
}

#[tokio::test(start_paused = true)]
async fn shutdown_drains_the_queue() {
    let cluster = FakeCluster::new();
    for index in 0..10 {
        cluster.put(&config_map(&format!("m{index}"), "1"));
    }
    let (stop, stopping) = oneshot::channel::<()>();
    let (state, mut calls) = gated(0);
    let handle = controller(&cluster)
        .workers(1)
        .graceful_shutdown_on(async { stopping.await.unwrap_or_default() })
        .start(pass_gate, Arc::clone(&state))
        .expect("there is a runtime");
    within(handle.synced()).await.expect("the server works");
    settle().await;
    stop.send(()).expect("the controller waits for it");
    settle().await;
    assert!(handle.queue().is_closed());
    state.gate.add_permits(10);
    assert_eq!(within(handle.stopped()).await, Ok(()));
    assert_eq!(calls.rest().await.len(), 10);
}

#[tokio::test(start_paused = true)]
async fn workers_can_be_changed_while_it_runs() {
    let cluster = FakeCluster::new();
    for index in 0..10 {
        cluster.put(&config_map(&format!("m{index}"), "1"));
    }
    let (state, mut calls) = gated(0);
    let handle = controller(&cluster)
        .workers(1)
        .start(pass_gate, Arc::clone(&state))
        .expect("there is a runtime");
    handle.set_workers(3); // before the caches are filled
    assert_eq!(handle.queue().counts().processing, 0);
    within(handle.synced()).await.expect("the server works");
    settle().await;
    assert_eq!(handle.queue().counts().processing, 3);
    handle.set_workers(6);
    settle().await;
    assert_eq!(handle.queue().counts().processing, 6);
    state.gate.add_permits(10);
    calls.take(10).await;
}

#[tokio::test(start_paused = true)]
async fn readiness_follows_the_caches() {
    let cluster = FakeCluster::new();
    cluster.inject(Fault::status(500).on(Verb::List).times(2));
    let health = Health::new();
    let (handle, _calls) = start(controller(&cluster).name("maps").health(&health));
    settle().await;
    assert!(!health.ready().is_ok());
    within(handle.synced()).await.expect("the third list succeeds");
    assert!(health.ready().is_ok());
    within(handle.stop(Duration::from_secs(1))).await;
    assert!(!health.ready().is_ok());
}

#[test]
fn starting_without_a_runtime_is_an_error() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().build().expect("it builds");
    let cluster = FakeCluster::new();
    let client = runtime.block_on(async { cluster.client() });
    let controller =
        Controller::new(Api::<ConfigMap>::all(client), watcher::Config::default());
    let (sender, _calls) = Calls::new();
    assert!(controller.start(record, Arc::new(sender)).is_err());
}

#[test]
fn default_number_of_workers_is_bounded() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().build().expect("it builds");
    let client = runtime.block_on(async { FakeCluster::new().client() });
    let controller =
        Controller::new(Api::<ConfigMap>::all(client), watcher::Config::default());
    assert!((1..=16).contains(&controller.workers), "{}", controller.workers);
    assert_eq!(controller.name, "configmap");
}
