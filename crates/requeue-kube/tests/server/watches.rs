//! Traps of watches: bookmarks, failing watches, owners, caches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::{Controller as KubeController, predicates, watcher};
use kube::{Api, Resource, ResourceExt};
use requeue::{Clock, SystemClock};
use requeue_kube::{Action, Controller, Informer, Request, SyncError};
use serde_json::json;

use crate::cluster::Cluster;
use crate::crd::Kind;
use crate::journal::{Journal, kube_runtime, ours};
use crate::support::{
    Delays, SECOND, SOON, config_map, create, edit, eventually, pause, report,
    slow_client, value,
};

fn content(object: &ConfigMap) -> String {
    value(object).to_owned()
}

/// Notes each run with the content of the object.
async fn note(
    request: Request<ConfigMap>,
    journal: Arc<Journal>,
) -> Result<Action, kube::Error> {
    journal.note(&request.key, request.object.as_deref().map(value));
    Ok(Action::await_change())
}

// Trap 4. The watch of a quiet kind ends every 5 s and resumes; it never lists again.
#[tokio::test]
async fn a_quiet_watch_resumes_without_a_list() {
    let Some(cluster) = Cluster::shared().await else { return };
    create(&cluster.config_maps(), "quiet", "1").await;
    let (lists, watches) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let counts = (Arc::clone(&lists), Arc::clone(&watches));
    let client = slow_client(&cluster.new_client(), move |path| {
        let requests = if path.contains("watch=true") { &counts.1 } else { &counts.0 };
        requests.fetch_add(1, Ordering::Relaxed);
        Delays::default()
    });
    let api = Api::<ConfigMap>::namespaced(client, &cluster.namespace);
    let journal = Journal::default();
    let handle = Controller::new(api, watcher::Config::default().timeout(5))
        .start(note, Arc::new(journal.clone()))
        .unwrap();
    handle.synced().await.unwrap();
    let busy = Api::<Secret>::namespaced(cluster.client.clone(), &cluster.namespace);
    eventually("the watch has resumed twice", SOON, async || {
        let secret = Secret {
            metadata: ObjectMeta {
                generate_name: Some("busy-".to_owned()),
                ..ObjectMeta::default()
            },
            ..Secret::default()
        };
        busy.create(&PostParams::default(), &secret).await.unwrap();
        watches.load(Ordering::Relaxed) >= 3
    })
    .await;
    edit(&cluster.config_maps(), "quiet", "2").await;
    eventually("an edit arrives", SOON, async || journal.saw("quiet", "2")).await;
    assert_eq!(lists.load(Ordering::Relaxed), 1);
    assert_eq!(handle.watches()[0].errors, 0, "{:?}", handle.watches());
    let ours = format!("{} watches, 1 list", watches.load(Ordering::Relaxed));
    report(4, "a quiet watch resumes", "not compared", &ours);
    handle.stop(SOON).await;
}

/// Edits an object again and again. Returns median and maximum of the time until each journal
/// has the edit, or a later one.
async fn latencies<const N: usize>(
    api: &Api<ConfigMap>,
    journals: [&Journal; N],
    edits: usize,
) -> [(Duration, Duration); N] {
    let contents: Vec<_> = (0..edits).map(|n| format!("edit {n}")).collect();
    let mut sent = Vec::new();
    for text in &contents {
        sent.push(SystemClock.now());
        edit(api, "root", text).await;
        pause(Duration::from_millis(1200)).await;
    }
    let last = std::slice::from_ref(contents.last().unwrap());
    eventually("the last edit arrives", SOON, async || {
        journals.iter().all(|journal| journal.first_of(last).is_some())
    })
    .await;
    journals.map(|journal| {
        let latency = |n: usize| journal.first_of(&contents[n..]).unwrap() - sent[n];
        let mut latencies: Vec<_> = (0..edits).map(latency).collect();
        latencies.sort();
        (latencies[edits / 2], latencies[edits - 1])
    })
}

