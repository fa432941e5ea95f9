//! Histories: what the processes of a run wrote down, brought together.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::story::{
    AddOp, Attempt, Death, End, Exhumation, Extension, Granted, Reclaim, Story,
};
use crate::event::{Answer, Ending, Event, Finished, Grant, Held, Line, Request};
use crate::journal::EXTENSION;

/// All that is known of a run, key by key.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) keys: BTreeMap<String, Story>,
    pub(crate) reclaims: Vec<Reclaim>,
    /// When the engine was killed.
    pub(crate) kills: Vec<u64>,
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
        Ok(Self::of(processes))
    }

    /// Brings together what each process wrote.
    pub(crate) fn of(mut processes: Vec<Vec<Line>>) -> Self {
        processes.sort_by_key(|lines| lines.first().map(|line| line.at));
        let mut history = Self::default();
        let calls: Vec<_> = processes.iter().map(|lines| Calls::of(lines)).collect();
        // Grants first: ends and extensions are put to them.
        for (process, calls) in calls.iter().enumerate() {
            calls.0.iter().for_each(|call| history.put_grants(process, call));
        }
        for story in history.keys.values_mut() {
            story.grants.sort_by_key(|grant| grant.token);
        }
        calls.iter().flat_map(|calls| &calls.0).for_each(|call| history.put(call));
        for lines in &processes {
            history.put_own(lines);
        }
        history
    }

    fn story(&mut self, key: &str) -> &mut Story {
        self.keys.entry(key.to_owned()).or_default()
    }

    fn grant(&mut self, key: &str, token: u64) -> Option<&mut Granted> {
        let grants = &mut self.keys.get_mut(key)?.grants;
        grants.iter_mut().find(|grant| grant.token == token)
    }

    fn put_grants(&mut self, process: usize, call: &Call<'_>) {
        let Request::Lease { owner, lease, waits } = call.request else { return };
        let Some((answered, Answer::Leased(grants))) = call.answer else { return };
        for Grant { key, token, deliveries } in grants {
            let grant = Granted {
                token: *token,
                deliveries: *deliveries,
                owner: owner.clone(),
                process,
                sent: call.sent,
                answered,
                lease: *lease,
                waited: *waits,
                ..Granted::default()
            };
            self.story(key).grants.push(grant);
        }
    }

    fn put(&mut self, call: &Call<'_>) {
        match call.request {
            Request::Add(keys) => self.put_adds(keys, call),
            Request::Extend { held, lease } => self.put_extensions(held, *lease, call),
            Request::Finish(ends) => self.put_ends(ends, call),
            Request::Reclaim { owner, held } => {
                let (owner, held) = (owner.clone(), held.clone());
                self.reclaims.push(Reclaim { sent: call.sent, owner, held });
            }
            Request::Dead => self.put_deaths(call),
            Request::Exhume { keys, drops } => self.put_exhumations(keys, *drops, call),
            Request::Lease { .. } => {}
        }
    }

    fn put_deaths(&mut self, call: &Call<'_>) {
        let Some((answered, Answer::Dead(corpses))) = call.answer else { return };
        for corpse in corpses {
            let (sent, listed) = (call.sent, Some(corpse.clone()));
            let death = Death { sent, answered, corpse: listed };
            self.story(&corpse.key).deaths.push(death);
        }
    }

    /// Which of several keys were dead is known if all were, or none.
    fn put_exhumations(&mut self, keys: &[String], drops: bool, call: &Call<'_>) {
        let answer = match call.answer {
            Some((at, Answer::Exhumed(0))) => Some((at, false)),
            Some((at, Answer::Exhumed(count))) if *count == keys.len() as u64 => {
                Some((at, true))
            }
            _ => None,
        };
        let sent = call.sent;
        for key in keys {
            self.story(key).exhumations.push(Exhumation { sent, drops, answer });
        }
    }

    fn put_adds(&mut self, keys: &[String], call: &Call<'_>) {
        for (place, key) in keys.iter().enumerate() {
            let answer = match call.answer {
                Some((at, Answer::Added(answers))) => {
                    answers.get(place).map(|answer| (at, *answer))
                }
                _ => None,
            };
            self.story(key).attempts.push(Attempt { sent: call.sent, answer });
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

    fn put_ends(&mut self, ends: &[(String, u64, Ending)], call: &Call<'_>) {
        for (place, (key, token, ending)) in ends.iter().enumerate() {
            let answer = match call.answer {
                Some((at, Answer::Finished(answers))) => {
                    answers.get(place).map(|answer| (at, *answer))
                }
                _ => None,
            };
            if let Some((_, Finished::Busy)) = answer {
                continue;
            }
            let end = End { sent: call.sent, ending: *ending, answer };
            if let Some(grant) = self.grant(key, *token) {
                grant.ends.push(end);
            }
            if let Some((answered, Finished::Buried)) = answer {
                let death = Death { sent: call.sent, answered, corpse: None };
                self.story(key).deaths.push(death);
            }
        }
    }

    /// What is no call to a store: adds as their producers saw them, and runs.
    fn put_own(&mut self, lines: &[Line]) {
        let acknowledged: HashMap<_, _> = lines.iter().filter_map(outcome).collect();
        for line in lines {
            match &line.event {
                Event::Adding { op, key, lane, version, delay } => {
                    let acknowledged = acknowledged.get(op).copied().unwrap_or(false);
                    let (lane, version, delay) = (*lane, *version, *delay);
                    let at = line.at;
                    let add = AddOp { at, lane, version, delay, acknowledged };
                    self.story(key).adds.push(add);
                }
                Event::Run { key, token, versions } => {
                    if let Some(grant) = self.grant(key, *token) {
                        grant.versions = Some(versions.clone());
                    }
                }
                Event::KillingEngine => self.kills.push(line.at),
                Event::Added { .. } | Event::Sent { .. } | Event::Answered { .. } => {}
            }
        }
    }
}

fn outcome(line: &Line) -> Option<(u64, bool)> {
    let Event::Added { op, acknowledged } = &line.event else { return None };
    Some((*op, *acknowledged))
}

/// A call to a store, with its answer if there was one.
struct Call<'a> {
    sent: u64,
    request: &'a Request,
    answer: Option<(u64, &'a Answer)>,
}

/// The calls of one process.
struct Calls<'a>(Vec<Call<'a>>);

impl<'a> Calls<'a> {
    fn of(lines: &'a [Line]) -> Self {
        let answer = |line: &'a Line| {
            let Event::Answered { call, answer } = &line.event else { return None };
            Some((*call, (line.at, answer)))
        };
        let answers: HashMap<_, _> = lines.iter().filter_map(answer).collect();
        let calls = lines.iter().filter_map(|line| {
            let Event::Sent { call, request } = &line.event else { return None };
            Some(Call { sent: line.at, request, answer: answers.get(call).copied() })
        });
        Self(calls.collect())
    }
}

/// The last line of a process that was killed may be cut off.
fn read_lines(path: &Path) -> Result<Vec<Line>> {
    let text =
        fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let lines =
        text[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let parse = |(number, line): (usize, &[u8])| {
        serde_json::from_slice(line).with_context(|| {
            format!("{}: line {} is no event", path.display(), number + 1)
        })
    };
    lines.enumerate().map(parse).collect()
}
