//! The store of a run, and what it is asked for.

use std::io::{self, IsTerminal};
use std::time::Duration;

use anyhow::{Result, bail};

use crate::flags::{JitterForm, RunFlags};
use crate::input::Work;
use crate::shared::Terms;
use crate::store::Place;
use crate::values::{Backoff, Rate};

/// The store of a run.
#[derive(Debug)]
pub(crate) struct StorePlan {
    pub(crate) place: Place,
    pub(crate) terms: Terms,
    pub(crate) work: Work,
}

/// What a run works on, if it has a store.
pub(super) fn work(flags: &RunFlags, keys: bool) -> Result<Work> {
    if flags.store.worker && flags.store.store.is_none() {
        bail!("--worker needs --store, or REQUEUE_STORE: it has its keys from there");
    }
    if flags.store.worker && keys {
        bail!("--worker reads no keys, and there are some behind ':::'");
    }
    let no_input = !keys && flags.input.arg_file.is_empty();
    let by_hand = flags.store.store.is_some() && no_input && io::stdin().is_terminal();
    Ok(if flags.store.worker || by_hand { Work::OnStore } else { Work::OnInput })
}

/// The store that is asked for, if one is, and if it can do what is asked for.
pub(super) fn store(flags: &RunFlags, work: Work) -> Result<Option<StorePlan>> {
    let Some(address) = &flags.store.store else { return Ok(None) };
    refuse_on_store(flags)?;
    let place = Place::new(address, flags.store.queue.clone())?;
    let policy = &flags.policy;
    let rate = match policy.retry_rate {
        Rate::Unlimited => None,
        Rate::PerSecond(rate) => Some(requeue_store::Rate {
            interval: Duration::try_from_secs_f64(1.0 / rate).unwrap_or(Duration::MAX),
            burst: policy.retry_burst,
        }),
    };
    let Backoff { base, max } = policy.backoff;
    let terms = Terms {
        lease: flags.store.lease,
        max_deliveries: flags.store.max_deliveries(),
        revive_after: flags.store.revive_after,
        backoff: requeue_store::Backoff { base, max, rate },
    };
    Ok(Some(StorePlan { place, terms, work }))
}

fn refuse_on_store(flags: &RunFlags) -> Result<()> {
    let policy = &flags.policy;
    let unfit = [
        (policy.fair_by.is_some(), "--fair-by", "knows priorities, but no groups"),
        (
            policy.debounce.is_some(),
            "--debounce",
            "keeps the earliest time of a key, and not the latest",
        ),
        (
            policy.jitter != JitterForm::None,
            "--jitter",
            "keeps the backoff of all workers, without chance",
        ),
        (
            flags.record.resume.is_some(),
            "--resume",
            "knows by itself which keys are left",
        ),
    ];
    match unfit.into_iter().find(|(given, ..)| *given) {
        Some((_, flag, why)) => {
            bail!("{flag} cannot be used with --store: a store {why}")
        }
        None => Ok(()),
    }
}
