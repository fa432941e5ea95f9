//! Traps of queue and workers: deletes, backoff, panics, shutdown.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{Controller as KubeController, watcher};
use kube::{Api, Resource};
use requeue::retry::Exponential;
use requeue::{Clock, SystemClock};
use requeue_kube::{Action, Controller, Election, Request};
use tokio::sync::Semaphore;

use crate::cluster::Cluster;
use crate::journal::{Journal, kube_runtime, ours};
use crate::support::{
    SECOND, SOON, create, create_many, edit, eventually, pause, report, value,
};

fn content(object: &ConfigMap) -> String {
    value(object).to_owned()
}

/// A journal, and permits without which runs do not end.
struct Held {
    journal: Journal,
    permits: Semaphore,
}

impl Held {
    fn new() -> Arc<Self> {
        Arc::new(Self { journal: Journal::default(), permits: Semaphore::new(0) })
    }
}

async fn hold(
    request: Request<ConfigMap>,
    held: Arc<Held>,
) -> Result<Action, kube::Error> {
    held.journal.note(&request.key, request.object.as_deref().map(value));
    held.permits.acquire().await.unwrap().forget();
    Ok(Action::await_change())
}

// Trap 13. An object disappears while its key is queued.
#[tokio::test]
async fn an_object_that_is_gone_is_reconciled_as_gone() {
    const OBJECTS: usize = 300;
    let Some(cluster) = Cluster::shared().await else { return };
    let api = cluster.config_maps();
    let name = |n: usize| format!("object-{n:04}");
    create_many(&api, (0..OBJECTS).map(name)).await;
    let (held, theirs) = (Held::new(), Journal::default());
    let handle = Controller::new(api.clone(), watcher::Config::default())
        .workers(1)
        .start(hold, Arc::clone(&held))
        .unwrap();
    let controller = KubeController::new(api.clone(), watcher::Config::default())
        .with_config(kube::runtime::controller::Config::default().concurrency(1));
    let _theirs =
        kube_runtime::observe(controller, content, Duration::from_millis(20), &theirs);
    eventually("all keys are queued", SOON, async || {
        handle.queue().len() == OBJECTS - 1 && !theirs.runs().is_empty()
    })
    .await;
    let last = (0..OBJECTS)
        .map(name)
        .rfind(|name| held.journal.count(name) == 0 && theirs.count(name) == 0);
    let last = last.unwrap();
    api.delete(&last, &DeleteParams::default()).await.unwrap();
    let key = ObjectRef::<ConfigMap>::new(&last).within(&cluster.namespace);
    eventually("the delete arrives", SOON, async || handle.store().get(&key).is_none())
        .await;
    held.permits.add_permits(OBJECTS + 8);
    eventually("it is reconciled", SOON, async || held.journal.saw_gone(&last)).await;
    eventually("theirs has gone on", SOON, async || theirs.runs().len() >= OBJECTS - 1)
        .await;
    let told = if theirs.errors().iter().any(|error| error.contains("not found")) {
        "ObjectNotFound on the stream"
    } else {
        "not reconciled"
    };
    report(13, "root gone while queued", told, "reconciled with None");
    handle.stop(SOON).await;
}

// Trap 14. Failures of objects that are gone are forgotten.
#[tokio::test]
async fn backoff_ends_with_the_object() {
    let Some(cluster) = Cluster::shared().await else { return };
    let api = cluster.config_maps();
    let journal = Journal::default();
    let reconcile = |request: Request<ConfigMap>, journal: Arc<Journal>| async move {
        journal.note(&request.key, request.object.as_deref().map(value));
        if request.object.is_some() {
            Err("always fails")
        } else {
            Ok(Action::await_change())
        }
    };
    let handle = Controller::new(api.clone(), watcher::Config::default())
        .start(reconcile, Arc::new(journal.clone()))
        .unwrap();
    for n in 0..30 {
        let name = format!("object-{n}");
        create(&api, &name, "1").await;
        let key = ObjectRef::<ConfigMap>::new(&name).within(&cluster.namespace);
        eventually("it fails", SOON, async || handle.queue().num_requeues(&key) > 0)
            .await;
        api.delete(&name, &DeleteParams::default()).await.unwrap();
        eventually("its end is reconciled", SOON, async || {
            journal.saw_gone(&name) && handle.queue().num_requeues(&key) == 0
        })
        .await;
    }
    report(
        14,
        "failures kept for 30 objects that are gone",
        "no backoff per object",
        "0",
    );
    handle.stop(SOON).await;
}

