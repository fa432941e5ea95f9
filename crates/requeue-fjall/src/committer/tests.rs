//! The store on a journal whose every write the test lets pass or fail.

use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fjall::Slice;
use requeue::Finish;
use requeue_store::{
    Add, EngineClock, FinishRequest, Finished, Hold, Key, LeaseRequest, Owner, Store,
    When,
};

use super::*;
use crate::FjallStore;
use crate::journal::{Reach, Visitor, Write};

/// What becomes of a write.
enum Verdict {
    Kept,
    Lost,
    Panic,
}

/// A journal that tells of each write and waits for its verdict.
struct Judged {
    begun: Sender<(Vec<Write>, Reach)>,
    verdicts: Receiver<Verdict>,
    closed: Sender<()>,
}

impl Journal for Judged {
    fn load(&mut self, _: &mut Visitor<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn append(
        &mut self,
        group: &mut dyn Iterator<Item = Write>,
        reach: Reach,
    ) -> Result<(), Error> {
        self.begun.send((group.collect(), reach)).unwrap();
        match self.verdicts.recv().unwrap() {
            Verdict::Kept => Ok(()),
            Verdict::Lost => {
                let cause = std::io::Error::other("no space left on the disk");
                Err(Error::new(ErrorKind::Poisoned, "not kept").because(cause))
            }
            Verdict::Panic => panic!("a journal that panics, as the test wants"),
        }
    }

    fn close(self: Box<Self>) {
        self.closed.send(()).unwrap();
    }
}

/// The store, and the other ends of its journal, which are dropped first: a store whose
/// journal waits for a verdict would not end.
struct Bench {
    verdicts: Sender<Verdict>,
    begun: Receiver<(Vec<Write>, Reach)>,
    closed: Receiver<()>,
    store: FjallStore,
}

impl Bench {
    fn new() -> Self {
        let (begun_in, begun) = channel();
        let (verdicts, verdicts_out) = channel();
        let (closed_in, closed) = channel();
        let journal =
            Judged { begun: begun_in, verdicts: verdicts_out, closed: closed_in };
        let now = Now::Told(EngineClock::new());
        let store = FjallStore::on(Box::new(journal), "queue".into(), now).unwrap();
        Self { verdicts, begun, closed, store }
    }

    /// Waits for the next write and lets it pass: what was written, and how far.
    fn pass(&self) -> (Vec<Write>, Reach) {
        let write = self.begun.recv().unwrap();
        self.verdicts.send(Verdict::Kept).unwrap();
        write
    }

