//! Workers: take keys, run the command, and decide what happens to the key.

mod store;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use requeue::rate::{Limit, Limiter};
use requeue::{Clock, Finish, Lease, SystemClock};

use crate::command::{CannotRun, Exit, Group, Process, Subject, Template};
use crate::guard::{self, Guard};
use crate::input::Key;
use crate::journal::Journal;
use crate::plan::{Output, Policy, TimeLimits};
use crate::queue::{MemoryQueue, RunLease, RunQueue, fatal};
use crate::report::{Capture, FinishedRun, RetryDelay, error_text};
use crate::run::Runner;
use crate::signals::{Reason, Stage};
use crate::slots::RunningCommand;
use crate::values::Rate;

/// The code of all worker threads.
#[derive(Debug)]
pub(crate) struct Worker {
    runner: Arc<Runner>,
    template: Template,
    limits: TimeLimits,
    policy: Policy,
    output: Output,
    /// Variables with secrets of the store, which commands do not inherit.
    secrets: Vec<&'static str>,
    /// The number of started runs.
    started: AtomicU64,
    /// Limits the retries of this process, if a store does not limit those of all workers.
    retry_limiter: Option<Limiter>,
}

/// The worker threads.
#[derive(Debug)]
pub(crate) struct Workers(Vec<JoinHandle<()>>);

impl Workers {
    /// Waits for all workers to end.
    pub(crate) fn join(self) {
        for thread in self.0 {
            // A panic was printed, and its lease was retried when it was dropped.
            thread.join().unwrap_or_default();
        }
    }
}

/// What happens to a key after its run.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Decision {
    /// Finish the lease. The text explains a failure.
    Finish(Finish, String),
    /// The lease is lost; another worker may have the key.
    LeaseLost,
}

impl Decision {
    /// The command did not run to its end, which is not a failure of the key.
    const RELEASE: Self = Self::Finish(Finish::Release, String::new());
}

/// One run of a key in a slot.
#[derive(Clone, Copy, Debug)]
struct KeyRun<'r> {
    slot: usize,
    lease: &'r RunLease,
}

impl KeyRun<'_> {
    fn key(&self) -> &[u8] {
        self.lease.key()
    }

    fn attempt(&self) -> u32 {
        self.lease.failures().saturating_add(1)
    }

    fn set_environment(&self, command: &mut Command) {
        command
            .env("REQUEUE_KEY", OsStr::from_bytes(self.key()))
            .env("REQUEUE_ATTEMPT", self.attempt().to_string())
            .env("REQUEUE_SLOT", (self.slot + 1).to_string())
            .env(guard::PARENT, std::process::id().to_string());
        if let Some(lease) = self.lease.store() {
            command.env("REQUEUE_TOKEN", lease.token().to_string());
        }
    }
}

impl Worker {
    pub(crate) fn start_all(
        runner: &Arc<Runner>,
        template: Template,
        limits: TimeLimits,
        policy: Policy,
        output: Output,
        secrets: Vec<&'static str>,
    ) -> Result<Workers> {
        let runner = Arc::clone(runner);
        let slots = runner.slots.len();
        let retry_limiter = match policy.retry_rate {
            Rate::PerSecond(rate) if policy.own_retry_rate => {
                Some(Limiter::new(Limit::per_second(rate), policy.retry_burst.get()))
            }
            Rate::PerSecond(_) | Rate::Unlimited => None,
        };
        let worker = Arc::new(Self {
            runner,
            template,
            limits,
            policy,
            output,
            secrets,
            started: AtomicU64::new(0),
            retry_limiter,
        });
        let start = |slot: usize| {
            let worker = Arc::clone(&worker);
            let thread = thread::Builder::new().name(format!("worker {}", slot + 1));
            thread
                .spawn(move || worker.work(slot))
                .with_context(|| format!("cannot start worker {}", slot + 1))
        };
        let threads: Result<Vec<_>> = (0..slots).map(start).collect();
        threads.map(Workers)
    }

    fn work(&self, slot: usize) {
        let mut next = self.get();
        while let Some(lease) = next {
            next = self.process(slot, lease);
        }
    }

