//! Injects faults on a schedule that depends only on the seed.

use std::time::{Duration, Instant};

use anyhow::Result;
use requeue::{Clock, SystemClock};
use requeue_store::micros_of;

use super::failover::{self, Cause, Failover, Progress};
use super::migration::Migrations;
use super::{Fault, FaultCounts, faults_of};
use crate::history::event::Event;
use crate::history::journal::Journal;
use crate::process::child::ChildProcess;
use crate::process::role::Role;
use crate::random::Random;
use crate::run::plan::Plan;
use crate::run::scenario::Scenario;
use crate::server::Servers;
use crate::server::disk::SmallDisk;
use crate::server::proxy::ConnectionFault;
use crate::store::Kind;
use crate::time::{now, sleep_blocking};

/// How long a connection fault lasts.
const CONNECTION_FAULT: Duration = Duration::from_millis(700);

/// How long a server refuses writes for lack of memory or disk space.
const FULL: Duration = Duration::from_secs(1);

/// How often the nemesis checks which server of a shard is the primary.
const WATCH_DELAY: Duration = Duration::from_millis(250);

/// The processes and servers that the nemesis disturbs.
#[derive(Debug)]
pub(crate) struct Targets {
    pub(crate) children: Vec<ChildProcess>,
    pub(crate) servers: Servers,
    /// The disk of the store, if it can be filled. Unmounted last.
    pub(crate) disk: Option<SmallDisk>,
}

/// A later step of a fault, usually its end.
enum Step {
    /// Continues the stopped child with this index.
    Continue(usize),
    /// Ends the connection faults of the server with this index.
    Heal(usize),
    /// Gives the server with this index its memory back.
    EndOutOfMemory(usize),
    FreeDisk,
    StartServers,
    MoveSlot,
    FailOver,
    /// Looks for failovers that no fault asked for.
    WatchPrimary,
}

pub(crate) struct Nemesis<'a> {
    targets: &'a mut Targets,
    faults: Vec<Fault>,
    /// The faults of the current round. Each fault happens once per round.
    remaining: Vec<Fault>,
    random: Random,
    steps: Vec<(Instant, Step)>,
    counts: FaultCounts,
    migrations: Migrations,
    failover: Option<Failover>,
    is_disk_full: bool,
    /// The index of the primary of sentinels when it was last seen.
    last_primary: Option<usize>,
    scenario: Scenario,
    plan: &'a Plan,
    /// The window of the last fault of a steady run.
    last_window: Option<u64>,
    journal: &'a Journal,
}

impl<'a> Nemesis<'a> {
    pub(crate) fn new(
        targets: &'a mut Targets,
        plan: &'a Plan,
        journal: &'a Journal,
    ) -> Result<Self> {
        let scenario = &plan.scenario;
        let is_cluster = scenario.store == Kind::Cluster;
        let slots = if is_cluster { scenario.partitions } else { 0 };
        let migrations = Migrations::new(slots, &targets.servers)?;
        journal.write(Event::Partitions { shards: migrations.shards() });
        let mut faults = faults_of(scenario.store, scenario.load);
        if targets.disk.is_none() {
            faults.retain(|fault| *fault != Fault::FillDisk);
        }
        Ok(Self {
            migrations,
            targets,
            faults,
            remaining: Vec::new(),
            random: Random::new(plan.seed, "nemesis"),
            steps: Vec::new(),
            counts: FaultCounts::default(),
            failover: None,
            is_disk_full: false,
            last_primary: None,
            scenario: *scenario,
            plan,
            last_window: None,
            journal,
        })
    }

    /// Injects faults until `end`, then ends them all. Returns how many there were.
    pub(crate) fn run_until(mut self, end: Instant) -> Result<FaultCounts> {
        if self.scenario.store == Kind::Sentinel {
            self.schedule(WATCH_DELAY, Step::WatchPrimary);
        }
        loop {
            let pause = self.scenario.fault_pause();
            let next = SystemClock.now() + self.random.millis(pause);
            if next >= end {
                break;
            }
            self.make_steps_until(next)?;
            sleep_blocking(next.saturating_duration_since(SystemClock.now()));
            if !self.may_inject() {
                continue;
            }
            if let Some(fault) = self.next_fault() {
                self.inject(fault)?;
            }
        }
        self.steps.retain(|(_, step)| !matches!(step, Step::WatchPrimary));
        while let Some(last) = self.steps.iter().map(|(at, _)| *at).max() {
            self.make_steps_until(last)?;
        }
        Ok(self.counts)
    }