// Trap 15. A failing parent with a child that changes all the time.
#[tokio::test]
async fn a_flapping_child_causes_no_extra_runs() {
    let Some(cluster) = Cluster::shared().await else { return };
    let api = cluster.config_maps();
    let parent = create(&api, "parent", "1").await;
    let secrets = Api::<Secret>::namespaced(cluster.client.clone(), &cluster.namespace);
    let child = Secret {
        metadata: ObjectMeta {
            name: Some("child".to_owned()),
            owner_references: parent.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        ..Secret::default()
    };
    secrets.create(&PostParams::default(), &child).await.unwrap();
    let retries = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&retries);
    let journal = Journal::default();
    let reconcile = move |request: Request<ConfigMap>, journal: Arc<Journal>| {
        journal.note(&request.key, request.object.as_deref().map(value));
        if request.reasons.contains(requeue_kube::Reasons::RETRY) {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        async { Err::<Action, _>("always fails") }
    };
    let handle = Controller::new(api, watcher::Config::default())
        .retry(Exponential::new(Duration::from_millis(400), Duration::from_millis(400)))
        .owns(secrets.clone(), watcher::Config::default())
        .start(reconcile, Arc::new(journal.clone()))
        .unwrap();
    handle.synced().await.unwrap();
    let changes = 30;
    for n in 0..changes {
        let patch =
            serde_json::json!({"metadata": {"annotations": {"n": n.to_string()}}});
        secrets
            .patch("child", &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
        pause(Duration::from_millis(50)).await;
    }
    let runs = journal.count("parent");
    // The first list, the child in it, and one run for each change or retry.
    let allowed = 2 + changes + usize::try_from(retries.load(Ordering::Relaxed)).unwrap();
    assert!(runs <= allowed, "{runs} runs, expected at most {allowed}");
    report(
        15,
        "runs of a failing parent, 30 changes of a child",
        "not compared",
        &runs.to_string(),
    );
    handle.stop(SOON).await;
}

// Trap 17. A drain finishes queued work, and the lease is released last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_finishes_queued_work_and_releases_the_lease_last() {
    const OBJECTS: usize = 400;
    let Some(cluster) = Cluster::shared().await else { return };
    let api = cluster.config_maps();
    create_many(&api, (0..OBJECTS).map(|n| format!("object-{n:04}"))).await;
    let election = |name: &str| {
        Election::new(cluster.new_client(), &cluster.namespace, "drain").identity(name)
    };
    let reconcile = |request: Request<ConfigMap>, journal: Arc<Journal>| async move {
        assert!(request.term.as_ref().is_some_and(requeue_kube::Term::is_held));
        pause(Duration::from_millis(5)).await;
        journal.note(&request.key, request.object.as_deref().map(value));
        Ok::<_, kube::Error>(Action::await_change())
    };
    let (one, two) = (Journal::default(), Journal::default());
    let first = Controller::new(api.clone(), watcher::Config::default())
        .workers(8)
        .leader(election("one"))
        .start(reconcile, Arc::new(one.clone()))
        .unwrap();
    eventually("the first leads", SOON, async || !one.runs().is_empty()).await;
    let second = Controller::new(api, watcher::Config::default())
        .workers(8)
        .leader(election("two"))
        .start(reconcile, Arc::new(two.clone()))
        .unwrap();
    second.synced().await.unwrap();
    assert_eq!(
        second.queue().len(),
        OBJECTS,
        "the queue fills up before the lease is won"
    );
    let stopped = first.drain(SOON).await;
    let drained = SystemClock.now();
    assert!(stopped.left.is_empty() && stopped.still_running.is_empty(), "{stopped:?}");
    assert_eq!(one.runs().len(), OBJECTS);
    eventually("the second leads", SOON, async || !two.runs().is_empty()).await;
    let waited = SystemClock.now() - drained;
    assert_eq!(second.term().unwrap().number(), 1);
    assert!(waited < 2 * SECOND, "the next leader started after {waited:?}");
    let ours = format!(
        "{OBJECTS} of {OBJECTS} done, next leader after {} ms",
        waited.as_millis()
    );
    report(17, "drain with 400 queued", "queued work is dropped", &ours);
    second.stop(SOON).await;
}

// The term ends while a run waits: the run is cancelled without a failure, and runs again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_term_cancels_running_work() {
    let Some(cluster) = Cluster::alone().await else { return };
    create(&cluster.config_maps(), "root", "1").await;
    let held = Held::new();
    let election = Election::new(cluster.new_client(), &cluster.namespace, "lost")
        .duration(4 * SECOND)
        .renew_within(2 * SECOND)
        .retry_every(SECOND / 2);
    let api = Api::<ConfigMap>::namespaced(cluster.new_client(), &cluster.namespace);
    let handle = Controller::new(api, watcher::Config::default())
        .leader(election)
        .start(hold, Arc::clone(&held))
        .unwrap();
    eventually("it runs", SOON, async || held.journal.count("root") == 1).await;
    let term = handle.term().unwrap();
    cluster.kill_apiserver().await;
    term.ended().await;
    drop(term);
    eventually("the run is cancelled", SOON, async || {
        handle.queue().counts().processing == 0
    })
    .await;
    cluster.start_apiserver().await;
    eventually("it runs again in a new term", SOON, async || {
        held.journal.count("root") >= 2
    })
    .await;
    assert!(handle.term().unwrap().number() >= 1);
    let key = ObjectRef::<ConfigMap>::new("root").within(&cluster.namespace);
    assert_eq!(handle.queue().num_requeues(&key), 0, "a cancelled run is not a failure");
    held.permits.add_permits(8);
    handle.stop(SOON).await;
}

