//! Controllers that follow an election.

use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::coordination::v1::Lease;

use super::*;
use crate::Election;

fn election(cluster: &FakeCluster, identity: &str) -> Election {
    Election::new(cluster.client(), "default", "maps")
        .identity(identity)
        .clock(TokioClock::new())
}

fn holder(cluster: &FakeCluster) -> Option<String> {
    let lease = cluster.get::<Lease>("default", "maps")?;
    lease.spec?.holder_identity.filter(|holder| !holder.is_empty())
}

/// Caches and queue are filled before the Lease is won, so the next leader starts at once.
#[tokio::test(start_paused = true)]
async fn only_the_leader_reconciles_and_the_next_one_is_warm() {
    let cluster = FakeCluster::new();
    for index in 0..10 {
        cluster.put(&config_map(&format!("m{index}"), "1"));
    }
    let (first, mut first_calls) =
        start(controller(&cluster).leader(election(&cluster, "first")));
    first_calls.take(10).await;
    let (second, mut second_calls) =
        start(controller(&cluster).leader(election(&cluster, "second")));
    within(second.synced()).await.expect("warm-up needs no term");
    assert_eq!((second.term().is_some(), second.queue().len()), (false, 10));
    assert_eq!(second_calls.rest().await, []);
    assert_eq!(holder(&cluster).as_deref(), Some("first"));
    let stopped = within(first.drain(Duration::from_secs(10))).await;
    assert!(stopped.in_time());
    assert_ne!(holder(&cluster).as_deref(), Some("first"), "the Lease is released");
    let soon = timeout(Duration::from_secs(5), second_calls.take(10)).await;
    assert_eq!(soon.expect("it does not wait until the Lease expires").len(), 10);
    assert_eq!(holder(&cluster).as_deref(), Some("second"));
    assert!(second.term().is_some());
}

#[derive(Default)]
struct Runs {
    started: AtomicUsize,
    finished: AtomicUsize,
}

/// The Lease is lost while a run is under way: the run is cancelled, its key is released.
#[tokio::test(start_paused = true)]
async fn end_of_a_term_cancels_runs_and_the_next_term_repeats_them() {
    let cluster = FakeCluster::new();
    cluster.put(&config_map("a", "1"));
    let runs = Arc::new(Runs::default());
    let reconcile = |request: Request<ConfigMap>, runs: Arc<Runs>| async move {
        assert!(request.term.as_ref().is_some_and(crate::Term::is_held));
        assert_eq!(request.attempt, 1);
        if runs.started.fetch_add(1, Ordering::SeqCst) == 0 {
            std::future::pending::<()>().await;
        }
        runs.finished.fetch_add(1, Ordering::SeqCst);
        Ok::<_, String>(Action::await_change())
    };
    let handle = controller(&cluster)
        .leader(election(&cluster, "only"))
        .start(reconcile, Arc::clone(&runs))
        .expect("there is a runtime");
    within(async {
        while runs.started.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
            tokio::time::advance(Duration::from_millis(100)).await;
        }
    })
    .await;
    let first = handle.term().expect("this process leads");
    cluster.inject(Fault::status(500).of("leases"));
    within(first.ended()).await;
    settle().await;
    assert_eq!(handle.queue().counts().processing, 0, "the run is cancelled");
    assert_eq!(handle.queue().len(), 1, "its key is ready again");
    assert_eq!(handle.queue().num_requeues(&ObjectRef::new("a").within("default")), 0);
    tokio::time::advance(Duration::from_secs(30)).await;
    settle().await;
    assert_eq!(runs.started.load(Ordering::SeqCst), 1, "nothing runs without a term");
    drop(first);
    cluster.clear_faults();
    within(handle.queue().wait_idle()).await;
    assert_eq!(runs.finished.load(Ordering::SeqCst), 1);
}

/// Several controllers of a process follow one candidate, which outlives each of them.
#[tokio::test(start_paused = true)]
async fn controllers_share_a_candidate() {
    let cluster = FakeCluster::new();
    cluster.put(&config_map("a", "1"));
    let candidate = election(&cluster, "process").start().expect("the settings agree");
    let (first, mut first_calls) = start(controller(&cluster).leader(&candidate));
    let (_second, mut second_calls) = start(controller(&cluster).leader(&candidate));
    assert_eq!(first_calls.next().await.name, "a");
    assert_eq!(second_calls.next().await.name, "a");
    within(first.stop(Duration::from_secs(1))).await;
    assert_eq!(holder(&cluster).as_deref(), Some("process"));
    cluster.put(&config_map("a", "2"));
    assert_eq!(second_calls.next().await.value.as_deref(), Some("2"));
}

/// With `OnLoss::Stop` the process is to exit, so the controller must end.
#[tokio::test(start_paused = true)]
async fn end_of_the_election_stops_the_controller() {
    let cluster = FakeCluster::new();
    cluster.put(&config_map("a", "1"));
    let election = election(&cluster, "only").on_loss(crate::OnLoss::Stop);
    let (handle, mut calls) = start(controller(&cluster).leader(election));
    calls.next().await;
    cluster.inject(Fault::status(500).of("leases"));
    assert_eq!(within(handle.stopped()).await, Ok(()));
    assert!(handle.queue().is_closed());
}
