//! `requeue run`: input, queue, workers, signals and reports, put together.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use requeue::metrics::Prometheus;
use requeue_store::Stats;
use signal_hook::consts::{SIGPIPE, SIGTERM};

use crate::USAGE;
use crate::command::{Group, is_alive};
use crate::guard::Guard;
use crate::http;
use crate::input::{Input, Key, Mode};
use crate::journal::Journal;
use crate::plan::{Plan, Policy, Progress, StorePlan, TimeLimits, shared_rate};
use crate::queue::{self, MemoryQueue, RunQueue, StoreQueue, fatal};
use crate::reader::Reader;
use crate::report::{Left, Report, Resumed, View, Work, brief, count, shown};
use crate::signals::{self, Control, Reason, Request, Stage};
use crate::slots::Slots;
use crate::start_limiter::StartLimiter;
use crate::values::Rate;
use crate::worker::Worker;

/// Exit code: a key failed for good.
const FAILED: u8 = 1;

/// The state shared by the threads of `requeue run`.
#[derive(Debug)]
pub(crate) struct Runner {
    pub(crate) queue: RunQueue,
    /// The running commands, if the store is embedded.
    pub(crate) journal: Option<Journal>,
    pub(crate) control: Control,
    pub(crate) report: Arc<Report>,
    pub(crate) slots: Slots,
    pub(crate) start_limiter: Option<StartLimiter>,
    /// Ends the commands if this process is killed.
    pub(crate) guard: Option<Guard>,
    mode: Mode,
    /// Unfinished keys.
    left: Mutex<Vec<Key>>,
    /// The reason to stop was printed.
    explained: AtomicBool,
}

/// Runs the plan to its end. Returns the exit code.
pub(crate) fn run(plan: Plan) -> Result<u8> {
    let prometheus = plan.metrics.is_some().then(Prometheus::new);
    let report = Arc::new(Report::new(plan.progress, plan.log));
    let max_queued = plan.input.max_queued;
    let (queue, journal) = match &plan.store {
        None => {
            let queue = MemoryQueue::new(&plan.policy, max_queued, prometheus.clone());
            (RunQueue::Memory(queue), None)
        }
        Some(store) => open(store, max_queued, prometheus.clone(), &report)?,
    };
    // Before this, a signal ends the process: opening a store may take long, and no command
    // is running yet.
    let signals = signals::listen().context("cannot install signal handlers")?;
    let guard = start_guard(plan.limits, plan.store.as_ref(), &report);
    let runner = Arc::new(Runner {
        queue,
        journal,
        control: Control::new(),
        report,
        slots: Slots::new(plan.workers),
        start_limiter: start_limiter(&plan.policy),
        guard,
        mode: plan.input.mode,
        left: Mutex::default(),
        explained: AtomicBool::new(false),
    });
    runner.handle_signals(signals, plan.limits.kill_after)?;
    if let (Some(listener), Some(prometheus)) = (plan.metrics, prometheus) {
        runner.serve_metrics(listener, prometheus)?;
    }
    let secrets = plan.store.as_ref().map_or(Vec::new(), |store| store.address.secrets());
    let ticker = runner.tick(plan.progress)?;
    let workers = Worker::start_all(
        &runner,
        plan.template,
        plan.limits,
        plan.policy,
        plan.output,
        secrets,
    )?;
    runner.warn_about_orphans(plan.resumed.as_ref());
    match plan.input.mode {
        Mode::Worker => runner.work_on_store(),
        Mode::UntilEmpty => {
            runner.read(plan.input, plan.resumed.unwrap_or_default())?;
        }
    }
    runner.control.wait_while_reading();
    runner.wait_idle();
    runner.control.idle();
    runner.close();
    workers.join();
    runner.flush();
    drop(ticker);
    Ok(runner.end())
}

/// Opens a queue in a store.
fn open(
    plan: &StorePlan,
    max_queued: Option<usize>,
    metrics: Option<Prometheus>,
    report: &Arc<Report>,
) -> Result<(RunQueue, Option<Journal>)> {
    let runtime = queue::runtime()?;
    let store = runtime.block_on(async {
        match plan.mode {
            Mode::UntilEmpty => plan.address.open(|text| report.note(text)).await,
            // At boot, a worker may start before its server.
            Mode::Worker => plan.address.open_patiently(|text| report.note(text)).await,
        }
    })?;
    let journal = plan.address.directory().map(Journal::open).transpose();
    let journal = journal.context("cannot open the journal of the store")?;
    let report = Arc::clone(report);
    let queue =
        StoreQueue::new(runtime, store, plan.options, max_queued, metrics, report);
    Ok((RunQueue::Store(Box::new(queue)), journal))
}

