//! Takes lines from the input and adds their keys to the queue.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::time::Duration;

use requeue::{AddOptions, Added, Queue};

use crate::input::{Input, Key, Record, split_priority};
use crate::report::Resumed;
use crate::run::Run;

/// How lines become keys in the queue.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) priority: Option<usize>,
    pub(crate) debounce: Option<Duration>,
    pub(crate) resumed: Resumed,
}

impl Reader {
    /// Reads all sources, one after the other; breaks off if nothing more is wanted.
    pub(crate) fn read(&self, run: &Run, input: Input) -> ControlFlow<()> {
        for source in input.sources {
            let mut at_hand = HashSet::new();
            let take = |record: Record<'_>| match record {
                Record::Line(line) => self.add(run, line, &mut at_hand),
                Record::Pause => {
                    at_hand.clear();
                    ControlFlow::Continue(())
                }
            };
            match source.read(input.separator, take) {
                Ok(flow) => flow?,
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
    fn add(
        &self,
        run: &Run,
        line: &[u8],
        at_hand: &mut HashSet<Vec<u8>>,
    ) -> ControlFlow<()> {
        let Some(field) = self.priority else {
            if at_hand.contains(line) {
                return self.tell(run, line, || Added::Duplicate);
            }
            at_hand.insert(line.to_vec());
            return self.add_key(run, line, None);
        };
        if let Ok((priority, key)) = split_priority(line, field) {
            return self.add_key(run, &key, Some(priority));
        }
        let why = format!("--priority wants a whole number as word {field}");
        run.report.refused(line, &why);
        ControlFlow::Continue(())
    }

    fn add_key(&self, run: &Run, key: &[u8], priority: Option<i32>) -> ControlFlow<()> {
        if let Some(room) = &run.room {
            room.wait(&run.queue);
        }
        self.tell(run, key, || self.enqueue(&run.queue, key, priority))
    }

    fn tell(
        &self,
        run: &Run,
        key: &[u8],
        add: impl FnOnce() -> Added,
    ) -> ControlFlow<()> {
        if self.resumed.is_finished(key) {
            run.report.skipped();
            return ControlFlow::Continue(());
        }
        match run.report.adding(key, add) {
            Ok(Added::Closed) => ControlFlow::Break(()),
            Ok(_) => ControlFlow::Continue(()),
            Err(error) => {
                run.logged(Err(error));
                ControlFlow::Break(())
            }
        }
    }

    fn enqueue(&self, queue: &Queue<Key>, key: &[u8], priority: Option<i32>) -> Added {
        match (self.debounce, priority) {
            (Some(delay), _) => {
                let known = queue.contains(key);
                let added = queue.postpone(key.to_vec(), delay);
                if known && added == Added::Delayed { Added::Duplicate } else { added }
            }
            (None, Some(priority)) => {
                queue.add_with(key.to_vec(), AddOptions::new().priority(priority))
            }
            (None, None) => queue.add_ref(key),
        }
    }
}
