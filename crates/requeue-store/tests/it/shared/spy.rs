//! A store that counts calls, and fails when it is told to.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use requeue_store::{
    Add, End, Error, ErrorKind, Finished, Hold, LeaseRequest, Leased, MemoryStore, Owner,
    Receipt, Reply, Stats, Store, forward_store,
};

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It does not reach the store.
    Unreachable,
    /// It is carried out, and the answer is lost.
    NoAnswer,
    /// The store refuses it.
    Refused,
}

#[derive(Clone, Debug)]
pub(super) struct Spy {
    pub(super) store: MemoryStore,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    /// The calls, each with how many keys it was for.
    calls: Vec<(&'static str, usize)>,
    /// What is to happen to the next calls of a name.
    faults: VecDeque<(&'static str, Fault)>,
}

impl Spy {
    pub(super) fn on(store: MemoryStore) -> Self {
        Self { store, seen: Arc::default() }
    }

    /// Has the next calls of this name fail, once for each time that this is called.
    pub(super) fn fail(&self, name: &'static str, fault: Fault) {
        self.seen.lock().unwrap().faults.push_back((name, fault));
    }

    /// How many keys the calls of this name were for.
    pub(super) fn calls(&self, name: &str) -> Vec<usize> {
        let seen = self.seen.lock().unwrap();
        seen.calls.iter().filter(|call| call.0 == name).map(|call| call.1).collect()
    }

    fn note(&self, name: &'static str, keys: usize) -> Option<Fault> {
        let mut seen = self.seen.lock().unwrap();
        seen.calls.push((name, keys));
        let at = seen.faults.iter().position(|fault| fault.0 == name)?;
        seen.faults.remove(at).map(|fault| fault.1)
    }

    fn call<'a, T: Send + 'a>(
        &self,
        name: &'static str,
        keys: usize,
        call: Reply<'a, T>,
    ) -> Reply<'a, T> {
        let fault = self.note(name, keys);
        Box::pin(async move {
            match fault {
                None => call.await,
                Some(Fault::Unreachable) => {
                    Err(Error::new(ErrorKind::Unavailable, "nobody listens"))
                }
                Some(Fault::NoAnswer) => {
                    call.await?;
                    Err(Error::new(ErrorKind::Unknown, "no answer came"))
                }
                Some(Fault::Refused) => {
                    Err(Error::new(ErrorKind::Denied, "wrong password"))
                }
            }
        })
    }
}

impl Store for Spy {
    fn add<'a>(&'a self, adds: &'a [Add]) -> Reply<'a, Vec<Receipt>> {
        // The store in memory acts when it is called, so a call that is not to reach it
        // must not be made.
        let call = Box::pin(async move { self.store.add(adds).await });
        self.call("add", adds.len(), call)
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest) -> Reply<'a, Leased> {
        let call = Box::pin(async move { self.store.lease(request).await });
        self.call("lease", request.max, call)
    }

    fn extend<'a>(
        &'a self,
        owner: &'a Owner,
        held: &'a [Hold],
        lease: std::time::Duration,
    ) -> Reply<'a, Vec<bool>> {
        let call = Box::pin(async move { self.store.extend(owner, held, lease).await });
        self.call("extend", held.len(), call)
    }

    fn finish<'a>(&'a self, ends: &'a [End]) -> Reply<'a, Vec<Finished>> {
        let call = Box::pin(async move { self.store.finish(ends).await });
        self.call("finish", ends.len(), call)
    }

    fn reclaim<'a>(&'a self, owner: &'a Owner, held: &'a [Hold]) -> Reply<'a, u64> {
        let call = Box::pin(async move { self.store.reclaim(owner, held).await });
        self.call("reclaim", held.len(), call)
    }

    fn stats(&self) -> Reply<'_, Stats> {
        self.call("stats", 0, Box::pin(async move { self.store.stats().await }))
    }

    forward_store!(self => self.store; describe, expire, forget, remove, look,
        failing, workers, dead, revive, drop_dead, pause, resume, wait);
}
