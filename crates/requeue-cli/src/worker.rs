//! A worker: takes keys, runs the command, decides what comes of it.

use std::io;
use std::process::Command;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use requeue::{Clock, Finish, Lease, SystemClock};

use crate::command::{CannotRun, Ending, Pace, Process, Template};
use crate::gate::Gate;
use crate::input::Key;
use crate::ledger::Ledger;
use crate::password;
use crate::plan::{Output, Policy, TimeLimits};
use crate::report::{Capture, Finished, GivenUp, error_text};
use crate::run::Run;
use crate::shared::{StoredKey, fatal};
use crate::signals::{Reason, Stage};
use crate::slots::Running;
use crate::supply::Held;
use crate::values::Rate;

/// What paces starts, if anything does.
pub(crate) fn gate(policy: &Policy) -> Option<Gate> {
    match policy.rate {
        Rate::Unlimited => None,
        Rate::PerSecond(rate) => Some(Gate::new(rate, policy.burst.get())),
    }
}

/// What all workers do.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) run: Arc<Run>,
    template: Template,
    pub(crate) limits: TimeLimits,
    policy: Policy,
    output: Output,
    /// Commands are not told of the store: its address was typed for us.
    withhold: bool,
}

/// The workers of a run.
#[derive(Debug)]
pub(crate) struct Workers {
    threads: Vec<JoinHandle<()>>,
    pub(crate) debounce: Option<Duration>,
}

impl Workers {
    /// Waits until all have ended.
    pub(crate) fn join(self) {
        for thread in self.threads {
            // A worker that panicked has said so; its key was retried by its lease.
            thread.join().unwrap_or_default();
        }
    }
}

/// What comes of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Succeeded,
    /// It failed and is to be tried again: how it failed.
    Retry(String),
    /// It failed for good: how.
    GiveUp(String),
    /// It was not run to its end, and will not be.
    Leave,
    /// The key is another's by now.
    Lost,
}

/// One run of one key, before it is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task<'t> {
    pub(crate) slot: usize,
    pub(crate) key: &'t [u8],
    pub(crate) retries: u32,
    /// Its lease, if it is one of a store.
    pub(crate) stored: Option<&'t StoredKey>,
}

impl Task<'_> {
    fn attempt(&self) -> u32 {
        self.retries.saturating_add(1)
    }

    /// Tells a command what it is run for.
    fn tell(&self, command: &mut Command) {
        command
            .env("REQUEUE_KEY", as_os(self.key))
            .env("REQUEUE_ATTEMPT", self.attempt().to_string())
            .env("REQUEUE_SLOT", (self.slot + 1).to_string());
        if let Some(stored) = self.stored {
            command.env("REQUEUE_TOKEN", stored.token().to_string());
        }
    }
}

/// How a run went.
struct Outcome {
    ending: Ending,
    last_line: String,
}

impl Worker {
    pub(crate) fn start_all(
        run: &Arc<Run>,
        template: Template,
        limits: TimeLimits,
        policy: Policy,
        output: Output,
    ) -> Result<Workers> {
        let (debounce, withhold) = (policy.debounce, password::was_moved());
        let run = Arc::clone(run);
        let slots = run.slots.len();
        let worker = Arc::new(Self { run, template, limits, policy, output, withhold });
        let start = |slot: usize| {
            let worker = Arc::clone(&worker);
            let thread = thread::Builder::new().name(format!("worker {}", slot + 1));
            thread
                .spawn(move || worker.work(slot))
                .with_context(|| format!("cannot start worker {}", slot + 1))
        };
        let threads: Result<Vec<_>> = (0..slots).map(start).collect();
        Ok(Workers { threads: threads?, debounce })
    }

    fn work(&self, slot: usize) {
        let mut next = self.take();
        while let Some(held) = next {
            if let Some(room) = &self.run.room {
                room.freed();
            }
            next = match held {
                Held::Memory(lease) => self.handle(slot, lease),
                Held::Store(key) => {
                    self.handle_stored(slot, key);
                    self.take()
                }
            };
        }
    }

    fn take(&self) -> Option<Held> {
        let taken = match &self.run.gate {
            None => self.run.supply.take(),
            Some(gate) => gate.pass(&self.run.supply, &self.run.control),
        };
        taken.unwrap_or_else(|error| {
            self.run.fault(&fatal(&error));
            None
        })
    }

    /// Runs one key, ends its lease, and takes the next.
    fn handle(&self, slot: usize, lease: Lease<Key>) -> Option<Held> {
        let retries = lease.num_requeues();
        let task = Task { slot, key: &lease, retries, stored: None };
        match self.run_key(&task) {
            Verdict::Succeeded | Verdict::GiveUp(_) => {
                self.finish(lease, Finish::Succeed)
            }
            Verdict::Leave | Verdict::Lost => {
                self.run.leave(&lease);
                self.finish(lease, Finish::Done)
            }
            Verdict::Retry(_) if !self.run.control.starts() => {
                self.run.leave(&lease);
                self.finish(lease, Finish::Done)
            }
            Verdict::Retry(_) => {
                let key = lease.key().clone();
                let told = self.run.report.retrying(&key, retries + 1, || lease.retry());
                self.run.logged(told);
                self.take()
            }
        }
    }