// Trap 18. All workers hang while thousands of updates arrive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_workers_do_not_block_the_watch() {
    const UPDATES: u32 = 2000;
    let Some(cluster) = Cluster::shared().await else { return };
    let api = cluster.config_maps();
    for n in 0..10 {
        create(&api, &format!("object-{n}"), "1").await;
    }
    let held = Held::new();
    let handle = Controller::new(api.clone(), watcher::Config::default())
        .workers(2)
        .start(hold, Arc::clone(&held))
        .unwrap();
    eventually("all workers hang", SOON, async || held.journal.runs().len() == 2).await;
    futures::stream::iter(0..UPDATES)
        .for_each_concurrent(8, |n| {
            let api = &api;
            async move {
                edit(api, &format!("object-{}", n % 10), &format!("update {n}")).await;
            }
        })
        .await;
    let marker = "the last one";
    edit(&api, "object-0", marker).await;
    let key = ObjectRef::<ConfigMap>::new("object-0").within(&cluster.namespace);
    eventually("the store is current", SOON, async || {
        handle.store().get(&key).is_some_and(|object| value(&object) == marker)
    })
    .await;
    let counts = handle.queue().counts();
    assert!(counts.ready + counts.processing <= 10, "{counts:?}");
    let watch = handle.watches().remove(0);
    assert_eq!((watch.errors, watch.lists), (0, 1), "{watch:?}");
    held.permits.add_permits(100);
    eventually("the last state is reconciled", SOON, async || {
        held.journal.saw("object-0", marker)
    })
    .await;
    report(
        18,
        "2,000 updates while all workers hang",
        "not compared",
        "10 keys queued, no relist",
    );
    handle.stop(SOON).await;
}

// Trap 21. One object panics, one hangs; the others go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_or_a_hang_costs_one_run() {
    let Some(cluster) = Cluster::shared().await else { return };
    let api = cluster.config_maps();
    for n in 0..5 {
        create(&api, &format!("object-{n}"), if n == 2 { "panic" } else { "1" }).await;
    }
    let (journal, theirs) = (Journal::default(), Journal::default());
    let controller = Controller::new(api.clone(), watcher::Config::default());
    let task = ours::observe(controller, content, Duration::ZERO, &journal);
    let controller = KubeController::new(api.clone(), watcher::Config::default());
    let their_task = kube_runtime::observe(controller, content, Duration::ZERO, &theirs);
    eventually("the panic is retried", SOON, async || journal.count("object-2") >= 2)
        .await;
    eventually("theirs has panicked", SOON, async || theirs.count("object-2") >= 1).await;
    edit(&api, "object-2", "repaired").await;
    eventually("a repaired object succeeds", SOON, async || {
        (0..5).all(|n| {
            journal.saw(&format!("object-{n}"), if n == 2 { "repaired" } else { "1" })
        })
    })
    .await;
    pause(SECOND).await;
    assert!(!task.is_finished());
    let told = if their_task.is_finished() { "the controller ends" } else { "goes on" };
    report(21, "a panic in one reconcile", told, "retried with backoff");
    drop((task, their_task));

    let timeouts = Held::new();
    let handle = Controller::new(api.clone(), watcher::Config::default())
        .workers(1)
        .timeout(SECOND / 5)
        .start(hold, Arc::clone(&timeouts))
        .unwrap();
    eventually("each hanging run ends", SOON, async || {
        (0..5).all(|n| timeouts.journal.count(&format!("object-{n}")) >= 1)
    })
    .await;
    handle.stop(SOON).await;
}
