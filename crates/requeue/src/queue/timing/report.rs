//! The events of one lock scope.

use std::time::Duration;

use crate::metrics::Recorder;
use crate::queue::nanos::Nanos;

/// The events of one lock scope, to be reported after the lock is released.
#[derive(Default)]
#[must_use = "report it to the recorder"]
pub(in crate::queue) struct Report {
    pub(super) added: u32,
    pub(super) waited: Durations,
    pub(super) worked: Durations,
}

impl Report {
    #[inline]
    pub(in crate::queue) fn send(&self, recorder: &dyn Recorder) {
        (0..self.added).for_each(|_| recorder.added());
        self.worked.iter().for_each(|worked| recorder.done(worked));
        self.waited.iter().for_each(|waited| recorder.got(waited));
    }
}

/// One duration per key. Most scopes have at most one, which needs no allocation.
#[derive(Default)]
pub(super) struct Durations {
    first: Option<Nanos>,
    rest: Vec<Nanos>,
}

impl Durations {
    #[inline]
    pub(super) fn push(&mut self, duration: Nanos) {
        if self.first.is_none() {
            self.first = Some(duration);
        } else {
            self.rest.push(duration);
        }
    }

    #[inline]
    fn iter(&self) -> impl Iterator<Item = Duration> + '_ {
        self.first.iter().chain(&self.rest).copied().map(Duration::from_nanos)
    }
}
