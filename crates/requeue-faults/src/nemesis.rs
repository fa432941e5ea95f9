//! Who makes things go wrong: by a schedule that a seed decides.

use std::time::{Duration, Instant};

use anyhow::Result;
use requeue::{Clock, SystemClock};

use crate::check::Home;
use crate::crew::Member;
use crate::dice::Dice;
use crate::event::Event;
use crate::journal::Journal;
use crate::migration::Migrations;
use crate::proxy::{Trouble, park};
use crate::roles::Role;
use crate::scene::Scene;
use crate::servers::{Server, Servers};
use crate::stores::Kind;

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    KillWorker,
    KillProducer,
    /// Stops a worker for so many milliseconds, against a short lease of 400.
    Stop(u64),
    KillEngine,
    Cut,
    Trouble(Trouble),
    MoveSlot,
}

/// All that can happen to a shared store. Each happens before one happens again.
const SERVER: [Fault; 16] = [
    Fault::KillWorker,
    Fault::KillWorker,
    Fault::KillWorker,
    Fault::KillProducer,
    Fault::Stop(100),
    Fault::Stop(600),
    Fault::Stop(600),
    Fault::Stop(600),
    Fault::Stop(1200),
    Fault::Stop(1200),
    Fault::KillEngine,
    Fault::Cut,
    Fault::Cut,
    Fault::Trouble(Trouble::Delay),
    Fault::Trouble(Trouble::HalfOpen),
    Fault::Trouble(Trouble::DropReplies),
];

/// What can happen to a cluster besides.
const NODES: [Fault; 4] = [Fault::MoveSlot; 4];

/// All that can happen to an embedded store.
const EMBEDDED: [Fault; 6] = [
    Fault::KillWorker,
    Fault::KillWorker,
    Fault::Stop(100),
    Fault::Stop(600),
    Fault::Stop(600),
    Fault::Stop(1200),
];

/// All that can happen to a store that lives and dies with its process.
const MEMORY: [Fault; 3] = [Fault::Stop(100), Fault::Stop(600), Fault::Stop(1200)];

/// How often what happened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) kills: usize,
    pub(crate) stalls: usize,
    pub(crate) engine_kills: usize,
    pub(crate) cuts: usize,
    pub(crate) troubles: usize,
    pub(crate) moves: usize,
}

/// What the nemesis can lay hands on.
#[derive(Debug)]
pub(crate) struct Targets {
    pub(crate) crew: Vec<Member>,
    pub(crate) servers: Servers,
}

/// What is to be undone, and when.
enum Undo {
    Continue(usize),
    Heal,
    StartEngine,
    /// The next step of a slot that moves.
    MoveOn,
}

/// The one who makes things go wrong.
pub(crate) struct Nemesis<'a> {
    targets: &'a mut Targets,
    deck: Vec<Fault>,
    hand: Vec<Fault>,
    dice: Dice,
    undo: Vec<(Instant, Undo)>,
    faults: Faults,
    migrations: Migrations,
    journal: &'a Journal,
}

impl<'a> Nemesis<'a> {
    pub(crate) fn new(
        targets: &'a mut Targets,
        scene: &Scene,
        seed: u64,
        journal: &'a Journal,
    ) -> Result<Self> {
        let deck: &[&[Fault]] = match (scene.store, scene.store.home()) {
            (Kind::Memory, _) => &[&MEMORY],
            (Kind::Cluster, _) => &[&SERVER, &NODES],
            (_, Home::Embedded) => &[&EMBEDDED],
            (_, Home::Server) => &[&SERVER],
        };
        let slots = if scene.store == Kind::Cluster { scene.partitions } else { 0 };
        let migrations = Migrations::new(slots, &targets.servers)?;
        let (deck, dice) = (deck.concat(), Dice::new(seed, "nemesis"));
        let (hand, undo, faults) = Default::default();
        Ok(Self { targets, deck, hand, dice, undo, faults, migrations, journal })
    }

    /// Disturbs until `end`, and then undoes all: how often what happened.
    pub(crate) fn disturb(mut self, end: Instant) -> Result<Faults> {
        loop {
            let next = SystemClock.now() + self.dice.millis(100..500);
            if next >= end {
                break;
            }
            self.undo_until(next)?;
            park(next.saturating_duration_since(SystemClock.now()));
            let fault = self.draw();
            self.strike(fault)?;
        }
        while let Some(last) = self.undo.iter().map(|(at, _)| *at).max() {
            self.undo_until(last)?;
        }
        Ok(self.faults)
    }

