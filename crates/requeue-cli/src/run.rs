//! Input, queue, workers and commands, put together.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use requeue::metrics::Prometheus;
use requeue_store::Stats;

use crate::USAGE;
use crate::command::{Group, is_alive};
use crate::gate::{Gate, Room};
use crate::input::{Input, Key, Work};
use crate::ledger::Ledger;
use crate::metrics;
use crate::plan::{Plan, Progress, StorePlan};
use crate::reader::Reader;
use crate::report::{Left, Report, Resumed, View, brief};
use crate::shared::{self, SharedKeys};
use crate::signals::{self, Control, Reason, Request, Stage};
use crate::slots::Slots;
use crate::supply::Supply;
use crate::worker::{self, Worker};

/// Some key failed for good.
const FAILED: u8 = 1;

/// What the threads of a run share.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) supply: Supply,
    /// What runs, if the store is embedded.
    pub(crate) ledger: Option<Ledger>,
    pub(crate) control: Control,
    pub(crate) report: Arc<Report>,
    pub(crate) slots: Slots,
    pub(crate) gate: Option<Gate>,
    pub(crate) room: Option<Room>,
    /// Keys that were not run to their end.
    left: Mutex<Vec<Key>>,
    /// It was said why nothing more is started.
    told: AtomicBool,
}

/// Runs the plan to its end: the exit code.
pub(crate) fn run(plan: Plan) -> Result<u8> {
    let prometheus = plan.metrics.is_some().then(Prometheus::new);
    let report = Arc::new(Report::new(plan.progress, plan.log));
    let (supply, ledger) = match &plan.store {
        None => (Supply::in_memory(&plan.policy, prometheus.clone()), None),
        Some(store) => open(store, prometheus.clone(), &report)?,
    };
    // Until here a signal ends the process: nothing runs, and a store may be far away.
    let signals = signals::listen().context("cannot listen to signals")?;
    let run = Arc::new(Run {
        supply,
        ledger,
        control: Control::new(),
        report,
        slots: Slots::new(plan.workers),
        gate: worker::gate(&plan.policy),
        room: plan.input.max_queued.map(Room::new),
        left: Mutex::default(),
        told: AtomicBool::new(false),
    });
    run.heed_signals(signals, plan.limits.kill_after)?;
    if let (Some(listener), Some(prometheus)) = (plan.metrics, prometheus) {
        run.serve_metrics(listener, prometheus)?;
    }
    let ticker = run.tick(plan.progress)?;
    let workers =
        Worker::start_all(&run, plan.template, plan.limits, plan.policy, plan.output)?;
    run.warn_of_running(plan.resumed.as_ref());
    match plan.input.work {
        Work::OnStore => run.serve(),
        Work::OnInput => {
            let (priority, resumed) =
                (plan.input.priority, plan.resumed.unwrap_or_default());
            let debounce = workers.debounce;
            run.read(plan.input, Reader { priority, debounce, resumed })?;
        }
    }
    run.control.wait_while_reading();
    run.wait_idle();
    run.control.nothing_left();
    run.close();
    workers.join();
    run.settle();
    drop(ticker);
    Ok(run.end())
}

/// Opens the queue on a store.
fn open(
    plan: &StorePlan,
    metrics: Option<Prometheus>,
    report: &Arc<Report>,
) -> Result<(Supply, Option<Ledger>)> {
    let runtime = shared::runtime()?;
    let store = runtime.block_on(async {
        match plan.work {
            Work::OnInput => plan.place.open().await,
            // Started with the machine, it may be there before the server.
            Work::OnStore => plan.place.open_patiently(|text| report.note(text)).await,
        }
    })?;
    let ledger = plan.place.folder().map(Ledger::open).transpose();
    let ledger = ledger.context("cannot write down what runs beside the store")?;
    let keys = SharedKeys::new(runtime, store, plan.terms, metrics, Arc::clone(report));
    Ok((Supply::Store(Box::new(keys)), ledger))
}

impl Run {
    fn spawn(
        self: &Arc<Self>,
        name: &str,
        body: impl FnOnce(&Self) + Send + 'static,
    ) -> Result<()> {
        let run = Arc::clone(self);
        let thread = thread::Builder::new().name(name.to_owned());
        thread
            .spawn(move || body(&run))
            .with_context(|| format!("cannot start the {name}"))?;
        Ok(())
    }

    /// Takes keys from the input, on a thread that may be left behind: nothing can end a
    /// read from a terminal.
    fn read(self: &Arc<Self>, input: Input, reader: Reader) -> Result<()> {
        self.spawn("reader", move |run| {
            if reader.read(run, input).is_continue() {
                run.control.input_ended();
            }
        })
    }

