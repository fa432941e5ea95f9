//! The store that `requeue run` uses, and the flags that do not work with one.

use std::io::{self, IsTerminal};
use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::address::StoreAddress;
use crate::flags::{JitterForm, RunFlags, Scope};
use crate::input::Mode;
use crate::queue::StoreOptions;
use crate::values::{Backoff, Rate};

#[derive(Debug)]
pub(crate) struct StorePlan {
    pub(crate) address: StoreAddress,
    pub(crate) options: StoreOptions,
    pub(crate) mode: Mode,
}

/// Returns when the run ends. `has_keys`: there are keys after `:::`.
pub(super) fn mode(flags: &RunFlags, has_keys: bool) -> Result<Mode> {
    if flags.store.worker && flags.store.store.is_none() {
        bail!("--worker needs --store or REQUEUE_STORE: its keys come from there");
    }
    if flags.scheduling.rate_scope == Scope::Store && flags.store.store.is_none() {
        bail!("--rate-scope=store needs --store or REQUEUE_STORE");
    }
    if flags.retries.retry_rate_scope == Some(Scope::Store) && flags.store.store.is_none()
    {
        bail!("--retry-rate-scope=store needs --store or REQUEUE_STORE");
    }
    if flags.store.worker && has_keys {
        bail!("--worker reads no input and cannot be used with keys after ':::'");
    }
    let no_input = !has_keys && flags.input.arg_file.is_empty();
    let by_hand = flags.store.store.is_some() && no_input && io::stdin().is_terminal();
    Ok(if flags.store.worker || by_hand { Mode::Worker } else { Mode::UntilEmpty })
}

/// Returns the store, if one is given, and checks that it supports the other flags.
pub(super) fn plan(flags: &RunFlags, mode: Mode) -> Result<Option<StorePlan>> {
    let Some(address) = &flags.store.store else { return Ok(None) };
    reject_unsupported(flags)?;
    let address = StoreAddress::new(address, flags.store.queue.clone())?;
    let retries = &flags.retries;
    let rate = match retries.retry_rate {
        Rate::Unlimited => None,
        Rate::PerSecond(_) if retries.retry_rate_scope == Some(Scope::Process) => None,
        Rate::PerSecond(rate) => Some(shared_rate(rate, retries.retry_burst)),
    };
    let Backoff { base, max } = retries.backoff;
    let options = StoreOptions {
        lease: flags.store.lease,
        max_deliveries: flags.store.max_deliveries(),
        revive_after: flags.store.revive_after,
        backoff: requeue_store::Backoff { base, max, rate },
    };
    Ok(Some(StorePlan { address, options, mode }))
}

/// Returns a rate that a store enforces for all workers.
pub(crate) fn shared_rate(per_second: f64, burst: NonZeroU32) -> requeue_store::Rate {
    let interval = Duration::try_from_secs_f64(1.0 / per_second).unwrap_or(Duration::MAX);
    requeue_store::Rate { interval, burst }
}

fn reject_unsupported(flags: &RunFlags) -> Result<()> {
    let unsupported = [
        (
            flags.scheduling.fair_by.is_some(),
            "--fair-by",
            "a store orders keys by priority and has no groups",
        ),
        (
            flags.scheduling.debounce.is_some(),
            "--debounce",
            "a store keeps the earliest deadline of a key, not the latest",
        ),
        (
            flags.retries.jitter != JitterForm::None,
            "--jitter",
            "a store computes the backoff itself, without jitter",
        ),
        (
            flags.record.resume.is_some(),
            "--resume",
            "a store already keeps the unfinished keys",
        ),
    ];
    match unsupported.into_iter().find(|(given, ..)| *given) {
        Some((_, flag, why)) => bail!("{flag} cannot be used with --store: {why}"),
        None => Ok(()),
    }
}
