//! A worker that is a thread.

use std::fmt::Display;

use super::config::Config;
use super::outcome::{Failure, Outcome};
use super::run::Run;
use super::sleeper::Sleeper;
use super::source::{Source, Work};
use super::verdict::Ran;
use super::worker::Worker;

impl<Q: Source> Worker<Q> {
    /// Works on this thread until the worker is to leave.
    pub(super) fn work<E, O>(
        mut self,
        config: &Config<Q::Key, E>,
        handler: &impl Fn(&Q::Key) -> Result<O, E>,
    ) where
        E: Display,
        O: Into<Outcome>,
    {
        let sleeper = Sleeper::new();
        while let Some(lease) = sleeper.wait_for(self.next(config)) {
            let mut run = Run::begin(config, lease);
            let ran = run.attempt(|lease| handler(lease.key()).map(Into::into));
            self.proceed(run.finish(ran.into()));
        }
    }
}

/// The result of a handler, or the panic that replaced it.
impl<E> From<Result<Result<Outcome, E>, Failure<E>>> for Ran<E> {
    fn from(attempt: Result<Result<Outcome, E>, Failure<E>>) -> Self {
        match attempt {
            Ok(Ok(outcome)) => Self::Ended(outcome),
            Ok(Err(error)) => Self::Failed(Failure::Error(error)),
            Err(panic) => Self::Failed(panic),
        }
    }
}
