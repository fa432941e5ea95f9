//! Moves slots of a cluster from node to node, one Redis key at a time, as `redis-cli` does.
//!
//! # Invariants
//!
//! 1. A slot is assigned to its new node only when the old node has no key of it left.
//! 2. Every step can be repeated, because a node may be killed during one.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::random::Random;
use crate::server::Servers;
use crate::server::engine::Engine;
use crate::store;

/// How often a step may fail. A killed node is back long before that.
const MAX_FAILURES: u32 = 500;

/// The pause between two steps.
const STEP_DELAY: Duration = Duration::from_millis(20);

/// How long one node waits for the other, in milliseconds.
const TIMEOUT: u32 = 300;

#[derive(Debug)]
pub(crate) struct Migrations {
    /// The slot of each partition, and the shard that owns it.
    slots: Vec<(u16, usize)>,
    current: Option<Migration>,
}

/// The next step of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Mark the slot as migrating on both nodes.
    Open,
    /// Move one key.
    MoveKey,
    /// Assign the slot to its new node.
    Assign,
}

#[derive(Debug)]
struct Migration {
    partition: usize,
    slot: u16,
    from: usize,
    to: usize,
    stage: Stage,
    failures: u32,
}

impl Migrations {
    /// Returns the initial owners of the slots of `partitions` partitions.
    pub(crate) fn new(partitions: usize, nodes: &Servers) -> Result<Self> {
        let slot = |partition| {
            let slot = nodes[0].engine.slot_of(&store::redis_key(partition))?;
            Ok((slot, Engine::initial_shard(slot, nodes.shards)))
        };
        let slots = (0..partitions).map(slot).collect::<Result<_>>()?;
        Ok(Self { slots, current: None })
    }

    /// Returns the shard of each partition.
    pub(crate) fn shards(&self) -> Vec<usize> {
        self.slots.iter().map(|(_, shard)| *shard).collect()
    }

    pub(crate) fn is_moving(&self) -> bool {
        self.current.is_some()
    }

    /// Picks a slot and its new shard. Returns `false` if another slot is still moving.
    pub(crate) fn start(&mut self, shards: usize, random: &mut Random) -> bool {
        if self.current.is_some() {
            return false;
        }
        let partition = random.index(self.slots.len());
        let (slot, from) = self.slots[partition];
        let to = (from + 1 + random.index(shards - 1)) % shards;
        let stage = Stage::Open;
        self.current = Some(Migration { partition, slot, from, to, stage, failures: 0 });
        true
    }

    /// Makes the next step. Returns the delay until the one after it, or `None` at the end.
    pub(crate) fn step(&mut self, nodes: &Servers) -> Result<Option<Duration>> {
        let Some(current) = &mut self.current else { return Ok(None) };
        match current.step(nodes) {
            Ok(Some(stage)) => current.stage = stage,
            Ok(None) => {
                self.slots[current.partition].1 = current.to;
                self.current = None;
                return Ok(None);
            }
            Err(error) => {
                current.failures += 1;
                ensure!(
                    current.failures < MAX_FAILURES,
                    "cannot move slot {}: {error:#}",
                    current.slot
                );
            }
        }
        Ok(Some(STEP_DELAY))
    }
}

impl Migration {
    /// Makes the step of the current stage. Returns the next stage, or `None` at the end.
    fn step(&self, nodes: &Servers) -> Result<Option<Stage>> {
        let (from, to) =
            (nodes.primary_engine(self.from)?, nodes.primary_engine(self.to)?);
        let set_slot = |node: &Engine, state: &str| {
            node.command_ok(&format!("CLUSTER SETSLOT {} {state}", self.slot))
        };
        match self.stage {
            Stage::Open => {
                set_slot(to, &format!("IMPORTING {}", from.node_id()?))?;
                set_slot(from, &format!("MIGRATING {}", to.node_id()?))?;
                Ok(Some(Stage::MoveKey))
            }
            Stage::MoveKey => match from.key_in(self.slot)? {
                Some(key) => {
                    from.migrate_key(&key, to.port, TIMEOUT)?;
                    Ok(Some(Stage::MoveKey))
                }
                None => Ok(Some(Stage::Assign)),
            },
            Stage::Assign => {
                let owner = format!("NODE {}", to.node_id()?);
                set_slot(to, &owner).context("on the new node")?;
                set_slot(from, &owner).context("on the old node")?;
                Ok(None)
            }
        }
    }
}
