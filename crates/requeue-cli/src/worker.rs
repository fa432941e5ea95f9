//! A worker: takes keys, runs the command, decides what comes of it.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use requeue::metrics::Prometheus;
use requeue::order::{Fair, Priority};
use requeue::rate::{Limit, Limiter};
use requeue::retry::{Bucket, Exponential, RetryPolicy};
use requeue::{Clock, Finish, Lease, Queue, SystemClock};

use crate::command::{CannotRun, Ending, Pace, Process, Template};
use crate::flags::JitterForm;
use crate::gate::Gate;
use crate::input::Key;
use crate::plan::{Order, Output, Policy, TimeLimits};
use crate::report::{Capture, Failure, Finished};
use crate::run::Run;
use crate::signals::{Reason, Stage};
use crate::slots::Running;
use crate::values::Rate;

/// The queue that a policy asks for.
pub(crate) fn queue(policy: &Policy, metrics: Option<Prometheus>) -> Queue<Key> {
    // A key that comes while it waits for its retry runs once, now: it is queued already.
    let mut builder =
        Queue::builder().name("run").absorb_delays(true).retry(retry_policy(policy));
    builder = match &policy.order {
        Order::Fifo => builder,
        Order::Priority => builder.order(Priority::new()),
        Order::Fair(grouping) => {
            let grouping = grouping.clone();
            builder.order(Fair::by(move |key: &Key| grouping.of(key).to_vec()))
        }
    };
    match metrics {
        Some(metrics) => builder.metrics(metrics).build(),
        None => builder.build(),
    }
}