fn start_limiter(policy: &Policy) -> Option<StartLimiter> {
    match policy.rate {
        Rate::Unlimited => None,
        Rate::PerSecond(rate) if policy.shared_rate => {
            Some(StartLimiter::shared(shared_rate(rate, policy.burst)))
        }
        Rate::PerSecond(rate) => Some(StartLimiter::new(rate, policy.burst.get())),
    }
}

/// Starts the guard. Without it, commands outlive a killed requeue.
fn start_guard(
    limits: TimeLimits,
    store: Option<&StorePlan>,
    report: &Report,
) -> Option<Guard> {
    let grace = match store {
        // Another worker runs the key when the lease expires.
        Some(store) => limits.kill_after.min(store.options.lease / 10),
        None => limits.kill_after,
    };
    let guard = Guard::start(grace);
    let failed =
        |error| report.note(&format!("cannot start the guard of commands: {error}"));
    guard.map_err(failed).ok()
}

/// Formats a number of running commands.
fn running_commands(number: usize) -> String {
    count(number as u64, "running command", "running commands")
}

impl Runner {
    fn spawn(
        self: &Arc<Self>,
        name: &str,
        body: impl FnOnce(&Self) + Send + 'static,
    ) -> Result<()> {
        let runner = Arc::clone(self);
        let thread = thread::Builder::new().name(name.to_owned());
        thread
            .spawn(move || body(&runner))
            .with_context(|| format!("cannot start the {name}"))?;
        Ok(())
    }

    /// Reads the input on a separate thread. It may outlive the run: a read from a terminal
    /// cannot be interrupted.
    fn read(self: &Arc<Self>, input: Input, resumed: Resumed) -> Result<()> {
        self.spawn("reader", move |runner| {
            let reader = Reader::new(runner, input.priority, resumed);
            if reader.read(input).is_continue() {
                runner.control.input_ended();
            }
        })
    }

    /// Reports commands of an earlier requeue that are still running.
    fn warn_about_orphans(&self, resumed: Option<&Resumed>) {
        for (key, orphan) in self.journal.iter().flat_map(Journal::orphans) {
            self.report.note(&format!(
                "process {} from an earlier run still runs {}; the key will start after \
                 it exits",
                orphan.pid,
                shown(&key)
            ));
        }
        let running = resumed.into_iter().flat_map(Resumed::running);
        for (key, pid) in running.filter(|(_, pid)| is_alive(*pid)) {
            self.report.note(&format!(
                "process {pid} may still run {} from an earlier run; the key starts anyway",
                shown(key)
            ));
        }
    }

    fn handle_signals(
        self: &Arc<Self>,
        signals: signal_hook::iterator::Signals,
        kill_after: Duration,
    ) -> Result<()> {
        let this = Arc::clone(self);
        self.spawn("signal handler", move |runner| {
            signals::handle(signals, &runner.control, |request| match request {
                Request::Summary => this.announce(Self::print_details),
                Request::Stop(stage) => this.enter(stage, kill_after),
                Request::Exit(signal) => signals::exit_now(signal),
                Request::Suspend => this.suspend(),
            });
        })
    }

    /// Stops all commands and this process. Returns when both are continued.
    ///
    /// Commands have their own process groups, so the terminal stops only requeue.
    fn suspend(&self) {
        // Before signalling: a command that starts meanwhile checks this afterwards.
        self.control.set_suspended(true);
        self.slots.signal_all(Group::suspend);
        self.report.suspend();
        signals::stop_here();
        self.control.set_suspended(false);
        self.slots.signal_all(Group::resume);
        self.report.resume();
    }

    /// Carries out a stage that a signal has entered.
    fn enter(self: &Arc<Self>, stage: Stage, kill_after: Duration) {
        self.close();
        match stage {
            Stage::Reading | Stage::Draining => {}
            Stage::Finishing => self.announce(Self::announce_finishing),
            Stage::Terminating => {
                self.abandon_store();
                self.slots.signal_all(Group::terminate);
                self.announce(move |runner| runner.announce_terminating(kill_after));
                let escalate = move |runner: &Self| runner.kill_later(kill_after);
                // If this thread cannot start, a third signal still kills.
                self.spawn("killer", escalate).unwrap_or_default();
            }
            Stage::Killing => {
                self.abandon_store();
                self.slots.signal_all(Group::kill);
                self.announce(Self::announce_killing);
            }
        }
    }