    /// Tells of commands that an earlier run has left running: they may run twice now.
    fn warn_of_running(&self, resumed: Option<&Resumed>) {
        let strangers = self.ledger.iter().flat_map(Ledger::strangers);
        for (key, stranger) in strangers {
            let (key, pid) = (String::from_utf8_lossy(&key).into_owned(), stranger.pid);
            self.report.note(&format!(
                "key {key:?} is still run by process {pid}, which an earlier run has \
                 started; it starts again once that has ended"
            ));
        }
        let running = resumed.into_iter().flat_map(Resumed::running);
        for (key, pid) in running.filter(|(_, pid)| is_alive(*pid)) {
            let key = String::from_utf8_lossy(key);
            self.report.note(&format!(
                "key {key:?} was running when the earlier run ended, as process {pid}, \
                 which is still there"
            ));
        }
    }

    fn heed_signals(
        self: &Arc<Self>,
        signals: signal_hook::iterator::Signals,
        kill_after: Duration,
    ) -> Result<()> {
        let again = Arc::clone(self);
        self.spawn("signal listener", move |run| {
            signals::heed(signals, &run.control, |request| match request {
                Request::Summary => again.announce(Self::tell_summary),
                Request::End(stage) => again.end_by(stage, kill_after),
                Request::Leave(signal) => signals::leave(signal),
            });
        })
    }

    fn end_by(self: &Arc<Self>, stage: Stage, kill_after: Duration) {
        self.close();
        match stage {
            Stage::Reading | Stage::Emptying => {}
            Stage::Finishing => self.announce(Self::tell_finishing),
            Stage::Terminating => {
                self.abandon_store();
                self.slots.each(Group::terminate);
                self.announce(move |run| run.tell_terminating(kill_after));
                let escalate = move |run: &Self| run.kill_later(kill_after);
                // Without this thread, a third signal still kills.
                self.spawn("killer", escalate).unwrap_or_default();
            }
            Stage::Killing => {
                self.abandon_store();
                self.slots.each(Group::kill);
                self.announce(Self::tell_killing);
            }
        }
    }

    /// Waits no longer for a store that is away: its leases run out by themselves.
    fn abandon_store(&self) {
        if let Some(keys) = self.supply.store() {
            keys.abandon();
        }
    }

    /// Works on the keys of a store until it is told to end.
    fn serve(&self) {
        self.control.nothing_to_read();
        if let Some(keys) = self.supply.store() {
            self.report.note(&format!("working on {}", keys.describe()));
            keys.greet();
        }
    }

    /// Waits until no key is left, or nothing more is started.
    fn wait_idle(&self) {
        if !self.control.starts() {
            return;
        }
        if let Err(error) = self.supply.wait_idle() {
            self.fault(&shared::fatal(&error));
        }
    }

    /// Waits until a store knows how everything has ended.
    fn settle(&self) {
        if let Some(keys) = self.supply.store() {
            keys.drain();
        }
        if let Some(ledger) = &self.ledger {
            ledger.close();
        }
    }

    /// Says something while signals go on being heeded: whoever reads what is printed may
    /// have stopped reading.
    fn announce(self: &Arc<Self>, tell: impl FnOnce(&Self) + Send + 'static) {
        // Without this thread, nothing is said.
        self.spawn("announcer", tell).unwrap_or_default();
    }

    fn tell_summary(&self) {
        self.report.summary(&self.fresh_view());
    }

    fn tell_finishing(&self) {
        let running = self.slots.running().len();
        if running > 0 {
            self.report.note(&format!(
                "finishing what runs ({running}); once more sends TERM to it"
            ));
        }
        self.tell_silence();
    }

    fn tell_terminating(&self, kill_after: Duration) {
        let running = self.slots.running().len();
        if running > 0 && self.control.stage() == Stage::Terminating {
            self.report.note(&format!(
                "sent TERM to what runs ({running}); KILL follows in {}, or at once if \
                 asked once more",
                brief(kill_after)
            ));
        }
    }

    fn tell_killing(&self) {
        let running = self.slots.running().len();
        if running > 0 {
            self.report.note(&format!(
                "sent KILL to what runs ({running}); once more ends without waiting for it"
            ));
        }
    }

    /// Tells of a store that does not answer, and is waited for all the same.
    fn tell_silence(&self) {
        let silent = self.supply.store().filter(|keys| keys.glance().is_none());
        if let Some(keys) = silent.filter(|_| self.control.stage() == Stage::Finishing) {
            keys.fell_silent();
            self.report
                .note("waiting for the store to answer; once more ends without it");
        }
    }

    fn kill_later(&self, kill_after: Duration) {
        if !self.control.wait_for(Stage::Killing, kill_after) && self.control.kill() {
            self.slots.each(Group::kill);
        }
    }

    fn serve_metrics(
        self: &Arc<Self>,
        listener: std::net::TcpListener,
        prometheus: Prometheus,
    ) -> Result<()> {
        let address = listener.local_addr().context("cannot tell where metrics are")?;
        self.report.note(&format!("metrics at http://{address}/metrics"));
        self.spawn("metrics server", move |run| {
            let page = || {
                // The queue of a store tells what that said last.
                run.supply.store().map(SharedKeys::glance);
                prometheus.encode() + &run.report.metrics()
            };
            metrics::serve(&listener, Prometheus::CONTENT_TYPE, page);
        })
    }

