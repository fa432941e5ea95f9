//! A store that counts calls and injects faults.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use requeue_store::{
    Add, Error, ErrorKind, FinishRequest, Finished, Hold, Key, LeaseRequest, Leased,
    MemoryStore, Owner, Receipt, Replies, Reply, Stats, Store, TakeRequest, Taken, every,
    forward_store,
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
    /// The call does not reach the store and is never answered.
    Hung,
    /// The call fails with this kind.
    Error(ErrorKind),
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
    /// The key whose calls fail, and how.
    failing: Option<(Key, ErrorKind)>,
    has_lanes: bool,
    /// The lane whose calls are never answered.
    hung_lane: Option<u8>,
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
        self.fail_key(key, ErrorKind::Busy);
    }

    /// Fails every call for a key, or for none.
    pub(super) fn fail_key(&self, key: Option<&str>, kind: ErrorKind) {
        let key = key.map(|key| Key::new(key.as_bytes()).unwrap());
        self.seen.lock().unwrap().failing = key.map(|key| (key, kind));
    }

    fn key_error(&self, key: &Key) -> Option<Error> {
        let seen = self.seen.lock().unwrap();
        let (_, kind) = seen.failing.as_ref().filter(|(failing, _)| failing == key)?;
        Some(Error::new(*kind, "only this key"))
    }

    /// Sends each key in a lane of its first byte.
    pub(super) fn use_lanes(&self) {
        self.seen.lock().unwrap().has_lanes = true;
    }

    /// Answers no more calls for a lane, as a server that hangs, or answers them again.
    pub(super) fn hang_lane(&self, lane: Option<u8>) {
        self.seen.lock().unwrap().hung_lane = lane;
    }

    fn hangs(&self, key: &Key) -> bool {
        let seen = self.seen.lock().unwrap();
        seen.hung_lane.is_some() && key.first().copied() == seen.hung_lane
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

    /// Injects the next fault of this name into a call.
    async fn inject<T>(
        &self,
        name: &'static str,
        keys: usize,
        call: impl Future<Output = T>,
        fail: impl Fn(Error) -> T,
    ) -> T {
        match self.record(name, keys) {
            None => call.await,
            Some(Fault::Unreachable) => {
                fail(Error::new(ErrorKind::Unavailable, "connection refused"))
            }
            Some(Fault::NoAnswer) => {
                call.await;
                fail(Error::new(ErrorKind::Unknown, "connection reset"))
            }
            Some(Fault::Refused) => {
                fail(Error::new(ErrorKind::Server, "unknown command"))
            }
            Some(Fault::Error(kind)) => fail(Error::new(kind, "injected")),
            Some(Fault::Late) => {
                let answer = call.await;
                self.gate.acquire().await.unwrap().forget();
                answer
            }
            Some(Fault::Hung) => std::future::pending().await,
            Some(Fault::Panic) => panic!("on purpose"),
        }
    }

    fn call<'a, T: Send + 'a>(
        &'a self,
        name: &'static str,
        keys: usize,
        call: impl Future<Output = Result<T, Error>> + Send + 'a,
    ) -> Reply<'a, T> {
        Box::pin(self.inject(name, keys, call, Err))
    }

    /// Calls the store for each item, except for those whose key is locked.
    fn call_each<'a, I: Sync, T: Send + 'a>(
        &'a self,
        name: &'static str,
        items: &'a [I],
        key: impl Fn(&I) -> &Key + Send + Sync + 'a,
        call: impl Fn(&'a [I]) -> Replies<'a, T> + Send + Sync + 'a,
    ) -> Replies<'a, T> {
        // The memory store acts when it is called, not when its future is polled. So an
        // injected fault must prevent the call.
        let each = async move {
            let mut answers = Vec::new();
            for item in items {
                if self.hangs(key(item)) {
                    std::future::pending::<()>().await;
                }
                if let Some(error) = self.key_error(key(item)) {
                    answers.push(Err(error));
                } else {
                    answers.extend(call(std::slice::from_ref(item)).await);
                }
            }
            answers
        };
        let fail = |error: Error| every(items.len(), Err(error));
        Box::pin(self.inject(name, items.len(), each, fail))
    }
}

impl Store for Spy {
    fn add<'a>(&'a self, adds: &'a [Add]) -> Replies<'a, Receipt> {
        self.call_each("add", adds, |add| &add.key, |adds| self.store.add(adds))
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest) -> Reply<'a, Leased> {
        let call = async move { self.store.lease(request).await };
        self.call("lease", request.max, call)
    }

    fn extend<'a>(
        &'a self,
        owner: &'a Owner,
        held: &'a [Hold],
        lease: Duration,
    ) -> Replies<'a, bool> {
        let extend = move |held| self.store.extend(owner, held, lease);
        self.call_each("extend", held, |hold| &hold.key, extend)
    }

    fn heartbeat<'a>(&'a self, owner: &'a Owner) -> Reply<'a, ()> {
        self.call("heartbeat", 0, async move { self.store.heartbeat(owner).await })
    }

    fn finish<'a>(&'a self, requests: &'a [FinishRequest]) -> Replies<'a, Finished> {
        let finish = |requests| self.store.finish(requests);
        self.call_each("finish", requests, |request| &request.hold.key, finish)
    }

    fn reclaim<'a>(&'a self, owner: &'a Owner, held: &'a [Hold]) -> Reply<'a, u64> {
        let call = async move { self.store.reclaim(owner, held).await };
        self.call("reclaim", held.len(), call)
    }

    fn take<'a>(&'a self, request: &'a TakeRequest) -> Reply<'a, Taken> {
        self.call("take", 0, async move { self.store.take(request).await })
    }

    fn stats(&self) -> Reply<'_, Stats> {
        self.call("stats", 0, async move { self.store.stats().await })
    }

    /// With [`Spy::use_lanes`], the first byte of a key is its lane.
    fn lane(&self, key: &Key) -> usize {
        let has_lanes = self.seen.lock().unwrap().has_lanes;
        key.first().filter(|_| has_lanes).map_or(0, |byte| usize::from(*byte))
    }

    forward_store!(self => self.store; describe, expire, forget, remove, look,
        failing, workers, dead, revive, drop_dead, pause, resume);

    fn wait(&self, at_most: Duration) -> Reply<'_, ()> {
        self.call("wait", 0, async move { self.store.wait(at_most).await })
    }
}