    /// Stops waiting for an unreachable store. Its leases expire.
    fn abandon_store(&self) {
        if let Some(queue) = self.queue.store() {
            queue.abandon();
        }
    }

    /// Prepares for processing the keys of a store until a signal.
    fn work_on_store(&self) {
        self.control.no_input();
        if let Some(queue) = self.queue.store() {
            self.report.note(&format!("working on {}", queue.describe()));
            queue.check_paused();
        }
    }

    /// Waits until no key is left or no more keys start.
    fn wait_idle(&self) {
        if !self.control.starts() {
            return;
        }
        if let Err(error) = self.queue.wait_idle() {
            self.fail(&fatal(&error));
        }
    }

    /// Waits until the store has recorded every finish, and closes the journal.
    fn flush(&self) {
        if let Some(queue) = self.queue.store() {
            queue.drain();
        }
        if let Some(journal) = &self.journal {
            journal.close();
        }
    }

    /// Prints on a separate thread, because printing may block while signals must still be
    /// handled.
    fn announce(self: &Arc<Self>, print: impl FnOnce(&Self) + Send + 'static) {
        // If this thread cannot start, nothing is printed.
        self.spawn("announcer", print).unwrap_or_default();
    }

    fn print_details(&self) {
        if let Some(queue) = self.queue.store() {
            queue.refresh();
        }
        self.report.details(&self.view());
    }

    fn announce_finishing(&self) {
        let running = self.slots.running().len();
        if running > 0 {
            self.report.note(&format!(
                "waiting for {}; press Ctrl-C again to send TERM",
                running_commands(running)
            ));
        }
        self.announce_outage();
    }

    fn announce_terminating(&self, kill_after: Duration) {
        let running = self.slots.running().len();
        if running > 0 && self.control.stage() == Stage::Terminating {
            self.report.note(&format!(
                "sent TERM to {}; KILL follows in {} or on Ctrl-C",
                running_commands(running),
                brief(kill_after)
            ));
        }
    }

    fn announce_killing(&self) {
        let running = self.slots.running().len();
        if running > 0 {
            self.report.note(&format!(
                "sent KILL to {}; press Ctrl-C again to exit at once",
                running_commands(running)
            ));
        }
    }

    /// Reports that the run waits for a store that does not answer.
    fn announce_outage(&self) {
        let silent = self.queue.store().filter(|queue| queue.stats().is_none());
        if let Some(queue) = silent.filter(|_| self.control.stage() == Stage::Finishing) {
            queue.begin_outage();
            self.report.note(
                "waiting for the store to answer; press Ctrl-C again to exit without it",
            );
        }
    }

    fn kill_later(&self, kill_after: Duration) {
        if !self.control.wait_for(Stage::Killing, kill_after) && self.control.kill() {
            self.slots.signal_all(Group::kill);
        }
    }

    fn serve_metrics(
        self: &Arc<Self>,
        listener: std::net::TcpListener,
        prometheus: Prometheus,
    ) -> Result<()> {
        let address = listener.local_addr().context("cannot read the metrics address")?;
        self.report.note(&format!("metrics at http://{address}/metrics"));
        let this = Arc::clone(self);
        let router = http::metrics(Prometheus::CONTENT_TYPE, move || {
            // The gauges of a store are those of the last call.
            this.queue.store().map(StoreQueue::stats);
            prometheus.encode() + &this.report.metrics()
        });
        self.spawn("metrics server", move |runner| {
            if let Err(error) = http::serve(listener, &router) {
                runner.report.note(&format!("cannot serve metrics: {error}"));
            }
        })
    }

