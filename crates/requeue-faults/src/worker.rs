//! A process, or a part of one, that works on keys.

use std::time::Duration;

use anyhow::Result;
use requeue_store::{
    Backoff, End, Ending, Grant, Hold, Key, LeaseRequest, Owner, Reply, SharedLease,
    Store,
};

use crate::dice::Dice;
use crate::event::Event;
use crate::process::{Process, Queue, pause};
use crate::recorder::Recorder;
use crate::scene::Scene;
use crate::world::{Fate, MOST_DELIVERIES};

/// The longest that a raw worker waits for keys; calls may take twice as long.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is said of a key whose runs never go well.
const GRIM: &str = "it never goes well";

/// Works until the queue is closed.
pub(crate) async fn work(process: Process, queue: Queue) -> Result<()> {
    let tasks = (0..process.plan.scene.tasks()).map(|task| {
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
    let fate = process.plan.fate(lease.key());
    if fate == Fate::Kills && !process.plan.scene.is_calm() {
        let key = Key::new(lease.key().clone().into_bytes())?;
        process.muted.kill(Hold { key, token: lease.token() });
    }
    let ending = match (fate, dice.below(100)) {
        (Fate::Fails | Fate::Kills, 0..90) => lease.bury(GRIM),
        (Fate::Fails | Fate::Kills, 90..95) => lease.retry(GRIM),
        (Fate::Goes, 0..84) => lease.succeed(),
        (Fate::Goes, 84..89) => lease.done(),
        (Fate::Goes, 89..94) => lease.retry("chance"),
        (Fate::Goes, 94..97) => lease.retry_after(dice.millis(1..40)),
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
    let (mut dice, Scene { lease, .. }) = (process.dice(0), process.plan.scene);
    let owner = Owner::new(process.name.clone());
    let max_deliveries = Some(MOST_DELIVERIES);
    let request = LeaseRequest { owner, max: 3, lease, max_deliveries };
    loop {
        let leased = process.store.lease(&request);
        let Some(leased) = heard(&process, &request.owner, leased).await else {
            continue;
        };
        if leased.grants.is_empty() {
            let at_most = leased.more_in.unwrap_or(PATIENCE).min(PATIENCE);
            heard(&process, &request.owner, process.store.wait(at_most)).await;
        } else {
            let ends = run_raw(&process, &leased.grants, &mut dice).await?;
            if !ends.is_empty() {
                heard(&process, &request.owner, process.store.finish(&ends)).await;
            }
        }
    }
}

/// The answer to a call. If none comes, leases may be held that nobody knows of: short ones
/// soon pass.
async fn heard<T>(process: &Process, owner: &Owner, call: Reply<'_, T>) -> Option<T> {
    let answer = tokio::time::timeout(PATIENCE * 2, call).await.ok().and_then(Result::ok);
    if answer.is_none() {
        pause(Duration::from_millis(50)).await;
        if process.plan.scene.is_calm() {
            process.give_back(owner).await;
        }
    }
    answer
}

/// Runs these together: how they are to end.
async fn run_raw(
    process: &Process,
    grants: &[Grant],
    dice: &mut Dice,
) -> Result<Vec<End>> {
    for grant in grants {
        begin(process, &grant.key.to_string(), grant.token.0)?;
    }
    let late = dice.percent(20) && !process.plan.scene.is_calm();
    pause(if late { dice.millis(450..800) } else { duration(dice) }).await;
    Ok(grants.iter().filter_map(|grant| end(process, grant, dice)).collect())
}

/// How a run is to end; not at all, if it died of its key. Where leases are long, nobody
/// waits for that.
fn end(process: &Process, grant: &Grant, dice: &mut Dice) -> Option<End> {
    let hold = Hold { key: grant.key.clone(), token: grant.token };
    let fate = process.plan.fate(&grant.key.to_string());
    let ending = match (fate, dice.below(100)) {
        (Fate::Kills, _) if !process.plan.scene.is_calm() => return None,
        (Fate::Kills | Fate::Fails, _) => Ending::Bury { reason: GRIM.to_owned() },
        (Fate::Goes, 0..90) => Ending::Succeed,
        (Fate::Goes, 90..95) => {
            let (base, max) = (Duration::from_millis(5), Duration::from_millis(100));
            let backoff = Backoff { base, max, rate: None };
            Ending::Retry { backoff, error: "chance".to_owned() }
        }
        _ => Ending::Release,
    };
    Some(End { hold, ending })
}
