//! Takes lines from the input and adds their keys to the queue.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::time::Duration;

use requeue::{AddOptions, Added, Queue};
use requeue_store::{Add, Error};

use crate::input::{Input, Key, Record, split_priority};
use crate::report::Resumed;
use crate::run::Run;
use crate::shared::{SharedKeys, fatal};
use crate::supply::Supply;

/// How lines become keys in the queue.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) priority: Option<usize>,
    pub(crate) debounce: Option<Duration>,
    pub(crate) resumed: Resumed,
}

/// The most keys that go to a store in one call.
pub(crate) const BATCH: usize = 256;

/// Lines that are at hand together.
#[derive(Debug, Default)]
struct Bundle {
    /// All of them.
    lines: HashSet<Vec<u8>>,
    /// What is to go to a store.
    unsent: Vec<Add>,
    /// Lines that are told of as merged once what they merged with has gone there.
    merged: Vec<Vec<u8>>,
}

impl Reader {
    /// Reads all sources, one after the other; breaks off if nothing more is wanted.
    pub(crate) fn read(&self, run: &Run, input: Input) -> ControlFlow<()> {
        for source in input.sources {
            let mut bundle = Bundle::default();
            let take = |record: Record<'_>| match record {
                Record::Line(line) => self.add(run, line, &mut bundle),
                Record::Pause => {
                    bundle.lines.clear();
                    send(run, &mut bundle)
                }
            };
            let read = source.read(input.separator, take);
            // The last line may end without a pause.
            let sent = send(run, &mut bundle);
            match read {
                Ok(flow) => {
                    flow?;
                    sent?;
                }
                Err(error) => {
                    run.fault(&format!("cannot read the keys: {error}"));
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Adds the key of a line. Of equal lines that are at hand together, the first is
    /// added and the others are merged with it, though it may run already: they were
    /// written before that.
    fn add(&self, run: &Run, line: &[u8], bundle: &mut Bundle) -> ControlFlow<()> {
        if line.is_empty() {
            return ControlFlow::Continue(()); // a word that is as good as a blank line
        }
        let Some(field) = self.priority else {
            if bundle.lines.contains(line) {
                return self.merge(run, line, bundle);
            }
            bundle.lines.insert(line.to_vec());
            return self.add_key(run, line, None, bundle);
        };
        match split_priority(line, field) {
            Ok((priority, key)) => self.add_key(run, &key, Some(priority), bundle),
            Err(why) => {
                run.report.refused(line, &why.to_string());
                ControlFlow::Continue(())
            }
        }
    }

    /// Tells that a line was merged with an equal one: not before that was added.
    fn merge(&self, run: &Run, line: &[u8], bundle: &mut Bundle) -> ControlFlow<()> {
        match &run.supply {
            Supply::Memory(_) => self.tell(run, line, || Some(Added::Duplicate)),
            Supply::Store(_) => {
                bundle.merged.push(line.to_vec());
                ControlFlow::Continue(())
            }
        }
    }

    fn add_key(
        &self,
        run: &Run,
        key: &[u8],
        priority: Option<i32>,
        bundle: &mut Bundle,
    ) -> ControlFlow<()> {
        match &run.supply {
            Supply::Memory(queue) => {
                if let Some(room) = &run.room {
                    room.wait(queue);
                }
                self.tell(run, key, || self.enqueue(queue, key, priority))
            }
            Supply::Store(keys) => put(run, key, keys.wish(key, priority), bundle),
        }
    }

    fn tell(
        &self,
        run: &Run,
        key: &[u8],
        add: impl FnOnce() -> Option<Added>,
    ) -> ControlFlow<()> {
        if self.resumed.is_finished(key) {
            run.report.skipped();
            return ControlFlow::Continue(());
        }
        match run.report.adding(key, add) {
            Ok(None) => ControlFlow::Break(()),
            Ok(Some(_)) => ControlFlow::Continue(()),
            Err(error) => {
                run.logged(Err(error));
                ControlFlow::Break(())
            }
        }
    }

    /// Adds a key to the queue. Returns `None` if it is closed.
    fn enqueue(
        &self,
        queue: &Queue<Key>,
        key: &[u8],
        priority: Option<i32>,
    ) -> Option<Added> {
        match (self.debounce, priority) {
            (Some(delay), _) => {
                let known = queue.contains(key);
                let added = queue.postpone(key.to_vec(), delay).ok()?;
                Some(if known { Added::Duplicate } else { added })
            }
            (None, Some(priority)) => {
                queue.add_with(key.to_vec(), AddOptions::new().priority(priority)).ok()
            }
            (None, None) => queue.add_ref(key).ok(),
        }
    }
}

/// Puts a key with those that go to the store, and sends them if they are many. A key that
/// no store takes is told of and left out.
fn put(
    run: &Run,
    key: &[u8],
    add: Result<Add, Error>,
    bundle: &mut Bundle,
) -> ControlFlow<()> {
    match add {
        Ok(add) => bundle.unsent.push(add),
        Err(error) => {
            // There is nothing that an equal line could be merged with.
            bundle.lines.remove(key);
            run.report.refused(key, &error.to_string());
        }
    }
    if bundle.unsent.len() < BATCH {
        ControlFlow::Continue(())
    } else {
        send(run, bundle)
    }
}

/// Sends keys to the store, no more than there is room for at a time, and tells of those
/// that were merged with them.
fn send(run: &Run, bundle: &mut Bundle) -> ControlFlow<()> {
    let Supply::Store(keys) = &run.supply else { return ControlFlow::Continue(()) };
    let unsent = &mut bundle.unsent;
    while !unsent.is_empty() {
        let room = run.room.as_ref().map_or(unsent.len(), |room| keys.room(room.max));
        let batch: Vec<_> = unsent.drain(..room.min(unsent.len())).collect();
        send_batch(run, keys, &batch)?;
    }
    for line in bundle.merged.drain(..) {
        run.logged(run.report.added(&line, Added::Duplicate));
    }
    ControlFlow::Continue(())
}

fn send_batch(run: &Run, keys: &SharedKeys, batch: &[Add]) -> ControlFlow<()> {
    let receipts = match keys.add(batch) {
        Ok(receipts) => receipts,
        Err(error) => {
            run.fault(&fatal(&error));
            return ControlFlow::Break(());
        }
    };
    if receipts.is_empty() {
        return ControlFlow::Break(()); // closed
    }
    for (add, receipt) in batch.iter().zip(receipts) {
        run.logged(run.report.added(&add.key, receipt.added));
    }
    ControlFlow::Continue(())
}
