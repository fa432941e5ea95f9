//! A store that counts calls and injects faults.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use requeue_store::{
    Add, Error, ErrorKind, FinishRequest, Finished, Hold, Key, LeaseRequest, Leased,
    MemoryStore, Owner, Receipt, Reply, Stats, Store, forward_store,
};
use tokio::sync::Semaphore;

/// A fault of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The call does not reach the store.
    Unreachable,
    /// The call is executed, and its answer is lost.
    NoAnswer,
    /// The store refuses the call.
    Refused,
    /// The call is executed, and its answer waits for [`Spy::let_go`].
    Late,
    /// The call panics.
    Panic,
}

#[derive(Clone, Debug)]
pub(super) struct Spy {
    pub(super) store: MemoryStore,
    seen: Arc<Mutex<Seen>>,
    /// A permit for each late answer.
    gate: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Seen {
    /// The calls, each with its number of keys.
    calls: Vec<(&'static str, usize)>,
    /// The faults of the next calls by name.
    faults: VecDeque<(&'static str, Fault)>,
    /// The locked key.
    locked: Option<Key>,
}

impl Spy {
    pub(super) fn on(store: MemoryStore) -> Self {
        Self { store, seen: Arc::default(), gate: Arc::new(Semaphore::new(0)) }
    }

    /// Releases a late answer.
    pub(super) fn let_go(&self) {
        self.gate.add_permits(1);
    }

    /// Locks a key, as a transaction may, or unlocks it.
    pub(super) fn lock_key(&self, key: Option<&str>) {
        let key = key.map(|key| Key::new(key.as_bytes()).unwrap());
        self.seen.lock().unwrap().locked = key;
    }

    fn is_locked(&self, key: &Key) -> bool {
        self.seen.lock().unwrap().locked.as_ref() == Some(key)
    }

    fn busy() -> Error {
        Error::new(ErrorKind::Busy, "a transaction locks a key")
    }

    /// Injects a fault into the next call of this name. Can be repeated.
    pub(super) fn fail(&self, name: &'static str, fault: Fault) {
        self.seen.lock().unwrap().faults.push_back((name, fault));
    }

    /// Returns the numbers of keys of the calls of this name.
    pub(super) fn calls(&self, name: &str) -> Vec<usize> {
        let seen = self.seen.lock().unwrap();
        seen.calls.iter().filter(|call| call.0 == name).map(|call| call.1).collect()
    }

    fn record(&self, name: &'static str, keys: usize) -> Option<Fault> {
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
        let (fault, gate) = (self.record(name, keys), Arc::clone(&self.gate));
        Box::pin(async move {
            match fault {
                None => call.await,
                Some(Fault::Unreachable) => {
                    Err(Error::new(ErrorKind::Unavailable, "connection refused"))
                }
                Some(Fault::NoAnswer) => {
                    call.await?;
                    Err(Error::new(ErrorKind::Unknown, "connection reset"))
                }
                Some(Fault::Refused) => {
                    Err(Error::new(ErrorKind::Denied, "wrong password"))
                }
                Some(Fault::Late) => {
                    let answer = call.await;
                    gate.acquire().await.unwrap().forget();
                    answer
                }
                Some(Fault::Panic) => panic!("on purpose"),
            }
        })
    }
}

impl Store for Spy {
    fn add<'a>(&'a self, adds: &'a [Add]) -> Reply<'a, Vec<Receipt>> {
        // The memory store acts when it is called, not when its future is polled. So an
        // injected fault must prevent the call.
        let call = Box::pin(async move {
            if adds.iter().any(|add| self.is_locked(&add.key)) {
                return Err(Self::busy());
            }
            self.store.add(adds).await
        });
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
        let call = Box::pin(async move {
            if held.iter().any(|hold| self.is_locked(&hold.key)) {
                return Err(Self::busy());
            }
            self.store.extend(owner, held, lease).await
        });
        self.call("extend", held.len(), call)
    }

    fn finish<'a>(&'a self, requests: &'a [FinishRequest]) -> Reply<'a, Vec<Finished>> {
        let call = Box::pin(async move {
            let mut answers = Vec::new();
            for request in requests {
                answers.push(if self.is_locked(&request.hold.key) {
                    Finished::Busy
                } else {
                    self.store.finish(std::slice::from_ref(request)).await?.remove(0)
                });
            }
            Ok(answers)
        });
        self.call("finish", requests.len(), call)
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
