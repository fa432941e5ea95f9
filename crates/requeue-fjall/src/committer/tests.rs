//! The store on a journal whose writes succeed or fail as the test decides.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fjall::Slice;
use requeue::Finish;
use requeue_store::{
    Add, EngineClock, FinishRequest, Finished, Hold, Key, LeaseRequest, Owner,
    RepliesExt, Store, When,
};

use super::*;
use crate::FjallStore;
use crate::journal::{Durability, Visitor, Write, WriteError};

/// How a write requests.
enum WriteResult {
    Written,
    Full,
    Failed,
    Panicked,
}

/// A journal that reports each write to the test and waits for its result.
struct ScriptedJournal {
    begun: Sender<(Vec<Write>, Durability)>,
    results: Receiver<WriteResult>,
    closed: Sender<()>,
    has_space: Arc<AtomicBool>,
}

impl Journal for ScriptedJournal {
    fn load(&mut self, _: &mut Visitor<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn append(
        &mut self,
        group: &mut dyn Iterator<Item = Write>,
        durability: Durability,
    ) -> Result<(), WriteError> {
        self.begun.send((group.collect(), durability)).unwrap();
        match self.results.recv().unwrap() {
            WriteResult::Written => Ok(()),
            WriteResult::Full => {
                Err(WriteError::Full(Error::new(ErrorKind::Full, "disk full")))
            }
            WriteResult::Failed => {
                let cause = std::io::Error::other("input/output error");
                let error = Error::new(ErrorKind::Poisoned, "write failed");
                Err(WriteError::Failed(error.because(cause)))
            }
            WriteResult::Panicked => panic!("the test makes the journal panic"),
        }
    }

    fn reopen(&mut self) -> Result<(), WriteError> {
        Ok(())
    }

    fn reserve(&mut self) -> bool {
        self.has_space.load(Ordering::SeqCst)
    }

    fn release(&mut self) {}

    fn close(self: Box<Self>) {
        self.closed.send(()).unwrap();
    }
}

/// A store, and the test's requests of its journal's channels.
///
/// The channels are dropped before the store. Otherwise a journal that waits for a result
/// would block the store's drop forever.
struct Fixture {
    results: Sender<WriteResult>,
    begun: Receiver<(Vec<Write>, Durability)>,
    closed: Receiver<()>,
    has_space: Arc<AtomicBool>,
    store: FjallStore,
}

impl Fixture {
    fn new() -> Self {
        let (begun_in, begun) = channel();
        let (results, results_out) = channel();
        let (closed_in, closed) = channel();
        let has_space = Arc::new(AtomicBool::new(true));
        let journal = ScriptedJournal {
            begun: begun_in,
            results: results_out,
            closed: closed_in,
            has_space: Arc::clone(&has_space),
        };
        let time = TimeSource::Test(EngineClock::new());
        let store = FjallStore::restore(Box::new(journal), "queue".into(), time).unwrap();
        Self { results, begun, closed, has_space, store }
    }

    /// Waits for the next write and lets it succeed.
    fn pass(&self) -> (Vec<Write>, Durability) {
        let write = self.begun.recv().unwrap();
        self.results.send(WriteResult::Written).unwrap();
        write
    }