    /// Shows the progress now and then, until what it returns is dropped.
    fn tick(self: &Arc<Self>, progress: Progress) -> Result<Option<Ticker>> {
        let interval = match progress {
            Progress::Bar => Duration::from_millis(100),
            Progress::Line => Duration::from_secs(10),
            Progress::None => return Ok(None),
        };
        let (stop, stopped) = mpsc::channel::<()>();
        self.spawn("ticker", move |run| {
            let mut before = String::new();
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                before = run.report.draw(&run.view(), &before);
            }
        })?;
        Ok(Some(Ticker(stop)))
    }

    fn view(&self) -> View {
        let running = self.slots.running();
        View { counts: self.supply.counts(), workers: self.slots.len(), running }
    }

    fn fresh_view(&self) -> View {
        if let Some(keys) = self.supply.store() {
            keys.refresh();
        }
        self.view()
    }

    /// Takes back all that has not been started.
    fn close(&self) {
        let undelivered = self.supply.close();
        self.left().extend(undelivered);
        if let Some(room) = &self.room {
            room.freed();
        }
    }

    fn left(&self) -> std::sync::MutexGuard<'_, Vec<Key>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a key that was not run to its end.
    pub(crate) fn leave(&self, key: &[u8]) {
        self.left().push(key.to_vec());
    }

    /// Starts nothing more.
    pub(crate) fn stop(&self, reason: Reason) {
        self.control.finish(reason);
        self.close();
    }

    /// Tells of something that makes going on pointless, and stops.
    pub(crate) fn fault(&self, what: &str) {
        self.give_up(Reason::Fault, what);
    }

    /// Stops, and says why unless somebody has.
    pub(crate) fn give_up(&self, reason: Reason, why: &str) {
        // Before it stops: the main thread may be gone a moment later.
        if !self.told.swap(true, Ordering::Relaxed) {
            self.report.note(why);
        }
        self.stop(reason);
    }

    /// Stops if the log could not be written.
    pub(crate) fn logged(&self, written: io::Result<()>) {
        if let Err(error) = written {
            self.fault(&format!("cannot write the log of --log: {error}"));
        }
    }

    /// Stops if the output could not be printed; a broken pipe is nothing to tell of.
    pub(crate) fn printed(&self, printed: io::Result<()>) {
        match printed {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.stop(Reason::BrokenPipe);
            }
            Err(error) => self.fault(&format!("cannot write the output: {error}")),
        }
    }

    /// How the queue of a store stands at the end, if it tells.
    fn last_stats(&self) -> Option<Stats> {
        let keys = self.supply.store()?;
        if self.control.reason().is_some() {
            return keys.glance();
        }
        let stats = keys.last_stats()?;
        stats.map_err(|error| self.fault(&shared::fatal(&error))).ok()
    }

    /// Counts the keys that this run added and that are dead, though not by its doing.
    fn count_dead(&self, stats: &Stats) {
        let Some(keys) = self.supply.store() else { return };
        match keys.died(stats.dead) {
            Ok(dead) => {
                for dead in dead {
                    self.logged(self.report.died(&dead.key, &dead.reason));
                }
            }
            Err(error) => self.fault(&shared::fatal(&error)),
        }
    }

    /// How many keys were not run to their end: here, or in the whole queue of a store.
    fn count_left(&self, stats: Option<&Stats>) -> Left {
        let mut left = std::mem::take(&mut *self.left());
        left.sort_unstable();
        left.dedup();
        match (stats, self.supply.store()) {
            (Some(stats), _) => Left::Exactly(shared::left(stats)),
            (None, None) => Left::Exactly(left.len() as u64),
            (None, Some(_)) => Left::AtLeast(left.len() as u64),
        }
    }

    /// Tells how it went: the exit code.
    fn end(&self) -> u8 {
        self.close();
        let stats = self.last_stats();
        if let Some(stats) = &stats {
            self.count_dead(stats);
        }
        let left = self.count_left(stats.as_ref());
        if self.control.reason() != Some(Reason::BrokenPipe) {
            self.report.summarize(&self.view(), left);
        }
        self.logged(self.report.ended(left));
        let unread = !self.control.all_read();
        let failed = if self.report.has_failures() {
            FAILED
        } else if self.report.has_refused() {
            USAGE
        } else {
            0
        };
        match self.control.reason() {
            Some(Reason::CannotRun(code)) => code,
            Some(Reason::Fault) => USAGE,
            Some(Reason::Signal(signal)) if unread || !left.is_none() => {
                signals::exit_code(signal)
            }
            Some(Reason::Signal(_) | Reason::Failure | Reason::BrokenPipe) | None => {
                failed
            }
        }
    }
}

/// Ticks until it is dropped.
struct Ticker(
    #[expect(dead_code, reason = "dropping it is what ends the ticker")] mpsc::Sender<()>,
);
