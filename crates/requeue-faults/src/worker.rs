//! A process, or a part of one, that works on keys.

use std::time::Duration;

use anyhow::Result;
use requeue_store::{
    Backoff, End, Ending, Grant, Hold, LeaseRequest, Owner, SharedLease, Store,
};

use crate::dice::Dice;
use crate::event::Event;
use crate::process::{Process, Queue, pause};
use crate::recorder::Recorder;
use crate::world::LEASE;

/// How many runs a worker has at a time.
const TASKS: usize = 6;

/// The longest that a call of a raw worker is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Works until the queue is closed.
pub(crate) async fn work(process: Process, queue: Queue) -> Result<()> {
    let tasks = (0..TASKS).map(|task| {
        let (process, queue, dice) = (process.clone(), queue.clone(), process.dice(task));
        tokio::spawn(async move { keep_working(&process, &queue, dice).await })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await??;
    }
    Ok(())
}

async fn keep_working(process: &Process, queue: &Queue, mut dice: Dice) -> Result<()> {
    loop {
        match queue.get().await {
            Ok(Some(lease)) => run(process, lease, &mut dice).await?,
            Ok(None) => return Ok(()),
            Err(_) => pause(Duration::from_millis(20)).await,
        }
    }
}

/// One run. Whether its lease was lost is no concern of every worker: some end it all the
/// same, and are to be refused.
async fn run(
    process: &Process,
    lease: SharedLease<String, Recorder>,
    dice: &mut Dice,
) -> Result<()> {
    begin(process, lease.key(), lease.token().0)?;
    pause(duration(dice)).await;
    if lease.is_lost() && dice.percent(30) {
        return Ok(());
    }
    let ending = match dice.below(100) {
        0..84 => lease.succeed(),
        84..89 => lease.done(),
        89..94 => lease.retry("chance"),
        94..97 => lease.retry_after(dice.millis(1..40)),
        _ => lease.release(),
    };
    // What became of it is in the journal of the store.
    drop(ending.await);
    Ok(())
}

fn begin(process: &Process, key: &str, token: u64) -> Result<()> {
    let versions = process.world.versions(key)?;
    process.journal.write(Event::Run { key: key.to_owned(), token, versions });
    Ok(())
}

/// Mostly short, sometimes longer than a lease.
fn duration(dice: &mut Dice) -> Duration {
    match dice.below(100) {
        0..70 => dice.millis(0..25),
        70..97 => dice.millis(25..120),
        _ => dice.millis(300..700),
    }
}

/// Works on the bare store, without heartbeats: what takes longer than the lease is ended
/// too late, on purpose.
pub(crate) async fn work_raw(process: Process) -> Result<()> {
    let mut dice = process.dice(0);
    let request = LeaseRequest {
        owner: Owner::new(process.name.clone()),
        max: 3,
        lease: LEASE,
        max_deliveries: None,
    };
    loop {
        let leased = tokio::time::timeout(PATIENCE, process.store.lease(&request)).await;
        let Ok(Ok(leased)) = leased else {
            pause(Duration::from_millis(50)).await;
            continue;
        };
        if leased.grants.is_empty() {
            let at_most = leased.more_in.unwrap_or(LEASE).min(LEASE);
            drop(tokio::time::timeout(PATIENCE, process.store.wait(at_most)).await);
        }
        run_raw(&process, &leased.grants, &mut dice).await?;
    }
}

async fn run_raw(process: &Process, grants: &[Grant], dice: &mut Dice) -> Result<()> {
    for grant in grants {
        begin(process, &grant.key.to_string(), grant.token.0)?;
    }
    if !grants.is_empty() {
        let late = dice.percent(20);
        pause(if late { dice.millis(450..800) } else { duration(dice) }).await;
        let ends: Vec<_> = grants.iter().map(|grant| end(grant, dice)).collect();
        drop(tokio::time::timeout(PATIENCE, process.store.finish(&ends)).await);
    }
    Ok(())
}

fn end(grant: &Grant, dice: &mut Dice) -> End {
    let hold = Hold { key: grant.key.clone(), token: grant.token };
    let ending = match dice.below(100) {
        0..90 => Ending::Succeed,
        90..95 => {
            let (base, max) = (Duration::from_millis(5), Duration::from_millis(100));
            let backoff = Backoff { base, max, rate: None };
            Ending::Retry { backoff, error: "chance".to_owned() }
        }
        _ => Ending::Release,
    };
    End { hold, ending }
}
