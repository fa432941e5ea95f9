//! The part of a worker that only concerns keys of a store.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use requeue::Finish;
use requeue_store::{Class, Error, ErrorKind, Finished};

use super::{Decision, KeyRun, Worker};
use crate::command::{Group, ProcessId};
use crate::journal::Journal;
use crate::queue::{LossGuard, RunLease, StoreLease, StoreQueue, fatal};
use crate::report::{chain, shown};

impl Worker {
    /// Finishes a lease as decided, and reports a retry or an error.
    pub(super) fn finish_in_store(
        &self,
        queue: &StoreQueue,
        lease: StoreLease,
        decision: Decision,
    ) {
        let (key, failures) = (lease.key().clone(), lease.failures() + 1);
        let (finish, error) = match decision {
            Decision::LeaseLost => return self.abandon_lease(queue, lease),
            Decision::Finish(finish, error) => (finish, error),
        };
        if finish == Finish::Release {
            self.runner.leave(&key);
        }
        let retried = finish == Finish::Retry;
        let finish = match (&self.retry_limiter, finish) {
            (Some(limiter), Finish::Retry) => {
                let backoff = self.policy.backoff.after(failures);
                Finish::RetryAfter(
                    limiter.reserve().map_or(backoff, |it| backoff.max(it.delay())),
                )
            }
            (_, finish) => finish,
        };
        match queue.finish(lease, finish, error) {
            Ok(Finished::Delayed(delay)) if retried => {
                self.report_retry(&key, failures, delay);
            }
            Ok(Finished::Requeued) if retried => {
                self.report_retry(&key, failures, Duration::ZERO);
            }
            Ok(_) => {}
            Err(error) => self.report_unfinished(&key, &error),
        }
    }

    /// Releases a lost lease. The store is expected to refuse that.
    fn abandon_lease(&self, queue: &StoreQueue, lease: StoreLease) {
        let key = lease.key().clone();
        self.runner.check_log(self.runner.report.lost(&key));
        match queue.finish(lease, Finish::Release, String::new()) {
            Err(error) if error.kind() != ErrorKind::LeaseLost => {
                self.report_unfinished(&key, &error);
            }
            Ok(_) | Err(_) => {}
        }
    }

    fn report_retry(&self, key: &[u8], failures: u32, delay: Duration) {
        let report = &self.runner.report;
        let delay = self.retry_delay(failures, delay);
        self.runner.check_log(report.retried(report.reserve(), key, failures, delay));
    }

    fn report_unfinished(&self, key: &[u8], error: &Error) {
        let (name, why) = (shown(key), chain(error));
        match error.class() {
            Class::GiveUpKey if error.kind() == ErrorKind::LeaseLost => {
                self.runner.report.note(&format!(
                    "lease on {name} expired before it was finished; the key will run \
                     again: {why}"
                ));
            }
            Class::RetryHere | Class::RetryElsewhere => {
                self.runner.leave(key);
                self.runner.report.note(&format!(
                    "the store may not know that {name} is finished: {why}"
                ));
            }
            Class::GiveUpKey | Class::GiveUp | _ => self.runner.fail(&fatal(error)),
        }
    }

    /// Terminates the command of a run if its lease is lost before the guard is dropped.
    pub(super) fn on_loss(&self, run: &KeyRun<'_>, group: Group) -> Option<LossGuard> {
        let (queue, lease) = (self.runner.queue.store()?, run.lease.store()?);
        let [first, second] = [Arc::clone(&self.runner), Arc::clone(&self.runner)];
        let slot = run.slot;
        Some(queue.on_loss(
            lease,
            self.limits.kill_after,
            move || first.slots.lose(slot, group, Group::terminate),
            move || second.slots.lose(slot, group, Group::kill),
        ))
    }

    /// Writes to the journal, if the store is embedded.
    pub(super) fn record(
        &self,
        run: &KeyRun<'_>,
        write: impl FnOnce(&Journal, u64) -> io::Result<()>,
    ) {
        let (Some(journal), Some(lease)) = (&self.runner.journal, run.lease.store())
        else {
            return;
        };
        if let Err(error) = write(journal, lease.token()) {
            self.runner.fail(&format!("cannot write the journal of the store: {error}"));
        }
    }

    /// Keeps a lease whose key is still run by an orphan, and releases it when the orphan
    /// exits. Returns all other leases.
    pub(super) fn wait_for_orphan(&self, lease: RunLease) -> Option<RunLease> {
        let orphan = self.runner.journal.as_ref().and_then(|it| it.orphan(lease.key()));
        match (orphan, lease) {
            (Some(orphan), RunLease::Store(lease)) => {
                self.release_after(orphan, lease);
                None
            }
            (_, lease) => Some(lease),
        }
    }

    /// Waits on a separate thread, so that the worker can take other keys.
    fn release_after(&self, orphan: ProcessId, lease: StoreLease) {
        let runner = Arc::clone(&self.runner);
        let wait = move || {
            if !orphan.wait(|| runner.control.starts()) {
                runner.leave(lease.key());
            }
            if let Some(queue) = runner.queue.store() {
                // If this fails, the lease expires.
                drop(queue.finish(lease, Finish::Release, String::new()));
            }
        };
        let spawned = thread::Builder::new().name("orphan".to_owned()).spawn(wait);
        if let Err(error) = spawned {
            self.runner.fail(&format!("cannot wait for process {}: {error}", orphan.pid));
        }
    }
}
