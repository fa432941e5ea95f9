//! Processes that work on keys.

use std::time::Duration;

use anyhow::Result;
use requeue::Finish;
use requeue_store::{
    FinishRequest, Grant, Hold, Key, LeaseRequest, Owner, RepliesExt, Reply, SharedLease,
    Store,
};

use super::{BACKOFF, Process, Queue};
use crate::history::event::Event;
use crate::random::Random;
use crate::run::plan::{Behaviour, MAX_DELIVERIES};
use crate::run::scenario::Scenario;
use crate::store::recorder::Recorder;
use crate::time::sleep;

/// The longest time that a raw worker waits for keys. Calls may take twice as long.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// The error of failed runs.
const FAILURE: &str = "the run failed";

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
/// finish. Sometimes drops the lease, which retries the key.
async fn run_lease(
    process: &Process,
    lease: SharedLease<String, Recorder>,
    random: &mut Random,
) -> Result<()> {
    record_run(process, lease.key(), lease.token().0)?;
    sleep(run_time(process, random)).await;
    if random.percent(2) || lease.is_lost() && random.percent(30) {
        return Ok(());
    }
    let behaviour = process.plan.behaviour(lease.key());
    if behaviour == Behaviour::Crashes && process.plan.scenario.has_crashes() {
        let key = Key::new(lease.key().clone().into_bytes())?;
        process.crashed_runs.crash(Hold { key, token: lease.token() });
    }
    let finish = pick_finish(behaviour, random);
    // The recorder writes down the answer.
    drop(lease.with_error(FAILURE).finish(finish).await);
    Ok(())
}

/// Picks how a run ends, mostly according to its behaviour.
fn pick_finish(behaviour: Behaviour, random: &mut Random) -> Finish {
    match (behaviour, random.below(100)) {
        (Behaviour::Fails | Behaviour::Crashes, 0..90) => Finish::GiveUp,
        (Behaviour::Succeeds, 0..82) => Finish::Succeed,
        (Behaviour::Succeeds, 82..86) => Finish::Done,
        (Behaviour::Succeeds, 86..89) => Finish::RetryAfter(random.millis(1..40)),
        (Behaviour::Succeeds, 89..92) => Finish::RequeueAfter(random.millis(1..40)),
        (_, 90..96) => Finish::Retry,
        _ => Finish::Release,
    }
}

fn record_run(process: &Process, key: &str, token: u64) -> Result<()> {
    let versions = process.versions.read(key)?;
    process.journal.write(Event::Run { key: key.to_owned(), token, versions });
    Ok(())
}

/// Returns how long a run takes: mostly short, sometimes longer than a lease.
fn run_time(process: &Process, random: &mut Random) -> Duration {
    match random.below(100) {
        60..100 if process.plan.scenario.is_steady() => random.millis(2500..9000),
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
            let finishes = run_grants(&process, &leased.grants, &mut random).await?;
            if !finishes.is_empty() {
                let call = process.store.finish(&finishes).all();
                answer_of(&process, &request.owner, call).await;
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
    let is_late = random.percent(20) && process.plan.scenario.has_crashes();
    sleep(if is_late { random.millis(450..800) } else { run_time(process, random) })
        .await;
    Ok(grants.iter().filter_map(|grant| finish_of(process, grant, random)).collect())
}

/// Returns how to finish a run, or `None` if it crashes. In a calm run no key crashes,
/// because its long lease would not expire in time.
fn finish_of(
    process: &Process,
    grant: &Grant,
    random: &mut Random,
) -> Option<FinishRequest> {
    let behaviour = process.plan.behaviour(&grant.key.to_string());
    if behaviour == Behaviour::Crashes && process.plan.scenario.has_crashes() {
        return None;
    }
    let hold = Hold { key: grant.key.clone(), token: grant.token };
    let request = FinishRequest::new(hold, pick_finish(behaviour, random));
    Some(FinishRequest { backoff: BACKOFF, ..request }.with_error(FAILURE))
}