    /// Returns whether a fault may begin now. A steady run has one fault at a time.
    fn may_inject(&mut self) -> bool {
        if !self.scenario.is_steady() {
            return true;
        }
        let Some(window) = self.plan.fault_window(now()) else { return false };
        self.last_window.replace(window) != Some(window)
    }

    fn next_fault(&mut self) -> Option<Fault> {
        if self.remaining.is_empty() {
            self.remaining.clone_from(&self.faults);
            self.random.shuffle(&mut self.remaining);
        }
        self.remaining.pop()
    }

    /// Makes each step that is due by `end`, at its time.
    fn make_steps_until(&mut self, end: Instant) -> Result<()> {
        while let Some((at, step)) = self.pop_step(end) {
            sleep_blocking(at.saturating_duration_since(SystemClock.now()));
            self.make_step(&step)?;
        }
        Ok(())
    }

    /// Removes the earliest step that is due by `end`.
    fn pop_step(&mut self, end: Instant) -> Option<(Instant, Step)> {
        let due = self.steps.iter().enumerate().filter(|(_, (at, _))| *at <= end);
        let first = due.min_by_key(|(_, (at, _))| *at).map(|(index, _)| index);
        first.map(|index| self.steps.remove(index))
    }

    fn make_step(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Continue(index) => self.targets.children[*index].resume(),
            Step::Heal(index) => {
                let failover = self.failover.as_ref();
                if !failover.is_some_and(|failover| failover.isolates(*index)) {
                    self.targets.servers[*index].proxy.heal();
                }
                Ok(())
            }
            Step::EndOutOfMemory(index) => {
                // A server that was killed meanwhile has its memory back anyway.
                drop(self.targets.servers[*index].engine.set_out_of_memory(false));
                Ok(())
            }
            Step::FreeDisk => self.free_disk(),
            Step::StartServers => self.start_servers(),
            Step::MoveSlot => self.continue_move(),
            Step::FailOver => self.continue_failover(),
            Step::WatchPrimary => {
                self.watch_primary();
                Ok(())
            }
        }
    }

    fn inject(&mut self, fault: Fault) -> Result<()> {
        match fault {
            Fault::KillWorker => self.kill(|role| !role.adds()),
            Fault::KillProducer => self.kill(Role::adds),
            Fault::StopWorker(millis) => self.stop_worker(Duration::from_millis(millis)),
            Fault::KillServer => self.kill_server(),
            Fault::MoveSlot => self.move_slot(),
            Fault::FailOver => self.fail_over(),
            Fault::CutConnections => {
                self.counts.cuts += 1;
                let index = self.random_server();
                self.targets.servers[index].proxy.cut();
                Ok(())
            }
            Fault::EndConnections => {
                self.counts.cuts += 1;
                let index = self.random_server();
                // A server that was just killed has no connections.
                drop(self.targets.servers[index].engine.end_connections());
                Ok(())
            }
            Fault::Connection(fault) => {
                if self.failover.is_none() {
                    self.counts.connection_faults += 1;
                    self.disturb_connections(fault, CONNECTION_FAULT);
                }
                Ok(())
            }
            Fault::BlackHole => {
                self.make_black_hole();
                Ok(())
            }
            Fault::OutOfMemory => {
                self.counts.out_of_memory += 1;
                let index = self.random_server();
                drop(self.targets.servers[index].engine.set_out_of_memory(true));
                self.schedule(FULL, Step::EndOutOfMemory(index));
                Ok(())
            }
            Fault::FillDisk => self.fill_disk(),
        }
    }

    /// Injects a connection fault into one server. Returns its index.
    fn disturb_connections(&mut self, fault: ConnectionFault, delay: Duration) -> usize {
        let index = self.random_server();
        self.targets.servers[index].proxy.inject(fault);
        self.schedule(delay, Step::Heal(index));
        index
    }

    /// Silences a server for longer than a lease.
    fn make_black_hole(&mut self) {
        self.counts.black_holes += 1;
        let delay = self.scenario.black_hole();
        let node = self.disturb_connections(ConnectionFault::HalfOpen, delay);
        let shard = node % self.targets.servers.shards;
        self.journal.write(Event::BlackHole { shard, micros: micros_of(delay) });
    }

    fn fill_disk(&mut self) -> Result<()> {
        let Some(disk) = self.targets.disk.as_ref().filter(|_| !self.is_disk_full) else {
            return Ok(());
        };
        disk.fill()?;
        self.is_disk_full = true;
        self.counts.full_disks += 1;
        self.schedule(FULL, Step::FreeDisk);
        Ok(())
    }

    fn free_disk(&mut self) -> Result<()> {
        if let Some(disk) = &self.targets.disk {
            disk.free()?;
        }
        self.is_disk_full = false;
        self.start_servers()?;
        // A server that failed to start while the disk was full may need another attempt.
        self.schedule(Duration::from_millis(400), Step::StartServers);
        Ok(())
    }

    /// Starts servers that are down. None can start on a full disk.
    fn start_servers(&mut self) -> Result<()> {
        if self.is_disk_full { Ok(()) } else { self.targets.servers.ensure_running() }
    }

    fn fail_over(&mut self) -> Result<()> {
        if self.failover.is_some() || self.migrations.is_moving() || self.is_disk_full {
            return Ok(());
        }
        let Targets { servers, .. } = &mut *self.targets;
        let shard = self.random.index(servers.shards);
        let causes = [Cause::Kill, Cause::Isolation];
        let cause = causes[self.random.index(causes.len())];
        let began = Event::FailoverBegins;
        let failover = Failover::start(servers, self.scenario.store, shard, cause)?;
        if failover.is_some() {
            self.journal.write(began);
            self.failover = failover;
            self.schedule(failover::STEP_DELAY, Step::FailOver);
        }
        Ok(())
    }

    fn continue_failover(&mut self) -> Result<()> {
        let Some(failover) = &mut self.failover else { return Ok(()) };
        let progress = failover.step(&mut self.targets.servers)?;
        if progress == Progress::Continues {
            self.schedule(failover::STEP_DELAY, Step::FailOver);
            return Ok(());
        }
        if progress == Progress::Succeeded {
            self.counts.failovers += 1;
            self.journal.write(Event::FailoverEnds);
        } else {
            self.journal.write(Event::FailoverFails);
        }
        self.failover = None;
        self.last_primary = self.targets.servers.primary(0);
        Ok(())
    }

    /// Records a failover that a slow machine caused. Its answers are in doubt as well.
    fn watch_primary(&mut self) {
        self.schedule(WATCH_DELAY, Step::WatchPrimary);
        if self.failover.is_some() {
            return;
        }
        let Some(primary) = self.targets.servers.primary(0) else { return };
        let before = self.last_primary.replace(primary);
        if before.is_some_and(|before| before != primary) {
            self.counts.unplanned_failovers += 1;
            self.journal.write(Event::UnplannedFailover);
        }
    }

    fn schedule(&mut self, delay: Duration, step: Step) {
        self.steps.push((SystemClock.now() + delay, step));
    }

    /// Picks a child with a matching role. Returns its index.
    fn pick_child(&mut self, matches: impl Fn(Role) -> bool) -> usize {
        let children = self.targets.children.iter().enumerate();
        let indices: Vec<_> = children
            .filter(|(_, child)| matches(child.role))
            .map(|(index, _)| index)
            .collect();
        self.random.pick(&indices).copied().unwrap_or(0)
    }

    fn kill(&mut self, matches: impl Fn(Role) -> bool) -> Result<()> {
        let index = self.pick_child(matches);
        self.counts.kills += 1;
        // If the child was stopped, its successor is not.
        let continues =
            |step: &Step| matches!(step, Step::Continue(other) if *other == index);
        self.steps.retain(|(_, step)| !continues(step));
        self.targets.children[index].kill_and_restart()
    }

    fn stop_worker(&mut self, delay: Duration) -> Result<()> {
        let index = self.pick_child(|role| !role.adds());
        self.counts.stops += 1;
        self.targets.children[index].stop()?;
        self.schedule(delay, Step::Continue(index));
        Ok(())
    }

    /// Picks a server. Returns its index.
    fn random_server(&mut self) -> usize {
        self.random.index(self.targets.servers.len())
    }

    fn move_slot(&mut self) -> Result<()> {
        let shards = self.targets.servers.shards;
        if self.failover.is_some() || !self.migrations.start(shards, &mut self.random) {
            return Ok(());
        }
        self.counts.moves += 1;
        self.continue_move()
    }

    fn continue_move(&mut self) -> Result<()> {
        if let Some(delay) = self.migrations.step(&self.targets.servers)? {
            self.schedule(delay, Step::MoveSlot);
        }
        Ok(())
    }

    fn kill_server(&mut self) -> Result<()> {
        if self.failover.is_some() {
            return Ok(());
        }
        let delay = self.random.millis(0..200);
        self.counts.server_kills += 1;
        self.journal.write(Event::KillingServer);
        let index = self.random_server();
        self.targets.servers[index].engine.kill()?;
        self.schedule(delay, Step::StartServers);
        // A second time, because a start right after the kill may fail.
        self.schedule(delay + Duration::from_millis(400), Step::StartServers);
        Ok(())
    }
}
