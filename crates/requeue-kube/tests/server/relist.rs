//! Traps around a relist after the API server was away.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::runtime::{Controller as KubeController, watcher};
use kube::{Api, Resource};
use requeue_kube::{Action, Controller, Reasons, Request};

use crate::cluster::Cluster;
use crate::journal::{Journal, kube_runtime, ours};
use crate::support::{
    Gate, SOON, create, create_many, edit, eventually, pause, report, value,
};

const OBJECTS: usize = 1200;
const CHANGED: usize = 100;

/// The state of one controller after the outage.
struct Observed {
    list: &'static str,
    is_ours: bool,
    journal: Journal,
}

impl Observed {
    /// Returns how many new objects were never reconciled, and how many changed ones last with
    /// old content.
    fn losses(&self) -> (usize, usize) {
        let lost =
            (0..CHANGED).filter(|n| self.journal.count(&new_name(*n)) == 0).count();
        let stale =
            (0..CHANGED).filter(|n| !self.journal.saw(&old_name(*n), "second")).count();
        (lost, stale)
    }
}

fn old_name(n: usize) -> String {
    format!("m-{n:04}")
}

/// New names come first in a list.
fn new_name(n: usize) -> String {
    format!("a-{n:04}")
}

// Traps 1, 3 and 5. While the API server is away, 100 objects are created and 100 changed. Its
// watch cache starts at a later revision, so the watches end with 410 Gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relist_loses_nothing() {
    let Some(cluster) = Cluster::alone().await else { return };
    let api = cluster.config_maps();
    create_many(&api, (0..OBJECTS).map(old_name)).await;
    let gate = Gate::new();
    let gated = || {
        Api::<ConfigMap>::namespaced(
            gate.client(&cluster.new_client()),
            &cluster.namespace,
        )
    };
    let mut observed = Vec::new();
    let mut running = Vec::new();
    let value_of = |object: &ConfigMap| value(object).to_owned();
    for (list, config) in [
        ("pages", watcher::Config::default()),
        ("streaming", watcher::Config::default().streaming_lists()),
    ] {
        let journal = Journal::default();
        let controller = KubeController::new(gated(), config.clone())
            .with_config(kube::runtime::controller::Config::default().concurrency(8));
        running.push(kube_runtime::observe(
            controller,
            value_of,
            Duration::ZERO,
            &journal,
        ));
        observed.push(Observed { list, is_ours: false, journal });
        let journal = Journal::default();
        let controller = Controller::new(gated(), config).workers(8);
        // The work lets a queue build up, so that its order shows.
        let work = Duration::from_millis(5);
        running.push(ours::observe(controller, value_of, work, &journal));
        observed.push(Observed { list, is_ours: true, journal });
    }
    for observed in &observed {
        eventually("all objects are reconciled", SOON, async || {
            (0..OBJECTS).all(|n| observed.journal.saw(&old_name(n), "first"))
        })
        .await;
    }

    gate.close();
    // Writes elsewhere move the revision on.
    for n in 0..3 {
        let default = Api::<ConfigMap>::namespaced(cluster.client.clone(), "default");
        create(&default, &format!("{}-{n}", cluster.namespace), "").await;
    }
    cluster.kill_apiserver().await;
    cluster.start_apiserver().await;
    let api = Api::<ConfigMap>::namespaced(cluster.new_client(), &cluster.namespace);
    for n in 0..CHANGED {
        edit(&api, &old_name(n), "second").await;
        create(&api, &new_name(n), "first").await;
    }
    for observed in &observed {
        observed.journal.clear();
    }
    gate.open();

    for observed in observed.iter().filter(|observed| observed.is_ours) {
        let journal = &observed.journal;
        eventually("all changes are reconciled", SOON, async || {
            observed.losses() == (0, 0)
        })
        .await;
        eventually("the others are reconciled too", SOON, async || {
            (0..OBJECTS).all(|n| journal.count(&old_name(n)) > 0)
        })
        .await;
        assert_eq!(journal.errors(), [""; 0], "a 410 is not an error");
        let is_changed = |name: &str| {
            name.starts_with('a') || (0..CHANGED).any(|n| old_name(n) == name)
        };
        let runs = journal.runs();
        let last = runs.iter().rposition(|run| is_changed(&run.name)).unwrap();
        let before = runs[..last].iter().filter(|run| !is_changed(&run.name)).count();
        assert!(before <= 16, "{before} unchanged objects before the last change");
        report(
            5,
            &format!("unchanged objects before the last change, {}", observed.list),
            "no priorities",
            &format!("{before} of {}", OBJECTS - CHANGED),
        );
    }
    pause(Duration::from_secs(3)).await; // for kube-runtime
    for pair in observed.chunks(2) {
        let ((their_lost, their_stale), (lost, stale)) =
            (pair[0].losses(), pair[1].losses());
        report(
            1,
            &format!("relist ({}): lost and stale of 100 and 100", pair[0].list),
            &format!("{their_lost} lost, {their_stale} stale"),
            &format!("{lost} lost, {stale} stale"),
        );
    }
    report(3, "410 Gone", "relists", "relists, no error");
}

