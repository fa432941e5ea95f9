//! Processes that work on keys.

use std::time::Duration;

use anyhow::Result;
use requeue::Finish;
use requeue_store::{
    Backoff, FinishRequest, Grant, Hold, Key, LeaseRequest, Owner, Reply, SharedLease,
    Store,
};

use super::{Process, Queue};
use crate::history::event::Event;
use crate::random::Random;
use crate::run::plan::{Behaviour, MAX_DELIVERIES};
use crate::run::scenario::Scenario;
use crate::store::recorder::Recorder;
use crate::time::sleep;

/// The longest time that a raw worker waits for keys. Calls may take twice as long.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// The error of keys whose runs never succeed.
const FAILURE: &str = "every run fails";

/// Processes keys until the queue is closed.
pub(super) async fn run(process: Process, queue: Queue) -> Result<()> {
    let tasks = (0..process.plan.scenario.concurrency()).map(|task| {
        let (process, queue) = (process.clone(), queue.clone());
        let random = process.random(task);
        tokio::spawn(async move { run_task(&process, &queue, random).await })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await??;
    }
    Ok(())
}

async fn run_task(process: &Process, queue: &Queue, mut random: Random) -> Result<()> {
    loop {
        match queue.get().await {
            Ok(Some(lease)) => run_lease(process, lease, &mut random).await?,
            Ok(None) => return Ok(()),
            Err(_) => sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Runs one key. Often ignores that the lease was lost: the store must then refuse the
/// finish.
async fn run_lease(
    process: &Process,
    lease: SharedLease<String, Recorder>,
    random: &mut Random,
) -> Result<()> {
    record_run(process, lease.key(), lease.token().0)?;
    sleep(run_time(random)).await;
    if lease.is_lost() && random.percent(30) {
        return Ok(());
    }
    let behaviour = process.plan.behaviour(lease.key());
    if behaviour == Behaviour::Crashes && !process.plan.scenario.is_calm() {
        let key = Key::new(lease.key().clone().into_bytes())?;
        process.crashed_runs.crash(Hold { key, token: lease.token() });
    }
    let finish = match (behaviour, random.below(100)) {
        (Behaviour::Fails | Behaviour::Crashes, 0..90) => {
            lease.with_error(FAILURE).give_up()
        }
        (Behaviour::Fails | Behaviour::Crashes, 90..95) => {
            lease.with_error(FAILURE).retry()
        }
        (Behaviour::Succeeds, 0..84) => lease.succeed(),
        (Behaviour::Succeeds, 84..89) => lease.done(),
        (Behaviour::Succeeds, 89..94) => lease.with_error("chance").retry(),
        (Behaviour::Succeeds, 94..97) => lease.retry_after(random.millis(1..40)),
        _ => lease.release(),
    };
    // The recorder has written down the answer.
    drop(finish.await);
    Ok(())
}

fn record_run(process: &Process, key: &str, token: u64) -> Result<()> {
    let versions = process.versions.read(key)?;
    process.journal.write(Event::Run { key: key.to_owned(), token, versions });
    Ok(())
}

/// Returns how long a run takes: mostly short, sometimes longer than a lease.
fn run_time(random: &mut Random) -> Duration {
    match random.below(100) {
        0..70 => random.millis(0..25),
        70..97 => random.millis(25..120),
        _ => random.millis(300..700),
    }
}

/// Processes keys directly on the store, without heartbeats. A run that takes longer than
/// its lease finishes too late, on purpose.
pub(super) async fn run_raw(process: Process) -> Result<()> {
    let (mut random, Scenario { lease, .. }) = (process.random(0), process.plan.scenario);
    let owner = Owner::new(process.name.clone());
    let max_deliveries = Some(MAX_DELIVERIES);
    let request = LeaseRequest { owner, max: 3, lease, max_deliveries };
    loop {
        let leased = process.store.lease(&request);
        let Some(leased) = answer_of(&process, &request.owner, leased).await else {
            continue;
        };
        if leased.grants.is_empty() {
            let timeout = leased.more_in.unwrap_or(MAX_WAIT).min(MAX_WAIT);
            answer_of(&process, &request.owner, process.store.wait(timeout)).await;
        } else {
            let ends = run_grants(&process, &leased.grants, &mut random).await?;
            if !ends.is_empty() {
                answer_of(&process, &request.owner, process.store.finish(&ends)).await;
            }
        }
    }
}

/// Returns the answer to a call, if it succeeds in time. Otherwise the worker may hold leases
/// that it does not know of. Long ones are released; short ones soon expire.
async fn answer_of<T>(process: &Process, owner: &Owner, call: Reply<'_, T>) -> Option<T> {
    let answer = tokio::time::timeout(MAX_WAIT * 2, call).await.ok().and_then(Result::ok);
    if answer.is_none() {
        sleep(Duration::from_millis(50)).await;
        if process.plan.scenario.is_calm() {
            process.release_leases(owner).await;
        }
    }
    answer
}

/// Runs some keys together. Returns how to finish them.
async fn run_grants(
    process: &Process,
    grants: &[Grant],
    random: &mut Random,
) -> Result<Vec<FinishRequest>> {
    for grant in grants {
        record_run(process, &grant.key.to_string(), grant.token.0)?;
    }
    let is_late = random.percent(20) && !process.plan.scenario.is_calm();
    sleep(if is_late { random.millis(450..800) } else { run_time(random) }).await;
    Ok(grants.iter().filter_map(|grant| finish_of(process, grant, random)).collect())
}

/// Returns how to finish a run, or `None` if it crashes. In a calm run no key crashes,
/// because its long lease would not expire in time.
fn finish_of(
    process: &Process,
    grant: &Grant,
    random: &mut Random,
) -> Option<FinishRequest> {
    let hold = Hold { key: grant.key.clone(), token: grant.token };
    let behaviour = process.plan.behaviour(&grant.key.to_string());
    let finish = match (behaviour, random.below(100)) {
        (Behaviour::Crashes, _) if !process.plan.scenario.is_calm() => return None,
        (Behaviour::Crashes | Behaviour::Fails, _) => Finish::GiveUp,
        (Behaviour::Succeeds, 0..90) => Finish::Succeed,
        (Behaviour::Succeeds, 90..95) => Finish::Retry,
        _ => Finish::Release,
    };
    let error = if finish == Finish::GiveUp { FAILURE } else { "chance" }.to_owned();
    let (base, max) = (Duration::from_millis(5), Duration::from_millis(100));
    Some(FinishRequest {
        hold,
        finish,
        backoff: Backoff { base, max, rate: None },
        error,
    })
}
