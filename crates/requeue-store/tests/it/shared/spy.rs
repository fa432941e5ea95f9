//! A store that counts calls, and fails when it is told to.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use requeue_store::{
    Add, Error, ErrorKind, FinishRequest, Finished, Hold, Key, LeaseRequest, Leased,
    MemoryStore, Owner, Receipt, Reply, Stats, Store, forward_store,
};
use tokio::sync::Semaphore;

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It does not reach the store.
    Unreachable,
    /// It is carried out, and the answer is lost.
    NoAnswer,
    /// The store refuses it.
    Refused,
    /// It is carried out, and its answer comes when [`Spy::let_go`] says so.
    Late,
    /// It panics.
    Panic,
}

#[derive(Clone, Debug)]
pub(super) struct Spy {
    pub(super) store: MemoryStore,
    seen: Arc<Mutex<Seen>>,
    /// Answers that may come.
    gate: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Seen {
    /// The calls, each with how many keys it was for.
    calls: Vec<(&'static str, usize)>,
    /// What is to happen to the next calls of a name.
    faults: VecDeque<(&'static str, Fault)>,
    /// A key that somebody has to themselves.
    taken: Option<Key>,
}

impl Spy {
    pub(super) fn on(store: MemoryStore) -> Self {
        Self { store, seen: Arc::default(), gate: Arc::new(Semaphore::new(0)) }
    }

    /// Lets an answer that is late come.
    pub(super) fn let_go(&self) {
        self.gate.add_permits(1);
    }

    /// Has a key to itself, as a transaction of a database may, or gives it back.
    pub(super) fn take(&self, key: Option<&str>) {
        let key = key.map(|key| Key::new(key.as_bytes()).unwrap());
        self.seen.lock().unwrap().taken = key;
    }

    fn is_taken(&self, key: &Key) -> bool {
        self.seen.lock().unwrap().taken.as_ref() == Some(key)
    }

    fn busy() -> Error {
        Error::new(ErrorKind::Busy, "a transaction has a key")
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
        let (fault, gate) = (self.note(name, keys), Arc::clone(&self.gate));
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
        // The store in memory acts when it is called, so a call that is not to reach it
        // must not be made.
        let call = Box::pin(async move {
            if adds.iter().any(|add| self.is_taken(&add.key)) {
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
            if held.iter().any(|hold| self.is_taken(&hold.key)) {
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
                answers.push(if self.is_taken(&request.hold.key) {
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