    /// Waits for a key, and for the rate limit.
    fn get(&self) -> Option<RunLease> {
        let runner = &self.runner;
        let lease = match &runner.start_limiter {
            None => runner.queue.get(),
            Some(limiter) => limiter.get(&runner.queue, &runner.control),
        };
        lease.unwrap_or_else(|error| {
            runner.fail(&fatal(&error));
            None
        })
    }

    /// Runs one key, finishes its lease, and returns the next one.
    fn process(&self, slot: usize, lease: RunLease) -> Option<RunLease> {
        if let Some(lease) = self.wait_for_orphan(lease) {
            let decision = self.run(&KeyRun { slot, lease: &lease });
            match (&self.runner.queue, lease) {
                (RunQueue::Memory(queue), RunLease::Memory(lease)) => {
                    return self.finish(queue, lease, &decision);
                }
                (RunQueue::Store(queue), RunLease::Store(lease)) => {
                    self.finish_in_store(queue, lease, decision);
                }
                _ => unreachable!("a lease is of the same kind as its queue"),
            }
        }
        self.get()
    }

    fn finish(
        &self,
        queue: &MemoryQueue,
        lease: Lease<Key>,
        decision: &Decision,
    ) -> Option<RunLease> {
        let starts = self.runner.control.starts();
        match decision {
            Decision::Finish(Finish::Retry, _) if starts => {
                self.retry(lease);
                self.get()
            }
            Decision::Finish(Finish::Retry | Finish::Release, _)
            | Decision::LeaseLost => {
                self.runner.leave(&lease);
                self.finish_and_get(queue, lease, Finish::Done)
            }
            Decision::Finish(finish, _) => self.finish_and_get(queue, lease, *finish),
        }
    }

    fn retry(&self, lease: Lease<Key>) {
        let (key, failures) = (lease.key().clone(), lease.num_requeues() + 1);
        let entry = self.runner.report.reserve();
        let delay = self.retry_delay(failures, lease.retry());
        let report = &self.runner.report;
        self.runner.check_log(report.retried(entry, &key, failures, delay));
    }

    fn retry_delay(&self, failures: u32, actual: Duration) -> RetryDelay {
        RetryDelay { actual, backoff: self.policy.backoff.after(failures) }
    }

    fn finish_and_get(
        &self,
        queue: &MemoryQueue,
        lease: Lease<Key>,
        finish: Finish,
    ) -> Option<RunLease> {
        if self.runner.start_limiter.is_none() {
            return queue.next(lease, finish).map(RunLease::Memory);
        }
        lease.finish(finish);
        self.get()
    }

    /// Runs the command for a key, and decides what happens to the key.
    fn run(&self, run: &KeyRun<'_>) -> Decision {
        if !self.runner.control.starts() {
            return Decision::RELEASE;
        }
        let began = SystemClock.now();
        let (exit, last_line) = match self.execute(run) {
            Ok(ended) => ended,
            Err(decision) => return decision,
        };
        let took = SystemClock.now().saturating_duration_since(began);
        let (key, attempt) = (run.key(), run.attempt());
        let finished = FinishedRun { key, attempt, exit, took, last_line };
        self.runner.check_log(self.runner.report.finished(&finished));
        let decision = self.decide(&finished);
        match decision {
            Decision::Finish(Finish::GiveUp, _) => self.give_up(&finished),
            Decision::Finish(Finish::Retry, _) => {
                self.runner.report.will_retry(&finished);
            }
            Decision::Finish(..) | Decision::LeaseLost => {}
        }
        decision
    }

    fn decide(&self, run: &FinishedRun<'_>) -> Decision {
        if run.exit.is_success() {
            return Decision::Finish(Finish::Succeed, String::new());
        }
        if self.runner.control.stage() >= Stage::Terminating {
            return Decision::RELEASE; // it failed because requeue terminated it
        }
        let failures = run.attempt - 1;
        let retry = run.exit != Exit::InvalidKey
            && self.policy.retry.allows(run.exit.code(), failures);
        let finish = if retry { Finish::Retry } else { Finish::GiveUp };
        Decision::Finish(finish, error_text(run.exit, &run.last_line))
    }

