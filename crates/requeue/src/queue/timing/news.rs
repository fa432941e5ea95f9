//! What a recorder is to be told once the lock is free.

use std::time::Duration;

use crate::metrics::Recorder;
use crate::queue::nanos::Nanos;

/// What happened to keys.
#[derive(Default)]
#[must_use = "tell the recorder"]
pub(in crate::queue) struct News {
    adds: u64,
    gets: Same,
    dones: Same,
    /// What came before `gets` and `dones`: nothing, but in a batch of keys whose times
    /// differ.
    before: Vec<Told>,
}

/// Keys, and the time that all of them took.
#[derive(Clone, Copy, Default)]
struct Same {
    time: Nanos,
    count: u64,
}

enum Told {
    Got(Same),
    Done(Same),
}

impl News {
    pub(super) fn added(&mut self, count: u64) {
        self.adds += count;
    }

    pub(super) fn got(&mut self, time: Nanos, count: u64) {
        if let Some(before) = self.gets.join(Same { time, count }) {
            self.before.push(Told::Got(before));
        }
    }

    pub(super) fn done(&mut self, time: Nanos, count: u64) {
        if let Some(before) = self.dones.join(Same { time, count }) {
            self.before.push(Told::Done(before));
        }
    }

    #[inline]
    pub(in crate::queue) fn tell(&self, recorder: &dyn Recorder) {
        if self.adds > 0 {
            recorder.added_many(self.adds);
        }
        for told in &self.before {
            match told {
                Told::Got(keys) => keys.tell_got(recorder),
                Told::Done(keys) => keys.tell_done(recorder),
            }
        }
        self.dones.tell_done(recorder);
        self.gets.tell_got(recorder);
    }
}

impl Same {
    /// Takes `more` keys in, if they took the same time. If not they replace these, which
    /// come back.
    fn join(&mut self, more: Self) -> Option<Self> {
        if more.count == 0 {
            return None;
        }
        if self.count > 0 && self.time != more.time {
            return Some(std::mem::replace(self, more));
        }
        *self = Self { time: more.time, count: self.count + more.count };
        None
    }

    fn tell_got(self, recorder: &dyn Recorder) {
        if self.count > 0 {
            recorder.got_many(Duration::from_nanos(self.time), self.count);
        }
    }

    fn tell_done(self, recorder: &dyn Recorder) {
        if self.count > 0 {
            recorder.done_many(Duration::from_nanos(self.time), self.count);
        }
    }
}
