//! Retries, order, rates and reasons.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use requeue::rate::{Limit, Limiter};
use requeue::retry::Exponential;

use super::*;

#[tokio::test(start_paused = true)]
async fn deleted_object_is_reconciled_as_gone() {
    let cluster = FakeCluster::new();
    cluster.put(&config_map("a", "1"));
    let (_handle, mut calls) = start(controller(&cluster));
    let listed = calls.next().await;
    assert_eq!((listed.value.as_deref(), listed.reasons), (Some("1"), Reasons::LISTED));
    cluster.remove::<ConfigMap>("default", "a");
    let gone = calls.next().await;
    assert_eq!((gone.value, gone.reasons), (None, Reasons::DELETED));
}

/// kube-runtime reports `ObjectNotFound` instead, not to the reconciler.
#[tokio::test(start_paused = true)]
async fn object_that_goes_while_it_is_queued_is_reconciled_as_gone() {
    let cluster = FakeCluster::new();
    for index in 0..500 {
        cluster.put(&config_map(&format!("m{index:03}"), "1"));
    }
    let (handle, mut calls) = start(controller(&cluster).workers(0));
    within(handle.synced()).await.expect("the server works");
    cluster.remove::<ConfigMap>("default", "m400");
    within(async {
        while handle.store().len() == 500 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    handle.set_workers(4);
    let first = calls.next().await;
    assert_eq!((first.name.as_str(), first.value), ("m400", None));
    assert_eq!(calls.take(499).await.len(), 499);
}

#[derive(Default)]
struct Failing {
    broken: AtomicBool,
    attempts: Mutex<Vec<u32>>,
}

async fn fail_if_broken(
    request: Request<ConfigMap>,
    state: Arc<Failing>,
) -> Result<Action, String> {
    state.attempts.lock().unwrap().push(request.attempt);
    if state.broken.load(Ordering::SeqCst) {
        return Err("broken".to_owned());
    }
    Ok(Action::await_change())
}

#[tokio::test(start_paused = true)]
async fn failures_back_off_per_object_and_success_resets() {
    let cluster = FakeCluster::new();
    cluster.put(&config_map("a", "1"));
    let state = Arc::new(Failing { broken: true.into(), ..Failing::default() });
    let second = Duration::from_secs(1);
    let handle = controller(&cluster)
        .retry(Exponential::new(second, 1000 * second))
        .start(fail_if_broken, Arc::clone(&state))
        .expect("there is a runtime");
    within(handle.synced()).await.expect("the server works");
    settle().await;
    for _ in 0..7 {
        tokio::time::advance(second).await;
        settle().await;
    }
    assert_eq!(*state.attempts.lock().unwrap(), [1, 2, 3, 4], "after 0, 1, 3 and 7 s");
    state.broken.store(false, Ordering::SeqCst);
    tokio::time::advance(8 * second).await;
    settle().await;
    let key = ObjectRef::new("a").within("default");
    assert_eq!(handle.queue().num_requeues(&key), 0);
    cluster.put(&config_map("a", "2"));
    settle().await;
    assert_eq!(*state.attempts.lock().unwrap(), [1, 2, 3, 4, 5, 1]);
}

/// The backoff of an object that is gone must not stay in memory.
#[tokio::test(start_paused = true)]
async fn failures_of_deleted_objects_are_forgotten() {
    let cluster = FakeCluster::new();
    let fail = |request: Request<ConfigMap>, _: Arc<()>| async move {
        match request.object {
            Some(_) => Err("broken"),
            None => Ok(Action::await_change()),
        }
    };
    let handle =
        controller(&cluster).start(fail, Arc::new(())).expect("there is a runtime");
    within(handle.synced()).await.expect("the server works");
    for index in 0..200 {
        cluster.put(&config_map(&format!("m{index}"), "1"));
    }
    settle().await;
    for index in 0..200 {
        cluster.remove::<ConfigMap>("default", &format!("m{index}"));
    }
    within(handle.queue().wait_idle()).await;
    let failures = |index| {
        let key = ObjectRef::<ConfigMap>::new(&format!("m{index}")).within("default");
        handle.queue().num_requeues(&key)
    };
    assert_eq!((0..200).map(failures).sum::<u32>(), 0);
}

/// Events of a flapping child run a failing parent at most once each.
#[tokio::test(start_paused = true)]
async fn events_during_backoff_do_not_multiply_runs() {
    let cluster = FakeCluster::new();
    cluster.put(&config_map("a", "1"));
    let state = Arc::new(Failing { broken: true.into(), ..Failing::default() });
    let handle = controller(&cluster)
        .owns(secrets(&cluster), watcher::Config::default())
        .start(fail_if_broken, Arc::clone(&state))
        .expect("there is a runtime");
    within(handle.synced()).await.expect("the server works");
    settle().await;
    let mut child = secret("default", "child", owned_by("v1", "ConfigMap", "a"));
    let events = 50;
    for round in 0..events {
        child.annotations_mut().insert("round".into(), round.to_string());
        cluster.put(&child);
        settle().await;
        tokio::time::advance(Duration::from_millis(100)).await;
        settle().await;
    }
    let attempts = state.attempts.lock().unwrap().len();
    // In 5 s the backoff alone allows ten retries.
    assert!(attempts <= events + 12, "{attempts} runs for {events} events");
}

#[tokio::test(start_paused = true)]
async fn panic_hang_and_error_cost_one_run_each() {
    let cluster = FakeCluster::new();
    for name in ["panics", "hangs", "fails", "works"] {
        cluster.put(&config_map(name, "1"));
    }
    let (sender, mut calls) = Calls::new();
    let (dead_sender, mut dead) = unbounded_channel();
    let reconcile = |request: Request<ConfigMap>, calls: Arc<UnboundedSender<Seen>>| async move {
        calls.send(seen(&request)).map_err(|error| error.to_string())?;
        match request.key.name.as_str() {
            "panics" => panic!("on purpose"),
            "hangs" => std::future::pending().await,
            "fails" => Err("on purpose".to_owned()),
            _ => Ok(Action::await_change()),
        }
    };
    let handle = controller(&cluster)
        .workers(2)
        .timeout(Duration::from_secs(10))
        .max_retries(2)
        .on_dead(move |key, failure| {
            dead_sender.send((key.name.clone(), failure.to_string())).unwrap();
        })
        .start(reconcile, Arc::new(sender))
        .expect("there is a runtime");
    let mut failures = BTreeMap::new();
    for _ in 0..3 {
        let (name, failure) = within(dead.recv()).await.expect("three objects die");
        failures.insert(name, failure);
    }
    assert_eq!(failures["panics"], "the handler panicked: on purpose");
    assert_eq!(failures["hangs"], "the run took longer than 10s");
    assert_eq!(failures["fails"], "on purpose");
    cluster.put(&config_map("works", "2"));
    within(handle.queue().wait_idle()).await;
    let runs = calls.rest().await;
    let count = |name: &str| runs.iter().filter(|seen| seen.name == name).count();
    assert_eq!([count("panics"), count("hangs"), count("fails")], [3, 3, 3]);
    assert!(runs.iter().any(|seen| seen.value.as_deref() == Some("2")));
    let retried =
        runs.iter().filter(|seen| seen.reasons.contains(Reasons::RETRY)).count();
    assert_eq!(retried, 6);
    cluster.put(&config_map("fails", "2"));
    assert_eq!(calls.next().await.name, "fails", "a change revives a dead object");
}

#[tokio::test(start_paused = true)]
async fn actions_requeue_give_up_and_back_off() {
    let cluster = FakeCluster::new();
    for name in ["hourly", "given-up", "backoff"] {
        cluster.put(&config_map(name, "1"));
    }
    let (sender, mut calls) = Calls::new();
    let reconcile = |request: Request<ConfigMap>, calls: Arc<UnboundedSender<Seen>>| async move {
        calls.send(seen(&request)).map_err(|error| error.to_string())?;
        Ok::<_, String>(match request.key.name.as_str() {
            "hourly" => Action::requeue(Duration::from_secs(600)),
            "given-up" => Action::give_up(),
            _ if request.attempt < 4 => Action::backoff(),
            _ => Action::await_change(),
        })
    };
    let handle = controller(&cluster)
        .start(reconcile, Arc::new(sender))
        .expect("there is a runtime");
    let seen = calls.take(6).await;
    assert_eq!(seen.len(), 3);
    assert_eq!(calls.rest().await, []);
    let later = calls.next().await;
    assert_eq!((later.name.as_str(), later.reasons), ("hourly", Reasons::DELAY));
    assert_eq!(handle.queue().counts().ready, 0);
}

#[tokio::test(start_paused = true)]
async fn rate_limits_all_objects_together() {
    let cluster = FakeCluster::new();
    for index in 0..20 {
        cluster.put(&config_map(&format!("m{index}"), "1"));
    }
    let limiter = Limiter::with_clock(Limit::per_second(1.0), 5, TokioClock::new());
    let (handle, mut calls) = start(controller(&cluster).workers(8).rate(limiter));
    within(handle.synced()).await.expect("the server works");
    assert_eq!(calls.rest().await.len(), 5);
    tokio::time::advance(Duration::from_secs(3)).await;
    assert_eq!(calls.rest().await.len(), 3);
    assert_eq!(handle.queue().num_requeues(&ObjectRef::new("m0").within("default")), 0);
}

#[tokio::test(start_paused = true)]
async fn busy_namespace_does_not_hold_up_others() {
    let cluster = FakeCluster::new();
    let (handle, mut calls) = start(controller(&cluster).workers(0).fair_namespaces());
    within(handle.synced()).await.expect("the server works");
    for index in 0..20 {
        cluster.put(&config_map(&format!("busy{index:02}"), "1"));
    }
    let mut calm = config_map("calm", "1");
    calm.metadata.namespace = Some("other".to_owned());
    cluster.put(&calm);
    within(async {
        while handle.queue().len() < 21 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    handle.set_workers(1);
    let first = [calls.next().await.name, calls.next().await.name];
    assert!(first.contains(&"calm".to_owned()), "{first:?}");
}

#[tokio::test(start_paused = true)]
async fn debounce_waits_for_quiet_but_not_for_ever() {
    let cluster = FakeCluster::new();
    let config = Config::default().debounce(Duration::from_secs(2)).concurrency(3);
    let (handle, mut calls) = start(controller(&cluster).with_config(config));
    within(handle.synced()).await.expect("the server works");
    assert_eq!(handle.workers(), 3);
    for round in 0..25 {
        cluster.put(&config_map("a", &round.to_string()));
        settle().await;
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    let seen = calls.rest().await;
    assert_eq!(seen.len(), 1, "once after ten times the delay: {seen:?}");
    assert_eq!(seen[0].reasons, Reasons::CHANGED);
    tokio::time::advance(Duration::from_secs(3)).await;
    assert_eq!(calls.rest().await.len(), 1, "once when it is quiet");
}

#[tokio::test(start_paused = true)]
async fn streams_and_resyncs_reconcile_objects() {
    let cluster = FakeCluster::new();
    for name in ["a", "b"] {
        cluster.put(&config_map(name, "1"));
    }
    let (keys, requested) = unbounded_channel();
    let (ticks, all) = unbounded_channel();
    let controller = controller(&cluster)
        .reconcile_on(stream(requested))
        .reconcile_all_on(stream(all))
        .resync(Duration::from_secs(600));
    let (_handle, mut calls) = start(controller);
    calls.take(2).await;
    keys.send(ObjectRef::new("a").within("default")).unwrap();
    let seen = calls.next().await;
    assert_eq!((seen.name.as_str(), seen.reasons), ("a", Reasons::REQUESTED));
    ticks.send(()).unwrap();
    assert_eq!(calls.next().await.reasons, Reasons::RESYNC);
    assert_eq!(calls.next().await.reasons, Reasons::RESYNC);
    assert_eq!(calls.rest().await, []);
    tokio::time::advance(Duration::from_secs(601)).await;
    assert_eq!(calls.rest().await.len(), 1, "spread over the period");
    tokio::time::advance(Duration::from_secs(300)).await;
    assert_eq!(calls.rest().await.len(), 1);
}

fn stream<T>(receiver: UnboundedReceiver<T>) -> impl futures::Stream<Item = T> {
    futures::stream::unfold(receiver, |mut receiver| async move {
        Some((receiver.recv().await?, receiver))
    })
}

#[tokio::test(start_paused = true)]
async fn events_during_a_run_cause_one_more_run() {
    let cluster = FakeCluster::new();
    cluster.put(&config_map("a", "1"));
    let runs = Arc::new(AtomicUsize::new(0));
    let reconcile = |_: Request<ConfigMap>, runs: Arc<AtomicUsize>| async move {
        runs.fetch_add(1, Ordering::SeqCst);
        settle().await;
        Ok::<_, String>(Action::await_change())
    };
    let handle = controller(&cluster)
        .start(reconcile, Arc::clone(&runs))
        .expect("there is a runtime");
    within(async {
        while runs.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    for round in 0..10 {
        cluster.put(&config_map("a", &round.to_string()));
    }
    within(handle.queue().wait_idle()).await;
    settle().await;
    within(handle.queue().wait_idle()).await;
    let runs = runs.load(Ordering::SeqCst);
    assert!((2..=3).contains(&runs), "{runs} runs");
}

/// A key that waits for its token has not run: when its worker leaves, that is no failure.
#[tokio::test(start_paused = true)]
async fn worker_that_leaves_releases_the_key_that_waits_for_a_token() {
    let cluster = FakeCluster::new();
    for name in ["a", "b"] {
        cluster.put(&config_map(name, "1"));
    }
    let limiter =
        Limiter::with_clock(Limit::every(Duration::from_secs(600)), 1, TokioClock::new());
    let (handle, mut calls) = start(controller(&cluster).workers(2).rate(limiter));
    within(handle.synced()).await.expect("the server works");
    assert_eq!(calls.rest().await.len(), 1);
    assert_eq!(handle.queue().counts().processing, 1);
    handle.set_workers(0);
    settle().await;
    let failures = |name: &str| {
        let key = ObjectRef::<ConfigMap>::new(name).within("default");
        handle.queue().num_requeues(&key)
    };
    assert_eq!((handle.queue().len(), failures("a"), failures("b")), (1, 0, 0));
}

/// A limit of zero was taken for no limit.
#[tokio::test(start_paused = true)]
async fn limit_of_zero_pauses_until_it_is_raised() {
    let cluster = FakeCluster::new();
    cluster.put(&config_map("a", "1"));
    let limiter = Limiter::with_clock(Limit::ZERO, 0, TokioClock::new());
    let (handle, mut calls) = start(controller(&cluster).rate(limiter.clone()));
    within(handle.synced()).await.expect("the server works");
    assert_eq!(calls.rest().await, []);
    limiter.set_burst(1);
    limiter.set_limit(Limit::per_second(1.0));
    assert_eq!(calls.next().await.name, "a");
}
