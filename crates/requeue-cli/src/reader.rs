//! Reads lines from the input and adds their keys to the queue.

use std::collections::HashSet;
use std::io;
use std::ops::ControlFlow;

use requeue::Added;
use requeue_store::Add;

use crate::input::{Input, Record, split_priority};
use crate::queue::{MemoryQueue, RunQueue, StoreQueue, fatal};
use crate::report::Resumed;
use crate::run::Runner;

/// Adds the keys of the input to the queue.
#[derive(Debug)]
pub(crate) struct Reader<'r> {
    runner: &'r Runner,
    /// The number of the word that is the priority, counted from 1.
    priority: Option<usize>,
    resumed: Resumed,
    chunk: Chunk,
}

/// The maximum number of keys added to a store in one call.
pub(crate) const BATCH: usize = 256;

/// The lines that were available at the same time.
#[derive(Debug, Default)]
struct Chunk {
    lines: HashSet<Vec<u8>>,
    /// Adds that are not yet sent to the store.
    unsent: Vec<Add>,
    /// Duplicate lines, to be reported after `unsent` is sent.
    merged: Vec<Vec<u8>>,
}

impl<'r> Reader<'r> {
    pub(crate) fn new(
        runner: &'r Runner,
        priority: Option<usize>,
        resumed: Resumed,
    ) -> Self {
        Self { runner, priority, resumed, chunk: Chunk::default() }
    }

    /// Reads all sources. Breaks if the queue is closed or something failed.
    pub(crate) fn read(mut self, input: Input) -> ControlFlow<()> {
        for source in input.sources {
            let read = source.read(input.separator, |record| match record {
                Record::Line(line) => self.add_line(line),
                Record::Pause => self.end_chunk(),
            });
            // The last line is not followed by a pause.
            let sent = self.end_chunk();
            match read {
                Ok(flow) => {
                    flow?;
                    sent?;
                }
                Err(error) => {
                    self.runner.fail(&format!("cannot read the input: {error}"));
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn end_chunk(&mut self) -> ControlFlow<()> {
        self.chunk.lines.clear();
        self.send()
    }

    /// Adds the key of a line. Duplicates within a chunk are merged even if the first one is
    /// already running: they were all written before it started.
    fn add_line(&mut self, line: &[u8]) -> ControlFlow<()> {
        if line.is_empty() {
            return ControlFlow::Continue(()); // an empty argument, like a blank line
        }
        let Some(field) = self.priority else {
            if self.chunk.lines.contains(line) {
                return self.merge(line);
            }
            self.chunk.lines.insert(line.to_vec());
            return self.add(line, None);
        };
        match split_priority(line, field) {
            Ok((priority, key)) => self.add(&key, Some(priority)),
            Err(why) => {
                self.runner.report.rejected(line, &why.to_string());
                ControlFlow::Continue(())
            }
        }
    }

    /// Reports a duplicate line, but not before the add of the first one.
    fn merge(&mut self, line: &[u8]) -> ControlFlow<()> {
        match &self.runner.queue {
            RunQueue::Memory(_) if self.skip(line) => ControlFlow::Continue(()),
            RunQueue::Memory(_) => {
                let entry = self.runner.report.reserve();
                self.logged(self.runner.report.added(entry, line, Added::Duplicate))
            }
            RunQueue::Store(_) => {
                self.chunk.merged.push(line.to_vec());
                ControlFlow::Continue(())
            }
        }
    }

    fn add(&mut self, key: &[u8], priority: Option<i32>) -> ControlFlow<()> {
        match &self.runner.queue {
            RunQueue::Memory(queue) => self.add_to_memory(queue, key, priority),
            RunQueue::Store(queue) => self.add_to_store(queue, key, priority),
        }
    }

    /// Counts and skips a key that an earlier run finished.
    fn skip(&self, key: &[u8]) -> bool {
        let finished = self.resumed.is_finished(key);
        if finished {
            self.runner.report.skipped();
        }
        finished
    }

    fn add_to_memory(
        &self,
        queue: &MemoryQueue,
        key: &[u8],
        priority: Option<i32>,
    ) -> ControlFlow<()> {
        queue.wait_for_room();
        if self.skip(key) {
            return ControlFlow::Continue(());
        }
        let entry = self.runner.report.reserve();
        match queue.add(key, priority) {
            Some(added) => self.logged(self.runner.report.added(entry, key, added)),
            None => ControlFlow::Break(()),
        }
    }

    fn add_to_store(
        &mut self,
        queue: &StoreQueue,
        key: &[u8],
        priority: Option<i32>,
    ) -> ControlFlow<()> {
        match queue.encode(key, priority) {
            Ok(add) => self.chunk.unsent.push(add),
            Err(error) => {
                // An equal line is rejected again instead of merged.
                self.chunk.lines.remove(key);
                self.runner.report.rejected(key, &error.to_string());
            }
        }
        if self.chunk.unsent.len() < BATCH {
            ControlFlow::Continue(())
        } else {
            self.send()
        }
    }

    /// Sends the collected adds to the store, as far as there is room, and reports merged
    /// lines.
    fn send(&mut self) -> ControlFlow<()> {
        let RunQueue::Store(queue) = &self.runner.queue else {
            return ControlFlow::Continue(());
        };
        while !self.chunk.unsent.is_empty() {
            let room = queue.wait_for_room(self.chunk.unsent.len());
            let batch: Vec<_> = self.chunk.unsent.drain(..room).collect();
            self.send_batch(queue, &batch)?;
        }
        for line in std::mem::take(&mut self.chunk.merged) {
            let entry = self.runner.report.reserve();
            self.logged(self.runner.report.added(entry, &line, Added::Duplicate))?;
        }
        ControlFlow::Continue(())
    }

    fn send_batch(&self, queue: &StoreQueue, batch: &[Add]) -> ControlFlow<()> {
        let receipts = match queue.add(batch) {
            Ok(receipts) => receipts,
            Err(error) => {
                self.runner.fail(&fatal(&error));
                return ControlFlow::Break(());
            }
        };
        if receipts.is_empty() {
            return ControlFlow::Break(()); // closed
        }
        for (add, receipt) in batch.iter().zip(receipts) {
            let entry = self.runner.report.reserve();
            self.logged(self.runner.report.added(entry, &add.key, receipt.added))?;
        }
        ControlFlow::Continue(())
    }

    fn logged(&self, written: io::Result<()>) -> ControlFlow<()> {
        let failed = written.is_err();
        self.runner.check_log(written);
        if failed { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
