//! The recorded histories of all processes, merged by key.

pub(crate) mod event;
pub(crate) mod journal;
pub(crate) mod key;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use self::event::{Answer, Event, FinishAnswer, FinishKind, Grant, Held, Line, Request};
use self::journal::EXTENSION;
use self::key::{
    AddCall, AddOp, DeadRemoval, DeadSighting, Extension, FinishCall, Granted,
    KeyHistory, Reclaim,
};

/// How long after it was sent a call without an answer may be executed, in microseconds.
const LOST_CALL: u64 = 3_000_000;

/// How long before it is noticed an unplanned failover may have begun, in microseconds.
const UNPLANNED_FAILOVER: u64 = 6_000_000;

#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) keys: BTreeMap<String, KeyHistory>,
    pub(crate) reclaims: Vec<Reclaim>,
    /// The times at which the server was killed.
    pub(crate) kills: Vec<u64>,
    /// The beginning and the end of each failover.
    pub(crate) failovers: Vec<(u64, u64)>,
    /// When a server of a shard did not answer: shard, beginning and end.
    pub(crate) black_holes: Vec<(usize, u64, u64)>,
    /// The shard of each partition at the start.
    pub(crate) partitions: Vec<usize>,
    /// The times of lease calls without an answer.
    pub(crate) lost_leases: Vec<u64>,
}

impl History {
    /// Reads all histories in a folder.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let mut processes = Vec::new();
        for entry in fs::read_dir(folder).context("cannot read the folder")? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == EXTENSION) {
                processes.push(read_lines(&path)?);
            }
        }
        Ok(Self::merge(processes))
    }

    /// Merges the histories of several processes.
    pub(crate) fn merge(mut processes: Vec<Vec<Line>>) -> Self {
        processes.sort_by_key(|lines| lines.first().map(|line| line.at));
        let mut history = Self::default();
        let calls: Vec<_> = processes.iter().map(|lines| calls(lines)).collect();
        // Grants first, because finishes and extensions are attached to them.
        for (process, calls) in calls.iter().enumerate() {
            for call in calls {
                history.put_grants(process, call);
            }
        }
        for key in history.keys.values_mut() {
            key.grants.sort_by_key(|grant| grant.token);
        }
        for call in calls.iter().flatten() {
            history.put(call);
        }
        for lines in &processes {
            history.put_other_events(lines);
        }
        history
    }

    /// Returns whether a lease call without an answer may have been executed in this span. A
    /// call to an embedded store ends with its process.
    pub(crate) fn may_have_lost_lease(
        &self,
        from: u64,
        to: u64,
        is_embedded: bool,
    ) -> bool {
        let lasting = if is_embedded { 1 } else { LOST_CALL };
        self.lost_leases.iter().any(|sent| *sent <= to && from < sent + lasting)
    }

    fn key(&mut self, key: &str) -> &mut KeyHistory {
        self.keys.entry(key.to_owned()).or_default()
    }

    fn grant(&mut self, key: &str, token: u64) -> Option<&mut Granted> {
        let grants = &mut self.keys.get_mut(key)?.grants;
        grants.iter_mut().find(|grant| grant.token == token)
    }

    fn put_grants(&mut self, process: usize, call: &Call<'_>) {
        let Request::Lease { owner, lease } = call.request else { return };
        let Some((answered, Answer::Leased(grants))) = call.answer else {
            self.lost_leases.push(call.sent);
            return;
        };
        for Grant { key, token, deliveries } in grants {
            let grant = Granted {
                token: *token,
                deliveries: *deliveries,
                owner: owner.clone(),
                process,
                sent: call.sent,
                answered,
                lease: *lease,
                ..Granted::default()
            };
            self.key(key).grants.push(grant);
        }
    }

    fn put(&mut self, call: &Call<'_>) {
        match call.request {
            Request::Add(keys) => self.put_adds(keys, call),
            Request::Extend { held, lease } => self.put_extensions(held, *lease, call),
            Request::Finish(finishes) => self.put_finishes(finishes, call),
            Request::Reclaim { owner, held } => {
                let (owner, held) = (owner.clone(), held.clone());
                self.reclaims.push(Reclaim { sent: call.sent, owner, held });
            }
            Request::Dead => self.put_sightings(call),
            Request::Revive(keys) => self.put_removals(keys, false, call),
            Request::DropDead(keys) => self.put_removals(keys, true, call),
            Request::Lease { .. } => {}
        }
    }

    fn put_sightings(&mut self, call: &Call<'_>) {
        let Some((answered, Answer::Dead(listed))) = call.answer else { return };
        for dead in listed {
            let (sent, record) = (call.sent, Some(dead.clone()));
            let sighting = DeadSighting { sent, answered, record };
            self.key(&dead.key).sightings.push(sighting);
        }
    }

    /// The answer is a count, so it says which keys were dead only if all or none were.
    fn put_removals(&mut self, keys: &[String], drops: bool, call: &Call<'_>) {
        let answer = match call.answer {
            Some((at, Answer::Removed(0))) => Some((at, false)),
            Some((at, Answer::Removed(count))) if *count == keys.len() as u64 => {
                Some((at, true))
            }
            _ => None,
        };
        let sent = call.sent;
        for key in keys {
            self.key(key).removals.push(DeadRemoval { sent, drops, answer });
        }
    }

    fn put_adds(&mut self, keys: &[String], call: &Call<'_>) {
        for (index, key) in keys.iter().enumerate() {
            let answer = match call.answer {
                Some((at, Answer::Added(answers))) => {
                    answers.get(index).map(|answer| (at, *answer))
                }
                _ => None,
            };
            self.key(key).add_calls.push(AddCall { sent: call.sent, answer });
        }
    }

    fn put_extensions(&mut self, held: &[Held], lease: u64, call: &Call<'_>) {
        let Some((answered, Answer::Extended(answers))) = call.answer else { return };
        for ((key, token), extended) in held.iter().zip(answers) {
            let grant = self.grant(key, *token).filter(|_| *extended);
            if let Some(grant) = grant {
                grant.extensions.push(Extension { sent: call.sent, answered, lease });
            }
        }
    }

    fn put_finishes(&mut self, finishes: &[(String, u64, FinishKind)], call: &Call<'_>) {
        for (index, (key, token, kind)) in finishes.iter().enumerate() {
            let answer = match call.answer {
                Some((at, Answer::Finished(answers))) => {
                    answers.get(index).map(|answer| (at, *answer))
                }
                _ => None,
            };
            if let Some((_, FinishAnswer::NotExecuted)) = answer {
                continue;
            }
            let finish = FinishCall { sent: call.sent, kind: *kind, answer };
            if let Some(grant) = self.grant(key, *token) {
                grant.finishes.push(finish);
            }
            if let Some((answered, FinishAnswer::Dead)) = answer {
                let sighting = DeadSighting { sent: call.sent, answered, record: None };
                self.key(key).sightings.push(sighting);
            }
        }
    }

    /// Adds the events that are not calls to a store.
    fn put_other_events(&mut self, lines: &[Line]) {
        let acknowledged: HashMap<_, _> = lines.iter().filter_map(added).collect();
        for line in lines {
            match &line.event {
                Event::Adding { op, key, lane, version, delay } => {
                    let answer = acknowledged.get(op).copied();
                    let answered = answer.map(|(at, _)| at);
                    let acknowledged =
                        answer.is_some_and(|(_, acknowledged)| acknowledged);
                    let (lane, version, delay) = (*lane, *version, *delay);
                    let at = line.at;
                    let add = AddOp { at, lane, version, delay, answered, acknowledged };
                    self.key(key).adds.push(add);
                }
                Event::Run { key, token, versions } => {
                    if let Some(grant) = self.grant(key, *token) {
                        grant.versions = Some(versions.clone());
                    }
                }
                Event::KillingServer => self.kills.push(line.at),
                Event::FailoverBegins => self.failovers.push((line.at, u64::MAX)),
                Event::FailoverEnds => {
                    if let Some((_, end)) = self.failovers.last_mut() {
                        *end = line.at;
                    }
                }
                Event::UnplannedFailover => {
                    let begin = line.at.saturating_sub(UNPLANNED_FAILOVER);
                    self.failovers.push((begin, line.at));
                }
                Event::FailoverFails => drop(self.failovers.pop()),
                Event::BlackHole { shard, micros } => {
                    self.black_holes.push((*shard, line.at, line.at + micros));
                }
                Event::Partitions { shards } => self.partitions.clone_from(shards),
                Event::Added { .. } | Event::Sent { .. } | Event::Answered { .. } => {}
            }
        }
    }
}