    fn draw(&mut self) -> Fault {
        if self.hand.is_empty() {
            self.hand.clone_from(&self.deck);
            self.dice.shuffle(&mut self.hand);
        }
        self.hand.pop().unwrap_or(Fault::Cut)
    }

    /// Undoes what is due until then, each thing at its time.
    fn undo_until(&mut self, end: Instant) -> Result<()> {
        while let Some((at, undo)) = self.undo.pop_if_due(end) {
            park(at.saturating_duration_since(SystemClock.now()));
            self.put_right(&undo)?;
        }
        Ok(())
    }

    fn put_right(&mut self, undo: &Undo) -> Result<()> {
        match undo {
            Undo::Continue(place) => self.targets.crew[*place].go_on(),
            Undo::Heal => {
                self.targets.servers.heal();
                Ok(())
            }
            Undo::StartEngine => self.targets.servers.ensure_running(),
            Undo::MoveOn => self.move_on(),
        }
    }

    fn strike(&mut self, fault: Fault) -> Result<()> {
        match fault {
            Fault::KillWorker => self.kill(|role| !role.adds()),
            Fault::KillProducer => self.kill(Role::adds),
            Fault::Stop(millis) => self.stop(Duration::from_millis(millis)),
            Fault::KillEngine => self.kill_engine(),
            Fault::MoveSlot => self.move_slot(),
            Fault::Cut => {
                self.faults.cuts += 1;
                self.server().proxy.cut();
                Ok(())
            }
            Fault::Trouble(trouble) => {
                self.faults.troubles += 1;
                self.server().proxy.make(trouble);
                self.later(Duration::from_millis(700), Undo::Heal);
                Ok(())
            }
        }
    }

    fn later(&mut self, delay: Duration, undo: Undo) {
        self.undo.push((SystemClock.now() + delay, undo));
    }

    fn choose(&mut self, chosen: impl Fn(Role) -> bool) -> usize {
        let crew = self.targets.crew.iter().enumerate();
        let places: Vec<_> = crew
            .filter(|(_, member)| chosen(member.role))
            .map(|(place, _)| place)
            .collect();
        self.dice.pick(&places).copied().unwrap_or(0)
    }

    fn kill(&mut self, chosen: impl Fn(Role) -> bool) -> Result<()> {
        let place = self.choose(chosen);
        self.faults.kills += 1;
        // A process that was stopped is gone, and its successor was not stopped.
        let continues =
            |undo: &Undo| matches!(undo, Undo::Continue(other) if *other == place);
        self.undo.retain(|(_, undo)| !continues(undo));
        self.targets.crew[place].kill()
    }

    fn stop(&mut self, delay: Duration) -> Result<()> {
        let place = self.choose(|role| !role.adds());
        self.faults.stalls += 1;
        self.targets.crew[place].stop()?;
        self.later(delay, Undo::Continue(place));
        Ok(())
    }

    /// One of the servers.
    fn server(&mut self) -> &mut Server {
        let count = self.targets.servers.len() as u64;
        let place = usize::try_from(self.dice.below(count)).unwrap_or(0);
        &mut self.targets.servers[place]
    }

    fn move_slot(&mut self) -> Result<()> {
        let nodes = self.targets.servers.len();
        if !self.migrations.begin(nodes, &mut self.dice) {
            return Ok(());
        }
        self.faults.moves += 1;
        self.move_on()
    }

    fn move_on(&mut self) -> Result<()> {
        if let Some(delay) = self.migrations.step(&self.targets.servers)? {
            self.later(delay, Undo::MoveOn);
        }
        Ok(())
    }

    fn kill_engine(&mut self) -> Result<()> {
        let delay = self.dice.millis(0..200);
        self.faults.engine_kills += 1;
        self.journal.write(Event::KillingEngine);
        self.server().engine.kill()?;
        self.later(delay, Undo::StartEngine);
        // Should the first start have come too early.
        self.later(delay + Duration::from_millis(400), Undo::StartEngine);
        Ok(())
    }
}

/// Taking what is due first from a list.
trait PopIfDue<T> {
    fn pop_if_due(&mut self, end: Instant) -> Option<(Instant, T)>;
}

impl<T> PopIfDue<T> for Vec<(Instant, T)> {
    fn pop_if_due(&mut self, end: Instant) -> Option<(Instant, T)> {
        let due = self.iter().enumerate().filter(|(_, (at, _))| *at <= end);
        let first = due.min_by_key(|(_, (at, _))| *at).map(|(place, _)| place);
        first.map(|place| self.remove(place))
    }
}