// Trap 6. A kind disappears and comes back. Only its watch may suffer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_watch_does_not_slow_the_others() {
    let Some(cluster) = Cluster::shared().await else { return };
    let kind = Kind::create(&cluster.client, &["v1"]).await;
    let api = cluster.config_maps();
    let root = create(&api, "root", "1").await;
    let widgets = || kind.api("v1", &cluster.namespace);
    let resource = kind.resource("v1");
    let config = || watcher::Config::default().timeout(5);
    let (journal, theirs) = (Journal::default(), Journal::default());
    let handle = Controller::new(api.clone(), config())
        .owns_with(widgets(), resource.clone(), config())
        .start(note, Arc::new(journal.clone()))
        .unwrap();
    let controller = KubeController::new(api.clone(), config()).owns_with(
        widgets(),
        resource,
        config(),
    );
    let _theirs = kube_runtime::observe(controller, content, Duration::ZERO, &theirs);
    eventually("both run", SOON, async || {
        journal.count("root") > 0 && theirs.count("root") > 0
    })
    .await;

    kind.delete().await;
    let errors = |kind: &str| {
        let watches = handle.watches();
        watches.iter().find(|watch| watch.kind == kind).map_or(0, |watch| watch.errors)
    };
    eventually("the watch fails", SOON, async || errors("Widget") > 0).await;
    eventually("their watch fails", SOON, async || !theirs.errors().is_empty()).await;
    let [ours, theirs] = latencies(&api, [&journal, &theirs], 16).await;
    assert_eq!(errors("ConfigMap"), 0);
    assert!(ours.0 < SECOND, "{ours:?}");
    let told = |(p50, max): (Duration, Duration)| {
        format!("{} ms, at most {} ms", p50.as_millis(), max.as_millis())
    };
    report(6, "edit to reconcile while another watch fails", &told(theirs), &told(ours));

    kind.define().await;
    let runs = journal.count("root");
    let mut child = kind.object("v1", "child");
    child.metadata.owner_references =
        root.controller_owner_ref(&()).map(|owner| vec![owner]);
    widgets().create(&PostParams::default(), &child).await.unwrap();
    eventually("the watch recovers", 2 * SOON, async || journal.count("root") > runs)
        .await;
    handle.stop(SOON).await;
}

// A kind that never existed: no worker starts, and the error names the kind.
#[tokio::test]
async fn a_missing_kind_is_named() {
    let Some(cluster) = Cluster::shared().await else { return };
    create(&cluster.config_maps(), "root", "1").await;
    let kind = Kind::create(&cluster.client, &["v1"]).await;
    kind.delete().await;
    let journal = Journal::default();
    let handle = Controller::new(cluster.config_maps(), watcher::Config::default())
        .owns_with(
            kind.api("v1", &cluster.namespace),
            kind.resource("v1"),
            watcher::Config::default(),
        )
        .sync_timeout(3 * SECOND)
        .start(note, Arc::new(journal.clone()))
        .unwrap();
    let error = handle.synced().await.unwrap_err();
    let SyncError::TimedOut { kinds, last_error, .. } = &error else { panic!("{error}") };
    assert_eq!(kinds, &["Widget"]);
    assert!(last_error.contains("404"), "{last_error}");
    assert!(journal.runs().is_empty());
}

// Missing rights: the error has the verb and the resource. It recovers with the rights.
#[tokio::test]
async fn missing_rights_are_named() {
    use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
    let Some(cluster) = Cluster::shared().await else { return };
    create(&cluster.config_maps(), "root", "1").await;
    let user = format!("user-{}", cluster.namespace);
    let api = Api::<ConfigMap>::namespaced(cluster.client_as(&user), &cluster.namespace);
    let journal = Journal::default();
    let handle = Controller::new(api, watcher::Config::default())
        .start(note, Arc::new(journal.clone()))
        .unwrap();
    eventually("the watch fails", SOON, async || handle.watches()[0].errors > 0).await;
    let error = handle.watches()[0].last_error.clone().unwrap();
    assert!(error.contains("cannot list resource \"configmaps\""), "{error}");
    assert!(error.contains(&user), "{error}");

    let role: Role = serde_json::from_value(json!({
        "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}],
    }))
    .unwrap();
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }))
    .unwrap();
    let roles = Api::<Role>::namespaced(cluster.client.clone(), &cluster.namespace);
    roles.create(&PostParams::default(), &role).await.unwrap();
    let bindings =
        Api::<RoleBinding>::namespaced(cluster.client.clone(), &cluster.namespace);
    bindings.create(&PostParams::default(), &binding).await.unwrap();
    eventually("the watch recovers", SOON, async || journal.saw("root", "1")).await;
    handle.stop(SOON).await;
}