    fn give_up(&self, run: &FinishedRun<'_>) {
        self.runner.check_log(self.runner.report.gave_up(run));
        let (failed, done) = self.runner.report.failed_and_done();
        if self.policy.max_failures.is_some_and(|max| max.is_reached(failed, done)) {
            self.runner.stop(Reason::Failure);
        }
    }

    /// Runs the command. Returns its exit and the last line of its standard error, or a
    /// decision if it could not run to its end.
    fn execute(&self, run: &KeyRun<'_>) -> Result<(Exit, String), Decision> {
        let mut capture = self.runner.report.capture(&self.output, run.key());
        let number = self.started.fetch_add(1, Ordering::Relaxed) + 1;
        let mut command = self.template.command(Subject { key: run.key(), number });
        run.set_environment(&mut command);
        for secret in &self.secrets {
            command.env_remove(secret);
        }
        let wiring = capture.connect(&mut command).map_err(|error| {
            self.runner.fail(&format!("cannot write to the files of --output: {error}"));
            Decision::RELEASE
        })?;
        self.record(run, |journal, token| journal.starting(token, run.key()));
        self.guard(|guard| guard.starting(run.slot));
        match Process::start(&mut command, wiring) {
            Ok(mut process) => {
                process.keep(command);
                let exit = self.watch(run, process, &mut capture)?;
                let (last_line, printed) = capture.finish(exit);
                self.runner.check_output(printed);
                Ok((exit, last_line))
            }
            Err(error) => {
                self.guard(|guard| guard.ended(run.slot));
                self.record(run, Journal::ended);
                self.not_started(command.get_program(), &error)
            }
        }
    }

    /// Waits for a command to exit. Returns `Err` if it was terminated because its lease was
    /// lost.
    fn watch(
        &self,
        run: &KeyRun<'_>,
        mut process: Process,
        capture: &mut Capture<'_>,
    ) -> Result<Exit, Decision> {
        let (slot, attempt, group) = (run.slot, run.attempt(), process.group());
        self.guard(|guard| guard.started(slot, group));
        let (key, since) = (run.key().to_vec(), SystemClock.now());
        let command = RunningCommand { key, attempt, since, group, lost: false };
        self.runner.slots.set(slot, command);
        // A signal that came before this line has not seen the slot.
        self.apply_stage(group);
        self.record(run, |journal, token| journal.started(token, group.pid()));
        let guard = self.on_loss(run, group);
        let report = &self.runner.report;
        self.runner.check_log(report.started(run.key(), attempt, slot + 1, group.pid()));
        let timed_out = process.watch(capture, self.limits);
        drop(guard);
        let lost = self.runner.slots.clear(slot);
        if timed_out || lost || self.runner.control.stage() >= Stage::Terminating {
            group.kill(); // descendants that ignored TERM
        }
        self.guard(|guard| guard.ended(slot));
        let status = process.reap();
        self.record(run, Journal::ended);
        match status {
            _ if lost => Err(Decision::LeaseLost),
            _ if timed_out => Ok(Exit::TimedOut),
            Ok(status) => Ok(Exit::Status(status)),
            Err(_) => Ok(Exit::NotStarted),
        }
    }

    fn guard(&self, act: impl FnOnce(&Guard)) {
        if let Some(guard) = &self.runner.guard {
            act(guard);
        }
    }

    fn apply_stage(&self, group: Group) {
        if self.runner.control.is_suspended() {
            group.suspend();
        }
        match self.runner.control.stage() {
            Stage::Reading | Stage::Draining | Stage::Finishing => {}
            Stage::Terminating => group.terminate(),
            Stage::Killing => group.kill(),
        }
    }

    fn not_started(
        &self,
        program: &OsStr,
        error: &io::Error,
    ) -> Result<(Exit, String), Decision> {
        if let Some(reason) = CannotRun::from_start(error, program) {
            let (reason, why) = (Reason::CannotRun(reason.code()), reason.to_string());
            self.runner.stop_because(reason, &why);
            return Err(Decision::RELEASE);
        }
        Ok((Exit::not_started(error), error.to_string()))
    }
}
