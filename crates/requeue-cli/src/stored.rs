//! What a worker does with a key of a store.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use requeue_store::{Error, ErrorKind, Finished};

use crate::command::{Group, Stranger};
use crate::ledger::Ledger;
use crate::report::chain;
use crate::shared::{End, LossWatch, SharedKeys, StoredKey, fatal};
use crate::worker::{Task, Verdict, Worker};

impl Worker {
    /// Runs one key and ends its lease.
    pub(crate) fn handle_stored(&self, slot: usize, key: StoredKey) {
        let Some(keys) = self.run.supply.store() else { return };
        let ledger = self.run.ledger.as_ref();
        if let Some(stranger) = ledger.and_then(|ledger| ledger.stranger(key.key())) {
            return self.set_aside(stranger, key);
        }
        let retries = key.retries();
        let task = Task { slot, key: key.key(), retries, stored: Some(&key) };
        let end = match self.run_key(&task) {
            Verdict::Succeeded => End::Succeed,
            Verdict::Retry(error) => End::Retry(error),
            Verdict::GiveUp(reason) => End::Bury(reason),
            Verdict::Leave => {
                self.run.leave(key.key());
                End::Release
            }
            Verdict::Lost => {
                self.run.logged(self.run.report.lost(key.key()));
                return self.let_go(keys, key);
            }
        };
        self.end(keys, key, end);
    }

    /// Gives up a key whose lease is lost. That the store refuses this is no news.
    fn let_go(&self, keys: &SharedKeys, key: StoredKey) {
        let name = key.key().clone();
        match keys.end(key, End::Release) {
            Err(error) if error.kind() != ErrorKind::LeaseLost => {
                self.not_ended(&name, &error);
            }
            Ok(_) | Err(_) => {}
        }
    }

    fn end(&self, keys: &SharedKeys, key: StoredKey, end: End) {
        let (name, attempt) = (key.key().clone(), key.retries() + 1);
        let retried = matches!(end, End::Retry(_));
        match keys.end(key, end) {
            Ok(Finished::Delayed(delay)) if retried => {
                self.retried(&name, attempt, delay);
            }
            Ok(Finished::Requeued) if retried => {
                self.retried(&name, attempt, Duration::ZERO);
            }
            Ok(_) => {}
            Err(error) => self.not_ended(&name, &error),
        }
    }

    fn retried(&self, key: &[u8], attempt: u32, delay: Duration) {
        self.run.logged(self.run.report.retrying(key, attempt, || delay));
    }

    fn not_ended(&self, key: &[u8], error: &Error) {
        let name = String::from_utf8_lossy(key);
        match error.kind() {
            ErrorKind::LeaseLost => self.run.report.note(&format!(
                "the end of {name:?} came too late, and it runs again: {}",
                chain(error)
            )),
            ErrorKind::Unknown | ErrorKind::Unavailable => {
                self.run.leave(key);
                self.run.report.note(&format!(
                    "the store may not know that {name:?} has ended: {}",
                    chain(error)
                ));
            }
            ErrorKind::Denied
            | ErrorKind::Conflict
            | ErrorKind::Corrupt
            | ErrorKind::Version
            | ErrorKind::Poisoned
            | ErrorKind::Invalid
            | ErrorKind::Closed
            | ErrorKind::Server
            | _ => self.run.fault(&fatal(error)),
        }
    }

    /// Ends the command of a task when its lease is lost, for as long as what comes back
    /// is kept.
    pub(crate) fn on_loss(&self, task: &Task<'_>, group: Group) -> Option<LossWatch> {
        let (keys, stored) = (self.run.supply.store()?, task.stored?);
        let [first, then] = [Arc::clone(&self.run), Arc::clone(&self.run)];
        let slot = task.slot;
        Some(keys.on_loss(
            stored,
            self.limits.kill_after,
            move || first.slots.lose(slot, group, Group::terminate),
            move || then.slots.lose(slot, group, Group::kill),
        ))
    }

    /// Writes something down beside an embedded store.
    pub(crate) fn written(
        &self,
        task: &Task<'_>,
        write: impl FnOnce(&Ledger, u64) -> io::Result<()>,
    ) {
        let (Some(ledger), Some(stored)) = (&self.run.ledger, task.stored) else {
            return;
        };
        if let Err(error) = write(ledger, stored.token()) {
            self.run.fault(&format!("cannot write down what runs: {error}"));
        }
    }

    /// Keeps a key until the command that an earlier process runs for it has ended, and
    /// then lets it be handed out. The worker goes on with others.
    fn set_aside(&self, stranger: Stranger, key: StoredKey) {
        let run = Arc::clone(&self.run);
        let wait = move || {
            let ended = stranger.wait(|| run.control.starts());
            if !ended {
                run.leave(key.key());
            }
            if let Some(keys) = run.supply.store() {
                // One that cannot be ended runs out by itself.
                drop(keys.end(key, End::Release));
            }
        };
        let waiter = thread::Builder::new().name("stranger".to_owned()).spawn(wait);
        if let Err(error) = waiter {
            self.run.fault(&format!("cannot wait for a process: {error}"));
        }
    }
}