// Traps 2 and 12. Deletes that no watch event reports, and an object with a new uid.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletes_in_a_gap_are_noticed() {
    let Some(cluster) = Cluster::alone().await else { return };
    let api = cluster.config_maps();
    let gone = create(&api, "gone", "1").await;
    create(&api, "recreated", "1").await;
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

    let gate = Gate::new();
    let client = gate.client(&cluster.new_client());
    let (journal, theirs) = (Journal::default(), Journal::default());
    let roots = || Api::<ConfigMap>::namespaced(client.clone(), &cluster.namespace);
    let children = || Api::<Secret>::namespaced(client.clone(), &cluster.namespace);
    let config = watcher::Config::default;
    let reconcile = |request: Request<ConfigMap>, journal: Arc<Journal>| async move {
        let content = request.object.as_deref().map(value);
        journal.note(&request.key, content);
        if request.reasons.contains(Reasons::OWNED) && request.key.name == "parent" {
            journal.error(&"owned");
        }
        Ok::<_, kube::Error>(Action::await_change())
    };
    // A predicate that lets nothing but a new uid pass.
    let handle = Controller::new(roots(), config())
        .predicate(|_: &ConfigMap| Some(1))
        .owns(children(), config())
        .start(reconcile, Arc::new(journal.clone()))
        .unwrap();
    let _theirs = kube_runtime::observe(
        KubeController::new(roots(), config()).owns(children(), config()),
        |object| value(object).to_owned(),
        Duration::ZERO,
        &theirs,
    );
    eventually("all objects are reconciled", SOON, async || {
        ["gone", "recreated", "parent"]
            .iter()
            .all(|name| journal.saw(name, "1") && theirs.saw(name, "1"))
    })
    .await;
    pause(Duration::from_secs(1)).await;
    journal.clear();
    theirs.clear();

    gate.close();
    let parent_runs = journal.errors().len();
    cluster.kill_apiserver().await;
    cluster.delete_in_etcd("configmaps", "gone").await;
    cluster.delete_in_etcd("secrets", "child").await;
    cluster.start_apiserver().await;
    let api = Api::<ConfigMap>::namespaced(cluster.new_client(), &cluster.namespace);
    assert!(api.get_opt("gone").await.unwrap().is_none(), "{gone:?}");
    api.delete("recreated", &DeleteParams::default()).await.unwrap();
    create(&api, "recreated", "2").await;
    gate.open();

    eventually("the deleted root is reconciled", SOON, async || journal.saw_gone("gone"))
        .await;
    eventually("the new object passes the predicate", SOON, async || {
        journal.saw("recreated", "2")
    })
    .await;
    eventually("the owner of the deleted child is reconciled", SOON, async || {
        journal.errors().len() > parent_runs
    })
    .await;
    pause(Duration::from_secs(3)).await; // for kube-runtime
    let told = |seen: bool| if seen { "reconciled" } else { "never reconciled" };
    report(2, "root deleted in a gap", told(theirs.saw_gone("gone")), "reconciled");
    report(12, "recreated in a gap, with a predicate", "not compared", "reconciled");
    handle.stop(SOON).await;
}