fn retry_policy(policy: &Policy) -> Box<dyn RetryPolicy<Key>> {
    let backoff = Exponential::new(policy.backoff.base, policy.backoff.max);
    let backoff: Box<dyn RetryPolicy<Key>> = match policy.jitter {
        JitterForm::None => Box::new(backoff),
        JitterForm::Full => Box::new(backoff.full_jitter()),
        JitterForm::Equal => Box::new(backoff.equal_jitter()),
    };
    match policy.retry_rate {
        Rate::Unlimited => backoff,
        Rate::PerSecond(rate) => {
            let limiter = Limiter::new(Limit::per_second(rate), policy.retry_burst.get());
            Box::new(backoff.and(Bucket::new(limiter)))
        }
    }
}

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
    run: Arc<Run>,
    template: Template,
    limits: TimeLimits,
    policy: Policy,
    output: Output,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Succeeded,
    Retry,
    GiveUp,
    /// It was not run to its end, and will not be.
    Leave,
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
        let debounce = policy.debounce;
        let worker =
            Arc::new(Self { run: Arc::clone(run), template, limits, policy, output });
        let start = |slot: usize| {
            let worker = Arc::clone(&worker);
            let thread = thread::Builder::new().name(format!("worker {}", slot + 1));
            thread
                .spawn(move || worker.work(slot))
                .with_context(|| format!("cannot start worker {}", slot + 1))
        };
        let threads: Result<Vec<_>> = (0..run.slots.len()).map(start).collect();
        Ok(Workers { threads: threads?, debounce })
    }

    fn work(&self, slot: usize) {
        let mut next = self.take();
        while let Some(lease) = next {
            if let Some(room) = &self.run.room {
                room.freed();
            }
            next = self.handle(slot, lease);
        }
    }

    fn take(&self) -> Option<Lease<Key>> {
        match &self.run.gate {
            None => self.run.queue.get_blocking(),
            Some(gate) => gate.pass(&self.run.queue, &self.run.control),
        }
    }

    /// Runs one key, ends its lease, and takes the next.
    fn handle(&self, slot: usize, lease: Lease<Key>) -> Option<Lease<Key>> {
        let retries = lease.num_requeues();
        let verdict = self.run_key(slot, &lease, retries);
        match verdict {
            Verdict::Succeeded | Verdict::GiveUp => self.finish(lease, Finish::Succeed),
            Verdict::Leave => {
                self.run.leave(&lease);
                self.finish(lease, Finish::Done)
            }
            Verdict::Retry => {
                let key = lease.key().clone();
                let told = self.run.report.retrying(&key, retries + 1, || lease.retry());
                self.run.logged(told);
                self.take()
            }
        }
    }

    fn finish(&self, lease: Lease<Key>, finish: Finish) -> Option<Lease<Key>> {
        if self.run.gate.is_none() {
            return lease.next_blocking_with(finish);
        }
        lease.finish(finish);
        self.take()
    }

    fn run_key(&self, slot: usize, key: &[u8], retries: u32) -> Verdict {
        if !self.run.control.starts() {
            return Verdict::Leave;
        }
        let (attempt, began) = (retries.saturating_add(1), SystemClock.now());
        let outcome = match self.execute(slot, key, attempt) {
            Ok(outcome) => outcome,
            Err(verdict) => return verdict,
        };
        let took = SystemClock.now().saturating_duration_since(began);
        let finished = Finished { key, attempt, ending: outcome.ending, took };
        self.run.logged(self.run.report.finished(&finished));
        let verdict = self.judge(outcome.ending, retries);
        if verdict == Verdict::GiveUp {
            self.give_up(key, attempt, outcome);
        }
        verdict
    }

    fn judge(&self, ending: Ending, retries: u32) -> Verdict {
        let worth_it = self.policy.retry.allows(ending.code(), retries);
        let stage = self.run.control.stage();
        match ending {
            _ if ending.is_success() => Verdict::Succeeded,
            // Its failure is our doing.
            _ if stage >= Stage::Terminating => Verdict::Leave,
            Ending::UnfitKey => Verdict::GiveUp,
            _ if !worth_it => Verdict::GiveUp,
            _ if stage >= Stage::Finishing => Verdict::Leave,
            Ending::Exited(_) | Ending::TimedOut | Ending::NotStarted => Verdict::Retry,
        }
    }

    fn give_up(&self, key: &[u8], runs: u32, outcome: Outcome) {
        let Outcome { ending, last_line } = outcome;
        let failure = Failure { ending, runs, last_line };
        self.run.logged(self.run.report.gave_up(key, failure));
        if self.policy.fail_fast {
            self.run.stop(Reason::Failure);
        }
    }

    /// Runs the command to its end; `Err` if no command can be run.
    fn execute(&self, slot: usize, key: &[u8], attempt: u32) -> Result<Outcome, Verdict> {
        let mut capture = self.run.report.capture(&self.output, key);
        let mut command = self.template.command(key);
        command
            .env("REQUEUE_KEY", as_os(key))
            .env("REQUEUE_ATTEMPT", attempt.to_string())
            .env("REQUEUE_SLOT", (slot + 1).to_string());
        let wiring = capture.connect(&mut command).map_err(|error| {
            self.run.fault(&format!("cannot write the files of --output: {error}"));
            Verdict::Leave
        })?;
        match Process::start(&mut command, wiring) {
            Ok(mut process) => {
                process.keep(command);
                let ending = self.watch(slot, key, attempt, process, &mut capture);
                let (last_line, printed) = capture.finish(ending);
                self.run.printed(printed);
                Ok(Outcome { ending, last_line })
            }
            Err(error) => self.not_started(command.get_program(), &error),
        }
    }

    fn watch(
        &self,
        slot: usize,
        key: &[u8],
        attempt: u32,
        mut process: Process,
        capture: &mut Capture<'_>,
    ) -> Ending {
        let (group, since) = (process.group(), SystemClock.now());
        let running = Running { key: key.to_vec(), attempt, since, group };
        self.run.slots.occupy(slot, running);
        // A signal that came before this line has not seen the slot.
        self.heed_stage(group);
        self.run.logged(self.run.report.started(key, attempt, slot + 1, group.pid()));
        let pace = process.watch(capture, self.limits);
        if pace == Pace::TooLong || self.run.control.stage() >= Stage::Terminating {
            group.kill(); // no orphans: whoever ignored TERM while its leader heeded it
        }
        self.run.slots.leave(slot);
        match (pace, process.reap()) {
            (Pace::TooLong, _) => Ending::TimedOut,
            (Pace::InTime, Ok(status)) => Ending::Exited(status),
            (Pace::InTime, Err(_)) => Ending::NotStarted,
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