    /// Lets every write from now on pass.
    fn pass_all(&self) {
        for _ in 0..1000 {
            self.verdicts.send(Verdict::Kept).unwrap();
        }
    }
}

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

fn poll<T>(future: &mut Boxed<'_, T>) -> Poll<T> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Waits for a future whose end comes from another thread.
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
fn nothing_is_answered_before_it_is_on_disk() {
    let bench = Bench::new();
    let a = add("a");
    let mut adding = bench.store.add(&a);
    assert!(poll(&mut adding).is_pending());
    let (write, reach) = bench.begun.recv().unwrap();
    assert_eq!((names(&write), reach), (vec![&b"\x01a"[..]], Reach::Disk));
    assert!(poll(&mut adding).is_pending(), "it is being written");
    bench.verdicts.send(Verdict::Kept).unwrap();
    wait(adding).unwrap();
    bench.pass_all();
}

#[test]
fn calls_that_come_during_a_write_are_one_group() {
    let bench = Bench::new();
    let keys = ["a", "b", "c", "d"].map(add);
    let mut adding: Vec<_> = keys.iter().map(|key| bench.store.add(key)).collect();
    assert!(poll(&mut adding[0]).is_pending());
    let (first, _) = bench.begun.recv().unwrap();
    for add in &mut adding[1..] {
        assert!(poll(add).is_pending());
    }
    bench.verdicts.send(Verdict::Kept).unwrap();
    let (second, _) = bench.pass();
    assert_eq!(
        (first.len(), names(&second)),
        (1, vec![&b"\x01b"[..], b"\x01c", b"\x01d"])
    );
    for add in adding {
        assert_eq!(wait(add).unwrap().len(), 1);
    }
}

#[test]
fn a_repeated_add_is_answered_when_the_first_one_is_on_disk() {
    let bench = Bench::new();
    let a = add("a");
    let (mut first, mut second) = (bench.store.add(&a), bench.store.add(&a));
    assert!(poll(&mut first).is_pending());
    let (write, _) = bench.begun.recv().unwrap();
    assert!(poll(&mut second).is_pending(), "the key is not on disk yet");
    assert_eq!(write.len(), 1);
    bench.verdicts.send(Verdict::Kept).unwrap();
    wait(first).unwrap();
    wait(second).unwrap();
    let third = poll(&mut bench.store.add(&a));
    assert!(third.is_ready(), "what is there and on disk needs no write");
    bench.pass_all();
}

#[test]
fn a_grant_is_not_waited_for_and_is_written_behind_the_answer() {
    let bench = Bench::new();
    let (a, one) = (add("a"), request(1));
    let mut adding = bench.store.add(&a);
    assert!(poll(&mut adding).is_pending());
    bench.pass();
    wait(adding).unwrap();
    // The first grant of a life raises the mark of the tokens, which is waited for.
    let mut leasing = bench.store.lease(&one);
    assert!(poll(&mut leasing).is_pending());
    let (write, reach) = bench.pass();
    assert_eq!((names(&write), reach), (vec![&b"\0"[..], b"\x01a"], Reach::Disk));
    assert_eq!(wait(leasing).unwrap().grants.len(), 1);

    let b = add("b");
    let mut adding = bench.store.add(&b);
    assert!(poll(&mut adding).is_pending());
    bench.pass();
    wait(adding).unwrap();
    assert!(poll(&mut bench.store.lease(&one)).is_ready());
    let (write, reach) = bench.pass();
    assert_eq!((names(&write), reach), (vec![&b"\x01b"[..]], Reach::System));
}

#[test]
fn a_key_that_comes_and_goes_while_the_disk_is_busy_is_written_once() {
    let bench = Bench::new();
    let (a, b, one) = (add("a"), add("b"), request(1));
    let (mut adding, mut leasing) = (bench.store.add(&a), bench.store.lease(&one));
    assert!(poll(&mut adding).is_pending());
    bench.begun.recv().unwrap();
    assert!(poll(&mut leasing).is_pending(), "the mark of the tokens is not on disk");
    bench.verdicts.send(Verdict::Kept).unwrap();
    bench.pass();
    wait(adding).unwrap();
    wait(leasing).unwrap();

    let mut resuming = bench.store.resume();
    assert!(poll(&mut resuming).is_pending());
    bench.begun.recv().unwrap();
    let mut adding = bench.store.add(&b);
    assert!(poll(&mut adding).is_pending());
    let Poll::Ready(Ok(leased)) = poll(&mut bench.store.lease(&one)) else {
        panic!("a key that is not on disk yet can be leased at once");
    };
    let (key, token) = (leased.grants[0].key.clone(), leased.grants[0].token);
    let ends = [FinishRequest::new(Hold { key, token }, Finish::Succeed)];
    let mut finishing = bench.store.finish(&ends);
    assert!(poll(&mut finishing).is_pending());
    bench.verdicts.send(Verdict::Kept).unwrap();
    let (write, reach) = bench.pass();
    let gone = Write { name: Slice::new(b"\x01b"), value: None };
    assert_eq!((write, reach), (vec![gone], Reach::Disk));
    wait(resuming).unwrap();
    wait(adding).unwrap();
    assert_eq!(wait(finishing).unwrap(), [Finished::Done]);
}

#[test]
fn a_failed_write_poisons_the_store_for_those_who_wait_and_all_who_come() {
    let bench = Bench::new();
    let (a, b) = (add("a"), add("b"));
    let (mut begun, mut queued) = (bench.store.add(&a), bench.store.add(&b));
    assert!(poll(&mut begun).is_pending());
    bench.begun.recv().unwrap();
    assert!(poll(&mut queued).is_pending());
    bench.verdicts.send(Verdict::Lost).unwrap();
    for call in [begun, queued] {
        assert_poisoned(&wait(call).unwrap_err(), "not kept: no space left on the disk");
    }
    let later = wait(bench.store.stats()).unwrap_err();
    assert_poisoned(&later, "not kept: no space left on the disk");
    assert_poisoned(&wait(bench.store.wait(Duration::MAX)).unwrap_err(), "not kept: no");
    assert!(bench.begun.try_recv().is_err(), "nothing is tried again");
    bench.closed.recv().expect("the files are let go, to be opened anew");
    assert_eq!(bench.store.close().unwrap_err().kind(), ErrorKind::Poisoned);
}

#[test]
fn a_journal_that_panics_poisons_the_store() {
    let bench = Bench::new();
    let a = add("a");
    let mut adding = bench.store.add(&a);
    assert!(poll(&mut adding).is_pending());
    bench.verdicts.send(Verdict::Panic).unwrap();
    assert_poisoned(&wait(adding).unwrap_err(), "the engine panicked");
    assert_poisoned(&wait(bench.store.add(&a)).unwrap_err(), "the engine panicked");
}

fn assert_poisoned(error: &Error, cause: &str) {
    assert_eq!(error.kind(), ErrorKind::Poisoned);
    assert_eq!(
        error.to_string(),
        "the queue at queue could not be written and accepts nothing more; open it anew to \
         see what it kept"
    );
    let source = std::error::Error::source(error).unwrap().to_string();
    assert!(source.starts_with(cause), "{source}");
}

#[test]
fn who_waits_for_a_key_is_told_when_the_disk_fails() {
    let bench = Bench::new();
    let mut waiting = bench.store.wait(Duration::MAX);
    assert!(poll(&mut waiting).is_pending());
    bench.verdicts.send(Verdict::Lost).unwrap();
    wait(bench.store.pause()).unwrap_err();
    wait(waiting).unwrap();
}

#[test]
fn closing_writes_what_nobody_waited_for_and_refuses_what_comes_later() {
    let bench = Bench::new();
    let (a, b) = (add("a"), add("b"));
    let (mut first, mut dropped) = (bench.store.add(&a), bench.store.add(&b));
    assert!(poll(&mut first).is_pending());
    bench.begun.recv().unwrap();
    assert!(poll(&mut dropped).is_pending());
    drop(dropped);
    bench.pass_all();
    wait(first).unwrap();
    bench.store.close().unwrap();
    let (write, _) = bench.begun.recv().unwrap();
    assert_eq!(names(&write), [b"\x01b"]);
    let error = wait(bench.store.add(&a)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert_eq!(error.to_string(), "the queue at queue is closed");
}

#[test]
fn callers_wait_for_room_when_too_much_is_to_be_written() {
    let bench = Bench::new();
    let (a, z) = (add("a"), add("z"));
    let many: Vec<_> = (0..70_000).map(|n| add(&n.to_string())[0].clone()).collect();
    let (mut first, mut filling) = (bench.store.add(&a), bench.store.add(&many));
    assert!(poll(&mut first).is_pending());
    bench.begun.recv().unwrap();
    assert!(poll(&mut filling).is_pending());
    let mut adding = bench.store.add(&z);
    assert!(poll(&mut adding).is_pending());
    bench.verdicts.send(Verdict::Kept).unwrap();
    let (full, _) = bench.pass();
    assert_eq!(full.len(), many.len(), "without the key for which there was no room");
    wait(filling).unwrap();
    bench.pass_all();
    assert_eq!(wait(adding).unwrap().len(), 1);
}
