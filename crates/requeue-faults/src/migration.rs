//! A slot of a cluster on its way from node to node, one Redis key after the other, as
//! `redis-cli` moves them.
//!
//! # Invariants
//!
//! 1. A slot has a new home only when its old one has nothing of it left.
//! 2. Every step can be made again: a node may be gone in the middle of one.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::dice::Dice;
use crate::engine::Engine;
use crate::servers::{Server, Servers};
use crate::stores;

/// How often a step may fail before the run has. A node that was killed is back sooner.
const TRIES: u32 = 500;

/// How long a node waits for another, in milliseconds.
const TIMEOUT: u32 = 300;

/// Where the slot of each partition is, and the one that moves.
#[derive(Debug)]
pub(crate) struct Migrations {
    /// The slot of each partition and the node that has it.
    homes: Vec<(u16, usize)>,
    moving: Option<Migration>,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    Carry,
    Settle,
}

#[derive(Debug)]
struct Migration {
    partition: usize,
    slot: u16,
    from: usize,
    to: usize,
    stage: Stage,
    failed: u32,
}

impl Migrations {
    /// Before any slot has moved.
    pub(crate) fn new(partitions: usize, nodes: &Servers) -> Result<Self> {
        let home = |partition| {
            let slot = nodes[0].engine.slot_of(&stores::redis_key(partition))?;
            Ok((slot, Engine::first_home(slot, nodes.len())))
        };
        let homes = (0..partitions).map(home).collect::<Result<_>>()?;
        Ok(Self { homes, moving: None })
    }

    /// Chooses a slot and where it goes: whether none was on its way.
    pub(crate) fn begin(&mut self, nodes: usize, dice: &mut Dice) -> bool {
        if self.moving.is_some() {
            return false;
        }
        let partition = below(dice, self.homes.len());
        let (slot, from) = self.homes[partition];
        let to = (from + 1 + below(dice, nodes - 1)) % nodes;
        let stage = Stage::Open;
        self.moving = Some(Migration { partition, slot, from, to, stage, failed: 0 });
        true
    }

    /// Goes on with what is on its way: when to do so next, unless it is there.
    pub(crate) fn step(&mut self, nodes: &Servers) -> Result<Option<Duration>> {
        let Some(moving) = &mut self.moving else { return Ok(None) };
        match moving.step(nodes) {
            Ok(Some(stage)) => moving.stage = stage,
            Ok(None) => {
                self.homes[moving.partition].1 = moving.to;
                self.moving = None;
                return Ok(None);
            }
            Err(error) => {
                moving.failed += 1;
                ensure!(
                    moving.failed < TRIES,
                    "slot {} cannot be moved: {error:#}",
                    moving.slot
                );
            }
        }
        Ok(Some(Duration::from_millis(20)))
    }
}

impl Migration {
    /// One step: the stage after it, unless it was the last.
    fn step(&self, nodes: &[Server]) -> Result<Option<Stage>> {
        let (from, to) = (&nodes[self.from].engine, &nodes[self.to].engine);
        let set = |node: &Engine, words: &str| {
            node.tell(&format!("CLUSTER SETSLOT {} {words}", self.slot))
        };
        match self.stage {
            Stage::Open => {
                set(to, &format!("IMPORTING {}", from.id()?))?;
                set(from, &format!("MIGRATING {}", to.id()?))?;
                Ok(Some(Stage::Carry))
            }
            Stage::Carry => match from.key_in(self.slot)? {
                Some(key) => {
                    from.send_key(&key, to.port, TIMEOUT)?;
                    Ok(Some(Stage::Carry))
                }
                None => Ok(Some(Stage::Settle)),
            },
            Stage::Settle => {
                let home = format!("NODE {}", to.id()?);
                set(to, &home).context("at its new home")?;
                set(from, &home).context("at its old home")?;
                Ok(None)
            }
        }
    }
}

fn below(dice: &mut Dice, end: usize) -> usize {
    usize::try_from(dice.below(end as u64)).unwrap_or(0)
}