fn added(line: &Line) -> Option<(u64, (u64, bool))> {
    let Event::Added { op, acknowledged } = &line.event else { return None };
    Some((*op, (line.at, *acknowledged)))
}

/// A call to a store, with its answer unless it is in doubt.
struct Call<'a> {
    sent: u64,
    request: &'a Request,
    answer: Option<(u64, &'a Answer)>,
}

/// Returns the calls of one process.
fn calls(lines: &[Line]) -> Vec<Call<'_>> {
    let answers = lines.iter().filter_map(|line| {
        let Event::Answered { call, answer } = &line.event else { return None };
        Some((*call, (line.at, answer)))
    });
    let answers: HashMap<_, _> = answers.collect();
    let calls = lines.iter().filter_map(|line| {
        let Event::Sent { call, request } = &line.event else { return None };
        Some(Call { sent: line.at, request, answer: answers.get(call).copied() })
    });
    calls.collect()
}

/// Reads the complete lines of a history. The last line of a killed process may be cut off.
fn read_lines(path: &Path) -> Result<Vec<Line>> {
    let text =
        fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let complete = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let lines =
        text[..complete].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let parse = |(number, line): (usize, &[u8])| {
        serde_json::from_slice(line)
            .with_context(|| format!("cannot parse {}:{}", path.display(), number + 1))
    };
    lines.enumerate().map(parse).collect()
}