    /// Shows the progress periodically until the ticker is dropped.
    fn tick(self: &Arc<Self>, progress: Progress) -> Result<Option<Ticker>> {
        let interval = match progress {
            Progress::Bar => Duration::from_millis(100),
            Progress::Line => Duration::from_secs(10),
            Progress::None => return Ok(None),
        };
        let (stop, stopped) = mpsc::channel::<()>();
        self.spawn("ticker", move |runner| {
            let mut before = String::new();
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                before = runner.report.draw(&runner.view(), &before);
            }
        })?;
        Ok(Some(Ticker(stop)))
    }

    fn view(&self) -> View {
        let running = self.slots.running();
        let work = match (self.mode, self.control.all_read()) {
            (Mode::Worker, _) => Work::Endless,
            (Mode::UntilEmpty, true) => Work::Known,
            (Mode::UntilEmpty, false) => Work::Growing,
        };
        let counts = self.queue.counts();
        let retrying = self.queue.store().map(StoreQueue::failing);
        View { counts, workers: self.slots.len(), running, retrying, work }
    }

    /// Closes the queue and remembers the keys that were not started.
    fn close(&self) {
        let undelivered = self.queue.close();
        self.left().extend(undelivered);
    }

    fn left(&self) -> MutexGuard<'_, Vec<Key>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers an unfinished key.
    pub(crate) fn leave(&self, key: &[u8]) {
        self.left().push(key.to_vec());
    }

    /// Starts no more keys.
    pub(crate) fn stop(&self, reason: Reason) {
        self.control.stop(reason);
        self.close();
    }

    /// Stops after an error of requeue itself, and prints it.
    pub(crate) fn fail(&self, why: &str) {
        self.stop_because(Reason::Fault, why);
    }

    /// Stops, and prints the first reason.
    pub(crate) fn stop_because(&self, reason: Reason, why: &str) {
        // Printed before stopping: afterwards, the process may exit at any time.
        if !self.explained.swap(true, Ordering::Relaxed) {
            self.report.note(why);
        }
        self.stop(reason);
    }

    /// Stops if the log could not be written.
    pub(crate) fn check_log(&self, written: io::Result<()>) {
        if let Err(error) = written {
            self.fail(&format!("cannot write --log: {error}"));
        }
    }

    /// Stops if the output could not be printed.
    pub(crate) fn check_output(&self, printed: io::Result<()>) {
        match printed {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.stop_because(Reason::BrokenPipe, "the output was closed");
            }
            Err(error) => self.fail(&format!("cannot write the output: {error}")),
        }
    }

    /// Returns the final counts of a store, if it answers.
    fn final_stats(&self) -> Option<Stats> {
        let queue = self.queue.store()?;
        if self.control.reason().is_some() {
            return queue.stats();
        }
        let stats = queue.final_stats()?;
        stats.map_err(|error| self.fail(&fatal(&error))).ok()
    }

    /// Counts keys that were added here and died elsewhere as failed.
    fn count_dead(&self, stats: &Stats) {
        let Some(queue) = self.queue.store() else { return };
        match queue.died(stats.dead) {
            Ok(dead) => {
                for dead in dead {
                    self.check_log(self.report.died(&dead.key, &dead.reason));
                }
            }
            Err(error) => self.fail(&fatal(&error)),
        }
    }

    /// Returns the number of unfinished keys: here, or in the whole queue of a store.
    fn count_left(&self, stats: Option<&Stats>) -> Left {
        let mut left = std::mem::take(&mut *self.left());
        left.sort_unstable();
        left.dedup();
        match (stats, self.queue.store()) {
            (Some(stats), _) => Left::Exactly(queue::remaining(stats)),
            (None, None) => Left::Exactly(left.len() as u64),
            (None, Some(_)) => Left::AtLeast(left.len() as u64),
        }
    }

    /// Prints the summary. Returns the exit code.
    fn end(&self) -> u8 {
        self.close();
        let stats = self.final_stats();
        if let Some(stats) = &stats {
            self.count_dead(stats);
        }
        let left = self.count_left(stats.as_ref());
        let unread = !self.control.all_read();
        self.report.summary(&self.view(), left, unread);
        self.check_log(self.report.ended(left));
        self.exit_code(left)
    }

    /// Returns whether a worker has finished its commands and told the store. Other workers
    /// process the remaining keys.
    fn is_drained(&self, left: Left) -> bool {
        self.mode == Mode::Worker
            && self.control.stage() == Stage::Finishing
            && matches!(left, Left::Exactly(_))
    }

    fn exit_code(&self, left: Left) -> u8 {
        let work_left = !self.control.all_read() || !left.is_none();
        match self.control.reason() {
            Some(Reason::CannotRun(code)) => code,
            Some(Reason::Fault) => USAGE,
            Some(Reason::Signal(SIGTERM)) if self.is_drained(left) => 0,
            Some(Reason::Signal(signal)) if work_left => signals::exit_code(signal),
            Some(Reason::BrokenPipe) if work_left => signals::exit_code(SIGPIPE),
            _ if self.report.has_failures() => FAILED,
            _ if self.report.has_rejected() => USAGE,
            Some(Reason::Signal(_) | Reason::Failure | Reason::BrokenPipe) | None => 0,
        }
    }
}

/// Stops the ticker when it is dropped.
struct Ticker(
    #[expect(dead_code, reason = "the ticker stops when the sender is dropped")]
    mpsc::Sender<()>,
);