    /// Lets all further writes succeed.
    fn pass_all(&self) {
        for _ in 0..1000 {
            self.results.send(WriteResult::Written).unwrap();
        }
    }
}

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

fn poll<T>(future: &mut Boxed<'_, T>) -> Poll<T> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Blocks until the future is ready.
fn wait<T>(future: Boxed<'_, T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn add(text: &str) -> [Add; 1] {
    let key = Key::new(text.as_bytes()).unwrap();
    [Add { revive_after: Duration::ZERO, ..Add::new(key, When::Now) }]
}

fn request(max: usize) -> LeaseRequest {
    let (owner, lease) = (Owner::new("w"), Duration::from_secs(30));
    LeaseRequest { owner, max, lease, max_deliveries: None }
}

fn names(write: &[Write]) -> Vec<&[u8]> {
    let mut names: Vec<_> = write.iter().map(|write| &write.name[..]).collect();
    names.sort_unstable();
    names
}

#[test]
fn call_returns_only_once_its_change_is_on_disk() {
    let fixture = Fixture::new();
    let a = add("a");
    let mut adding = fixture.store.add(&a).all();
    assert!(poll(&mut adding).is_pending());
    let (write, durability) = fixture.begun.recv().unwrap();
    assert_eq!((names(&write), durability), (vec![&b"\x01a"[..]], Durability::Durable));
    assert!(poll(&mut adding).is_pending(), "the write is in flight");
    fixture.results.send(WriteResult::Written).unwrap();
    wait(adding).unwrap();
    fixture.pass_all();
}

#[test]
fn calls_made_during_a_write_share_the_next_one() {
    let fixture = Fixture::new();
    let keys = ["a", "b", "c", "d"].map(add);
    let mut adding: Vec<_> =
        keys.iter().map(|key| fixture.store.add(key).all()).collect();
    assert!(poll(&mut adding[0]).is_pending());
    let (first, _) = fixture.begun.recv().unwrap();
    for add in &mut adding[1..] {
        assert!(poll(add).is_pending());
    }
    fixture.results.send(WriteResult::Written).unwrap();
    let (second, _) = fixture.pass();
    assert_eq!(
        (first.len(), names(&second)),
        (1, vec![&b"\x01b"[..], b"\x01c", b"\x01d"])
    );
    for add in adding {
        assert_eq!(wait(add).unwrap().len(), 1);
    }
}

#[test]
fn duplicate_add_returns_only_once_the_first_add_is_on_disk() {
    let fixture = Fixture::new();
    let a = add("a");
    let (mut first, mut second) =
        (fixture.store.add(&a).all(), fixture.store.add(&a).all());
    assert!(poll(&mut first).is_pending());
    let (write, _) = fixture.begun.recv().unwrap();
    assert!(poll(&mut second).is_pending(), "the key is not on disk yet");
    assert_eq!(write.len(), 1);
    fixture.results.send(WriteResult::Written).unwrap();
    wait(first).unwrap();
    wait(second).unwrap();
    let third = poll(&mut fixture.store.add(&a).all());
    assert!(third.is_ready(), "a duplicate of a key on disk needs no write");
    fixture.pass_all();
}

#[test]
fn delivery_is_buffered_and_lease_does_not_wait_for_it() {
    let fixture = Fixture::new();
    let (a, one) = (add("a"), request(1));
    let mut adding = fixture.store.add(&a).all();
    assert!(poll(&mut adding).is_pending());
    fixture.pass();
    wait(adding).unwrap();
    // The first delivery after opening raises the token watermark, which is durable.
    let mut leasing = fixture.store.lease(&one);
    assert!(poll(&mut leasing).is_pending());
    let (write, durability) = fixture.pass();
    assert_eq!(
        (names(&write), durability),
        (vec![&b"\0"[..], b"\x01a"], Durability::Durable)
    );
    assert_eq!(wait(leasing).unwrap().grants.len(), 1);

    let b = add("b");
    let mut adding = fixture.store.add(&b).all();
    assert!(poll(&mut adding).is_pending());
    fixture.pass();
    wait(adding).unwrap();
    assert!(poll(&mut fixture.store.lease(&one)).is_ready());
    let (write, durability) = fixture.pass();
    assert_eq!((names(&write), durability), (vec![&b"\x01b"[..]], Durability::Buffered));
}

#[test]
fn key_added_and_finished_during_a_write_is_written_once() {
    let fixture = Fixture::new();
    let (a, b, one) = (add("a"), add("b"), request(1));
    let (mut adding, mut leasing) =
        (fixture.store.add(&a).all(), fixture.store.lease(&one));
    assert!(poll(&mut adding).is_pending());
    fixture.begun.recv().unwrap();
    assert!(poll(&mut leasing).is_pending(), "the token watermark is not on disk");
    fixture.results.send(WriteResult::Written).unwrap();
    fixture.pass();
    wait(adding).unwrap();
    wait(leasing).unwrap();

    let mut resuming = fixture.store.resume();
    assert!(poll(&mut resuming).is_pending());
    fixture.begun.recv().unwrap();
    let mut adding = fixture.store.add(&b).all();
    assert!(poll(&mut adding).is_pending());
    let Poll::Ready(Ok(leased)) = poll(&mut fixture.store.lease(&one)) else {
        panic!("a key that is not on disk yet can be leased");
    };
    let (key, token) = (leased.grants[0].key.clone(), leased.grants[0].token);
    let requests = [FinishRequest::new(Hold { key, token }, Finish::Succeed)];
    let mut finishing = fixture.store.finish(&requests).all();
    assert!(poll(&mut finishing).is_pending());
    fixture.results.send(WriteResult::Written).unwrap();
    let (write, durability) = fixture.pass();
    let gone = Write { name: Slice::new(b"\x01b"), value: None };
    assert_eq!((write, durability), (vec![gone], Durability::Durable));
    wait(resuming).unwrap();
    wait(adding).unwrap();
    assert_eq!(wait(finishing).unwrap(), [Finished::Done]);
}

/// The change is in memory already when the write fails. It cannot be taken back, so the
/// write is repeated with the reserved space, and only later calls are refused.
#[test]
fn full_disk_refuses_later_calls_until_there_is_space() {
    let fixture = Fixture::new();
    let (a, b) = (add("a"), add("b"));
    fixture.has_space.store(false, Ordering::SeqCst);
    let mut adding = fixture.store.add(&a);
    assert!(poll(&mut adding).is_pending());
    fixture.results.send(WriteResult::Full).unwrap();
    let (first, _) = fixture.begun.recv().unwrap();
    let (again, _) = fixture.pass();
    assert_eq!(first, again);
    assert!(wait(adding)[0].is_ok(), "a change in progress is written");

    let refused = wait(fixture.store.add(&b)).remove(0).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Full);
    assert_eq!(
        refused.to_string(),
        "the disk of the queue at queue is full; free some space"
    );
    assert_eq!(
        wait(fixture.store.lease(&request(1))).unwrap_err().kind(),
        ErrorKind::Full
    );
    assert_eq!(wait(fixture.store.stats()).unwrap().ready, 1, "nothing changed");
    wait(fixture.store.heartbeat(&Owner::new("w"))).unwrap();

    fixture.has_space.store(true, Ordering::SeqCst);
    fixture.pass_all();
    while wait(fixture.store.add(&b))[0].is_err() {
        std::thread::yield_now();
    }
    assert_eq!(wait(fixture.store.stats()).unwrap().ready, 2);
}

#[test]
fn store_that_is_closed_while_its_disk_is_full_reports_the_lost_write() {
    let fixture = Fixture::new();
    let a = add("a");
    let mut adding = fixture.store.add(&a);
    assert!(poll(&mut adding).is_pending());
    for _ in 0..1000 {
        fixture.results.send(WriteResult::Full).unwrap();
    }
    fixture.begun.recv().unwrap();
    fixture.begun.recv().unwrap();
    assert_eq!(fixture.store.close().unwrap_err().kind(), ErrorKind::Poisoned);
    assert_poisoned(wait(adding)[0].as_ref().unwrap_err(), "disk full");
}

#[test]
fn failed_write_fails_pending_and_later_calls() {
    let fixture = Fixture::new();
    let (a, b) = (add("a"), add("b"));
    let (mut begun, mut queued) =
        (fixture.store.add(&a).all(), fixture.store.add(&b).all());
    assert!(poll(&mut begun).is_pending());
    fixture.begun.recv().unwrap();
    assert!(poll(&mut queued).is_pending());
    fixture.results.send(WriteResult::Failed).unwrap();
    for call in [begun, queued] {
        assert_poisoned(&wait(call).unwrap_err(), "write failed: input/output error");
    }
    let later = wait(fixture.store.stats()).unwrap_err();
    assert_poisoned(&later, "write failed: input/output error");
    assert_poisoned(
        &wait(fixture.store.wait(Duration::MAX)).unwrap_err(),
        "write failed: in",
    );
    assert!(fixture.begun.try_recv().is_err(), "a failed write is not repeated");
    fixture
        .closed
        .recv()
        .expect("the files are closed, so that they can be opened again");
    assert_eq!(fixture.store.close().unwrap_err().kind(), ErrorKind::Poisoned);
}

#[test]
fn panicking_journal_poisons_the_store() {
    let fixture = Fixture::new();
    let a = add("a");
    let mut adding = fixture.store.add(&a).all();
    assert!(poll(&mut adding).is_pending());
    fixture.results.send(WriteResult::Panicked).unwrap();
    assert_poisoned(&wait(adding).unwrap_err(), "fjall panicked");
    assert_poisoned(&wait(fixture.store.add(&a).all()).unwrap_err(), "fjall panicked");
}

fn assert_poisoned(error: &Error, cause: &str) {
    assert_eq!(error.kind(), ErrorKind::Poisoned);
    assert_eq!(
        error.to_string(),
        "a write to the queue at queue failed, and the store has stopped; open it again to \
         continue"
    );
    let source = std::error::Error::source(error).unwrap().to_string();
    assert!(source.starts_with(cause), "{source}");
}

#[test]
fn failed_write_ends_a_wait_for_a_key() {
    let fixture = Fixture::new();
    let mut waiting = fixture.store.wait(Duration::MAX);
    assert!(poll(&mut waiting).is_pending());
    fixture.results.send(WriteResult::Failed).unwrap();
    wait(fixture.store.pause()).unwrap_err();
    wait(waiting).unwrap();
}

#[test]
fn close_writes_changes_of_cancelled_calls_and_refuses_later_calls() {
    let fixture = Fixture::new();
    let (a, b) = (add("a"), add("b"));
    let (mut first, mut dropped) =
        (fixture.store.add(&a).all(), fixture.store.add(&b).all());
    assert!(poll(&mut first).is_pending());
    fixture.begun.recv().unwrap();
    assert!(poll(&mut dropped).is_pending());
    drop(dropped);
    fixture.pass_all();
    wait(first).unwrap();
    fixture.store.close().unwrap();
    let (write, _) = fixture.begun.recv().unwrap();
    assert_eq!(names(&write), [b"\x01b"]);
    let error = wait(fixture.store.add(&a).all()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert_eq!(error.to_string(), "the queue at queue is closed");
}

#[test]
fn callers_wait_when_too_many_keys_are_unwritten() {
    let fixture = Fixture::new();
    let (a, z) = (add("a"), add("z"));
    let many: Vec<_> = (0..70_000).map(|n| add(&n.to_string())[0].clone()).collect();
    let (mut first, mut filling) =
        (fixture.store.add(&a).all(), fixture.store.add(&many).all());
    assert!(poll(&mut first).is_pending());
    fixture.begun.recv().unwrap();
    assert!(poll(&mut filling).is_pending());
    let mut adding = fixture.store.add(&z).all();
    assert!(poll(&mut adding).is_pending());
    fixture.results.send(WriteResult::Written).unwrap();
    let (full, _) = fixture.pass();
    assert_eq!(
        full.len(),
        many.len(),
        "the key beyond the limit is not part of this group"
    );
    wait(filling).unwrap();
    fixture.pass_all();
    assert_eq!(wait(adding).unwrap().len(), 1);
}
