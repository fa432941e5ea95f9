//! Injects faults on a schedule that depends only on the seed.

use std::time::{Duration, Instant};

use anyhow::Result;
use requeue::{Clock, SystemClock};

use super::migration::Migrations;
use super::{Fault, FaultCounts, faults_of};
use crate::history::event::Event;
use crate::history::journal::Journal;
use crate::process::child::ChildProcess;
use crate::process::role::Role;
use crate::random::Random;
use crate::run::scenario::Scenario;
use crate::server::{Server, Servers};
use crate::store::Kind;
use crate::time::sleep_blocking;

/// How long a connection fault lasts.
const CONNECTION_FAULT: Duration = Duration::from_millis(700);

/// The processes and servers that the nemesis disturbs.
#[derive(Debug)]
pub(crate) struct Targets {
    pub(crate) children: Vec<ChildProcess>,
    pub(crate) servers: Servers,
}

/// A later step of a fault, usually its end.
enum Step {
    /// Continues the stopped child with this index.
    Continue(usize),
    Heal,
    StartServers,
    MoveSlot,
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
    journal: &'a Journal,
}

impl<'a> Nemesis<'a> {
    pub(crate) fn new(
        targets: &'a mut Targets,
        scenario: &Scenario,
        seed: u64,
        journal: &'a Journal,
    ) -> Result<Self> {
        let is_cluster = scenario.store == Kind::Cluster;
        let slots = if is_cluster { scenario.partitions } else { 0 };
        Ok(Self {
            migrations: Migrations::new(slots, &targets.servers)?,
            targets,
            faults: faults_of(scenario.store),
            remaining: Vec::new(),
            random: Random::new(seed, "nemesis"),
            steps: Vec::new(),
            counts: FaultCounts::default(),
            journal,
        })
    }

    /// Injects faults until `end`, then ends them all. Returns how many there were.
    pub(crate) fn run_until(mut self, end: Instant) -> Result<FaultCounts> {
        loop {
            let next = SystemClock.now() + self.random.millis(100..500);
            if next >= end {
                break;
            }
            self.make_steps_until(next)?;
            sleep_blocking(next.saturating_duration_since(SystemClock.now()));
            let fault = self.next_fault();
            self.inject(fault)?;
        }
        while let Some(last) = self.steps.iter().map(|(at, _)| *at).max() {
            self.make_steps_until(last)?;
        }
        Ok(self.counts)
    }

    fn next_fault(&mut self) -> Fault {
        if self.remaining.is_empty() {
            self.remaining.clone_from(&self.faults);
            self.random.shuffle(&mut self.remaining);
        }
        self.remaining.pop().unwrap_or(Fault::CutConnections)
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
            Step::Heal => {
                self.targets.servers.heal();
                Ok(())
            }
            Step::StartServers => self.targets.servers.ensure_running(),
            Step::MoveSlot => self.continue_move(),
        }
    }

    fn inject(&mut self, fault: Fault) -> Result<()> {
        match fault {
            Fault::KillWorker => self.kill(|role| !role.adds()),
            Fault::KillProducer => self.kill(Role::adds),
            Fault::StopWorker(millis) => self.stop_worker(Duration::from_millis(millis)),
            Fault::KillServer => self.kill_server(),
            Fault::MoveSlot => self.move_slot(),
            Fault::CutConnections => {
                self.counts.cuts += 1;
                self.random_server().proxy.cut();
                Ok(())
            }
            Fault::Connection(fault) => {
                self.counts.connection_faults += 1;
                self.random_server().proxy.inject(fault);
                self.schedule(CONNECTION_FAULT, Step::Heal);
                Ok(())
            }
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

    fn random_server(&mut self) -> &mut Server {
        let index = self.random.index(self.targets.servers.len());
        &mut self.targets.servers[index]
    }

    fn move_slot(&mut self) -> Result<()> {
        let nodes = self.targets.servers.len();
        if !self.migrations.start(nodes, &mut self.random) {
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
        let delay = self.random.millis(0..200);
        self.counts.server_kills += 1;
        self.journal.write(Event::KillingServer);
        self.random_server().engine.kill()?;
        self.schedule(delay, Step::StartServers);
        // A second time, because a start right after the kill may fail.
        self.schedule(delay + Duration::from_millis(400), Step::StartServers);
        Ok(())
    }
}