/// A namespace with children in three namespaces has one key.
fn namespace_content(object: &Namespace) -> String {
    object.name_any()
}

fn owned_by(owner: &OwnerReference, name: &str) -> ConfigMap {
    let mut child = config_map(name, "1");
    child.metadata.owner_references = Some(vec![owner.clone()]);
    child
}

// Trap 7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_scoped_owner_has_one_worker() {
    let Some(cluster) = Cluster::shared().await else { return };
    let namespaces = Api::<Namespace>::all(cluster.client.clone());
    let owner = namespaces.get(&cluster.namespace).await.unwrap();
    let owner = owner.controller_owner_ref(&()).unwrap();
    let others: Vec<_> = (0..3).map(|n| format!("{}-{n}", cluster.namespace)).collect();
    for other in &others {
        cluster.create_namespace(other).await;
    }
    let only = watcher::Config::default()
        .fields(&format!("metadata.name={}", cluster.namespace));
    let children = || Api::<ConfigMap>::all(cluster.client.clone());
    let labelled =
        watcher::Config::default().labels(&format!("test={}", cluster.namespace));
    let (journal, theirs) = (Journal::default(), Journal::default());
    let work = Duration::from_millis(300);
    let _ours = ours::observe(
        Controller::new(namespaces.clone(), only.clone())
            .owns(children(), labelled.clone()),
        namespace_content,
        work,
        &journal,
    );
    let _theirs = kube_runtime::observe(
        KubeController::new(namespaces, only).owns(children(), labelled),
        namespace_content,
        work,
        &theirs,
    );
    eventually("both run", SOON, async || {
        !journal.runs().is_empty() && !theirs.runs().is_empty()
    })
    .await;
    for round in 0..5 {
        for other in &others {
            let api = Api::<ConfigMap>::namespaced(cluster.client.clone(), other);
            let mut child = owned_by(&owner, &format!("child-{round}"));
            child.metadata.labels =
                Some([("test".to_owned(), cluster.namespace.clone())].into());
            api.create(&PostParams::default(), &child).await.unwrap();
        }
        pause(Duration::from_millis(200)).await;
    }
    eventually("the owner is reconciled", SOON, async || journal.runs().len() >= 2).await;
    pause(SECOND).await;
    assert_eq!(journal.most_at_once(), 1);
    assert!(journal.runs().iter().all(|run| run.namespace.is_none()));
    report(
        7,
        "workers at once on a cluster-scoped owner",
        &theirs.most_at_once().to_string(),
        &journal.most_at_once().to_string(),
    );
}