    fn finish(&self, lease: Lease<Key>, finish: Finish) -> Option<Held> {
        if self.run.gate.is_none() {
            return lease.next_blocking_with(finish).map(Held::Memory);
        }
        lease.finish(finish);
        self.take()
    }

    pub(crate) fn run_key(&self, task: &Task<'_>) -> Verdict {
        if !self.run.control.starts() {
            return Verdict::Leave;
        }
        let (key, began) = (task.key, SystemClock.now());
        let outcome = match self.execute(task) {
            Ok(outcome) => outcome,
            Err(verdict) => return verdict,
        };
        let took = SystemClock.now().saturating_duration_since(began);
        let attempt = task.attempt();
        let finished = Finished { key, attempt, ending: outcome.ending, took };
        self.run.logged(self.run.report.finished(&finished));
        let verdict = self.judge(&outcome, task.retries);
        if matches!(verdict, Verdict::GiveUp(_)) {
            self.give_up(key, attempt, outcome);
        }
        verdict
    }

    fn judge(&self, outcome: &Outcome, retries: u32) -> Verdict {
        let Outcome { ending, last_line } = outcome;
        let worth_it = self.policy.retry.allows(ending.code(), retries);
        let stage = self.run.control.stage();
        let error = || error_text(*ending, last_line);
        match ending {
            _ if ending.is_success() => Verdict::Succeeded,
            // Its failure is our doing.
            _ if stage >= Stage::Terminating => Verdict::Leave,
            Ending::UnfitKey => Verdict::GiveUp(error()),
            _ if !worth_it => Verdict::GiveUp(error()),
            Ending::Exited(_) | Ending::TimedOut | Ending::NotStarted => {
                Verdict::Retry(error())
            }
        }
    }

    fn give_up(&self, key: &[u8], runs: u32, outcome: Outcome) {
        let Outcome { ending, last_line } = outcome;
        let failure = GivenUp { ending, runs, last_line };
        self.run.logged(self.run.report.gave_up(key, failure));
        if self.policy.fail_fast {
            self.run.stop(Reason::Failure);
        }
    }

    /// Runs the command to its end; `Err` if no command can be run.
    fn execute(&self, task: &Task<'_>) -> Result<Outcome, Verdict> {
        let mut capture = self.run.report.capture(&self.output, task.key);
        let mut command = self.template.command(task.key);
        task.tell(&mut command);
        if self.withhold {
            password::withhold(&mut command);
        }
        let wiring = capture.connect(&mut command).map_err(|error| {
            self.run.fault(&format!("cannot write the files of --output: {error}"));
            Verdict::Leave
        })?;
        self.written(task, |ledger, token| ledger.starting(token, task.key));
        let started = Process::start(&mut command, wiring);
        match started {
            Ok(mut process) => {
                process.keep(command);
                let ending = self.watch(task, process, &mut capture)?;
                let (last_line, printed) = capture.finish(ending);
                self.run.printed(printed);
                Ok(Outcome { ending, last_line })
            }
            Err(error) => {
                self.written(task, Ledger::ended);
                self.not_started(command.get_program(), &error)
            }
        }
    }

    /// Watches a command to its end; `Err` if it was ended because its lease is lost.
    fn watch(
        &self,
        task: &Task<'_>,
        mut process: Process,
        capture: &mut Capture<'_>,
    ) -> Result<Ending, Verdict> {
        let Task { slot, key, .. } = *task;
        let (group, since, attempt) =
            (process.group(), SystemClock.now(), task.attempt());
        let running = Running { key: key.to_vec(), attempt, since, group, lost: false };
        self.run.slots.occupy(slot, running);
        // A signal that came before this line has not seen the slot.
        self.heed_stage(group);
        self.written(task, |ledger, token| ledger.started(token, group.pid()));
        let guard = self.on_loss(task, group);
        self.run.logged(self.run.report.started(key, attempt, slot + 1, group.pid()));
        let pace = process.watch(capture, self.limits);
        drop(guard);
        let lost = self.run.slots.is_lost(slot);
        let stopping = self.run.control.stage() >= Stage::Terminating;
        if pace == Pace::TooLong || lost || stopping {
            group.kill(); // no orphans: whoever ignored TERM while its leader heeded it
        }
        self.run.slots.leave(slot);
        let reaped = process.reap();
        self.written(task, Ledger::ended);
        match (pace, reaped) {
            _ if lost => Err(Verdict::Lost),
            (Pace::TooLong, _) => Ok(Ending::TimedOut),
            (Pace::InTime, Ok(status)) => Ok(Ending::Exited(status)),
            (Pace::InTime, Err(_)) => Ok(Ending::NotStarted),
        }
    }

    fn heed_stage(&self, group: crate::command::Group) {
        match self.run.control.stage() {
            Stage::Reading | Stage::Emptying | Stage::Finishing => {}
            Stage::Terminating => group.terminate(),
            Stage::Killing => group.kill(),
        }
    }

    fn not_started(
        &self,
        program: &std::ffi::OsStr,
        error: &io::Error,
    ) -> Result<Outcome, Verdict> {
        if let Some(reason) = CannotRun::from_start(error, program) {
            self.run.give_up(Reason::CannotRun(reason.code()), &reason.to_string());
            return Err(Verdict::Leave);
        }
        let (ending, last_line) = (Ending::not_started(error), error.to_string());
        Ok(Outcome { ending, last_line })
    }
}

fn as_os(key: &[u8]) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(key)
}