// Trap 8. Such a reference is invalid: Kubernetes looks for the owner in the child's namespace.
#[tokio::test]
async fn an_owner_in_another_namespace_is_ignored() {
    let Some(cluster) = Cluster::shared().await else { return };
    let root = create(&cluster.config_maps(), "root", "1").await;
    let other = format!("{}-other", cluster.namespace);
    cluster.create_namespace(&other).await;
    let journal = Journal::default();
    let secrets = Api::<Secret>::namespaced(cluster.client.clone(), &other);
    let handle = Controller::new(cluster.config_maps(), watcher::Config::default())
        .owns(secrets.clone(), watcher::Config::default())
        .start(note, Arc::new(journal.clone()))
        .unwrap();
    eventually("the root is reconciled", SOON, async || journal.count("root") == 1).await;
    let child = Secret {
        metadata: ObjectMeta {
            name: Some("child".to_owned()),
            owner_references: root.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        ..Secret::default()
    };
    secrets.create(&PostParams::default(), &child).await.unwrap();
    eventually("the child is seen", SOON, async || {
        handle.watches().iter().any(|watch| watch.kind == "Secret" && watch.events > 0)
    })
    .await;
    pause(SECOND).await;
    let wrong: Vec<_> = journal
        .runs()
        .into_iter()
        .filter(|run| {
            run.value.is_some() && run.namespace.as_ref() != Some(&cluster.namespace)
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert_eq!(journal.runs().iter().filter(|run| run.value.is_some()).count(), 1);
    report(8, "owner in another namespace", "not compared", "triggers no object");
    handle.stop(SOON).await;
}

// Trap 9. Children keep the apiVersion of their creation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_are_found_in_any_version() {
    let Some(cluster) = Cluster::shared().await else { return };
    let kind = Kind::create(&cluster.client, &["v1", "v1beta1"]).await;
    let widgets = kind.api("v1", &cluster.namespace);
    let root = kind.object("v1", "root");
    let root = widgets.create(&PostParams::default(), &root).await.unwrap();
    let (journal, theirs) = (Journal::default(), Journal::default());
    let reconcile = |request: Request<DynamicObject>, journal: Arc<Journal>| async move {
        journal.note(&request.key, Some(""));
        Ok::<_, kube::Error>(Action::await_change())
    };
    let config = watcher::Config::default;
    let handle = Controller::new_with(widgets.clone(), config(), kind.resource("v1"))
        .owns(cluster.config_maps(), config())
        .start(reconcile, Arc::new(journal.clone()))
        .unwrap();
    let noted = theirs.clone();
    let controller =
        KubeController::new_with(widgets, config(), kind.resource("v1"))
            .owns(cluster.config_maps(), config())
            .run(
                move |object: Arc<DynamicObject>, _: Arc<()>| {
                    let key = kube::runtime::reflector::ObjectRef::<ConfigMap>::new(
                        &object.name_any(),
                    );
                    noted.note(&key, Some(""));
                    async {
                        Ok::<_, kube::Error>(
                            kube::runtime::controller::Action::await_change(),
                        )
                    }
                },
                |_, _, _| kube::runtime::controller::Action::await_change(),
                Arc::new(()),
            );
    let task = tokio::spawn(futures::StreamExt::for_each(controller, |_| async {}));
    eventually("both run", SOON, async || {
        journal.count("root") > 0 && theirs.count("root") > 0
    })
    .await;
    let (runs, their_runs) = (journal.count("root"), theirs.count("root"));
    let mut owner = root.controller_owner_ref(&kind.resource("v1")).unwrap();
    owner.api_version = format!("{}/v1beta1", kind.group);
    cluster
        .config_maps()
        .create(&PostParams::default(), &owned_by(&owner, "child"))
        .await
        .unwrap();
    eventually("the owner is reconciled", SOON, async || journal.count("root") > runs)
        .await;
    pause(SECOND).await;
    let told = |found: bool| if found { "found" } else { "not found" };
    report(
        9,
        "owner with an older apiVersion",
        told(theirs.count("root") > their_runs),
        "found",
    );
    task.abort();
    handle.stop(SOON).await;
}

// Trap 10.
#[tokio::test]
async fn workers_start_when_all_caches_are_filled() {
    let Some(cluster) = Cluster::shared().await else { return };
    create(&cluster.config_maps(), "root", "1").await;
    let secrets = Api::<Secret>::namespaced(cluster.client.clone(), &cluster.namespace);
    let secret = Secret {
        metadata: ObjectMeta { name: Some("late".to_owned()), ..ObjectMeta::default() },
        ..Secret::default()
    };
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    let client = slow_client(&cluster.new_client(), |path| Delays {
        request: if path.contains("/secrets") { 2 * SECOND } else { Duration::ZERO },
        ..Delays::default()
    });
    let mut controller = Controller::new(
        Api::<ConfigMap>::namespaced(client.clone(), &cluster.namespace),
        watcher::Config::default(),
    );
    let store = controller.store_of(
        Api::<Secret>::namespaced(client, &cluster.namespace),
        watcher::Config::default(),
    );
    let journal = Journal::default();
    let reconcile = move |request: Request<ConfigMap>, journal: Arc<Journal>| {
        journal.note(&request.key, Some(&store.len().to_string()));
        async { Ok::<_, kube::Error>(Action::await_change()) }
    };
    let handle = controller.start(reconcile, Arc::new(journal.clone())).unwrap();
    // Two waiters at once: kube's `wait_until_ready` wakes only one of them.
    let (one, two) = tokio::join!(handle.synced(), handle.synced());
    one.and(two).unwrap();
    eventually("the root is reconciled", SOON, async || !journal.runs().is_empty()).await;
    assert!(journal.runs().iter().all(|run| run.value.as_deref() == Some("1")));
    report(10, "workers before other caches are filled", "no such stores", "wait");
    handle.stop(SOON).await;
}

// Trap 11. The watch of children is late by 500 ms, and each parent is reconciled again at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_own_write_is_read_by_the_next_run() {
    const PARENTS: usize = 100;
    let Some(cluster) = Cluster::shared().await else { return };
    let api = cluster.config_maps();
    let client = slow_client(&cluster.new_client(), |path| Delays {
        parts: if path.contains("/secrets?") && path.contains("watch=true") {
            Duration::from_millis(500)
        } else {
            Duration::ZERO
        },
        ..Delays::default()
    });
    let children = Informer::new(
        Api::<Secret>::namespaced(client, &cluster.namespace),
        watcher::Config::default(),
    );
    let (store, secrets) = (
        children.store(),
        Api::<Secret>::namespaced(cluster.client.clone(), &cluster.namespace),
    );
    let created = secrets.clone();
    let reconcile = move |request: Request<ConfigMap>, journal: Arc<Journal>| {
        let (store, secrets) = (store.clone(), created.clone());
        async move {
            journal.note(&request.key, request.object.as_deref().map(value));
            let Some(parent) = &request.object else { return Ok(Action::await_change()) };
            let uid = parent.uid();
            let is_child = |child: &Secret| {
                child
                    .owner_references()
                    .iter()
                    .any(|owner| Some(&owner.uid) == uid.as_ref())
            };
            if store.find(is_child).is_none() {
                let child = Secret {
                    metadata: ObjectMeta {
                        generate_name: Some(format!("{}-", request.key.name)),
                        owner_references: parent
                            .controller_owner_ref(&())
                            .map(|o| vec![o]),
                        ..ObjectMeta::default()
                    },
                    ..Secret::default()
                };
                request.wrote(&secrets.create(&PostParams::default(), &child).await?);
            }
            Ok::<_, kube::Error>(Action::await_change())
        }
    };
    let journal = Journal::default();
    let handle = Controller::new(api.clone(), watcher::Config::default())
        .owns_informer(&children)
        .start(reconcile, Arc::new(journal.clone()))
        .unwrap();
    handle.synced().await.unwrap();
    let name = |n: usize| format!("parent-{n:03}");
    crate::support::create_many(&api, (0..PARENTS).map(name)).await;
    for n in 0..PARENTS {
        edit(&api, &name(n), "second").await;
    }
    eventually("all parents are reconciled again", 2 * SOON, async || {
        (0..PARENTS).all(|n| journal.saw(&name(n), "second"))
    })
    .await;
    let count = secrets.list(&ListParams::default()).await.unwrap().items.len();
    assert_eq!(count, PARENTS, "children of {PARENTS} parents");
    report(
        11,
        "children of 100 parents, late watch",
        "no such guard",
        &count.to_string(),
    );
    handle.stop(SOON).await;
}

// Trap 16.
#[tokio::test]
async fn a_status_write_does_not_trigger_itself() {
    let Some(cluster) = Cluster::shared().await else { return };
    let kind = Kind::create(&cluster.client, &["v1"]).await;
    let widgets = kind.api("v1", &cluster.namespace);
    widgets.create(&PostParams::default(), &kind.object("v1", "root")).await.unwrap();
    let journal = Journal::default();
    let api = widgets.clone();
    let reconcile = move |request: Request<DynamicObject>, journal: Arc<Journal>| {
        let api = api.clone();
        async move {
            journal.note(&request.key, request.object.is_some().then_some(""));
            if request.object.is_some() {
                let status = json!({"status": {"runs": journal.runs().len()}});
                let params = PatchParams::default();
                api.patch_status(&request.key.name, &params, &Patch::Merge(status))
                    .await?;
            }
            Ok::<_, kube::Error>(Action::await_change())
        }
    };
    let handle = Controller::new_with(
        widgets.clone(),
        watcher::Config::default(),
        kind.resource("v1"),
    )
    .predicate(predicates::generation)
    .start(reconcile, Arc::new(journal.clone()))
    .unwrap();
    eventually("the object is reconciled", SOON, async || journal.count("root") == 1)
        .await;
    for n in 1..=3 {
        let spec = json!({"spec": {"n": n}});
        widgets
            .patch("root", &PatchParams::default(), &Patch::Merge(spec))
            .await
            .unwrap();
        eventually("a spec change is reconciled", SOON, async || {
            journal.count("root") > n
        })
        .await;
        pause(SECOND / 2).await;
        assert_eq!(journal.count("root"), n + 1, "one run per spec change");
    }
    widgets.delete("root", &kube::api::DeleteParams::default()).await.unwrap();
    eventually("a delete passes", SOON, async || journal.saw_gone("root")).await;
    report(16, "runs per spec change with status writes", "needs unstable streams", "1");
    handle.stop(SOON).await;
}

// An object that cannot be decoded: it is counted and skipped, the others are reconciled.
#[tokio::test]
async fn an_undecodable_object_is_skipped() {
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};
    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(
        group = "undecodable.requeue.test",
        version = "v1",
        kind = "Widget",
        namespaced
    )]
    struct WidgetSpec {
        n: u32,
    }
    let Some(cluster) = Cluster::shared().await else { return };
    let kind = Kind::in_group(&cluster.client, "undecodable.requeue.test").await;
    let widgets = kind.api("v1", &cluster.namespace);
    let mut bad = kind.object("v1", "bad");
    bad.data = json!({"spec": {"n": "not a number"}});
    widgets.create(&PostParams::default(), &bad).await.unwrap();
    widgets.create(&PostParams::default(), &kind.object("v1", "good")).await.unwrap();
    let journal = Journal::default();
    let reconcile = |request: Request<Widget>, journal: Arc<Journal>| async move {
        let n = request.object.as_ref().map(|widget| widget.spec.n.to_string());
        journal.note(&request.key, n.as_deref());
        Ok::<_, kube::Error>(Action::await_change())
    };
    let api = Api::<Widget>::namespaced(cluster.client.clone(), &cluster.namespace);
    let handle = Controller::new(api, watcher::Config::default())
        .start(reconcile, Arc::new(journal.clone()))
        .unwrap();
    handle.synced().await.unwrap();
    eventually("the good object is reconciled", SOON, async || journal.saw("good", "0"))
        .await;
    assert!(handle.watches()[0].undecodable >= 1, "{:?}", handle.watches());
    widgets
        .patch("good", &PatchParams::default(), &Patch::Merge(json!({"spec": {"n": 7}})))
        .await
        .unwrap();
    eventually("the watch goes on", SOON, async || journal.saw("good", "7")).await;
    let repaired = json!({"spec": {"n": 1}});
    widgets.patch("bad", &PatchParams::default(), &Patch::Merge(repaired)).await.unwrap();
    eventually("a repaired object is reconciled", SOON, async || journal.saw("bad", "1"))
        .await;
    handle.stop(SOON).await;
}
