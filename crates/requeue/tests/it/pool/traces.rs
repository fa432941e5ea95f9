//! Spans and events of a pool.

use std::fmt::{Debug, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};

use super::*;

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The span that makes the subscriber panic.
static BAD_SPAN: AtomicU64 = AtomicU64::new(0);

/// Records the spans and events of pools.
struct TestSubscriber(AtomicU64);

/// The fields of a span or event as `name=value`.
#[derive(Default)]
struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

fn write_line(what: &str, record: impl FnOnce(&mut Fields)) {
    let mut fields = Fields::default();
    record(&mut fields);
    LINES.lock().unwrap().push(format!("{what}{}", fields.0));
}

impl Subscriber for TestSubscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("requeue::pool")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        write_line(&format!("span {id}: {}", span.metadata().name()), |to| {
            span.record(to);
            if to.0.contains("bad span") {
                BAD_SPAN.store(id, Ordering::SeqCst);
            }
        });
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let bad = BAD_SPAN.load(Ordering::SeqCst);
        assert_ne!(span.into_u64(), bad, "a span that panics, on purpose");
        write_line(&format!("span {}:", span.into_u64()), |to| values.record(to));
    }

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        write_line(event.metadata().level().as_str(), |to| event.record(to));
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}

    fn try_close(&self, span: Id) -> bool {
        let bad = BAD_SPAN.load(Ordering::SeqCst);
        assert_ne!(span.into_u64(), bad, "a span that panics, on purpose");
        true
    }
}

fn install() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        tracing::subscriber::set_global_default(TestSubscriber(AtomicU64::new(0)))
            .unwrap();
    });
}

#[test]
fn each_run_has_a_span_and_each_failure_an_event() {
    install();
    let queue = Queue::builder().name("traced").build();
    queue.add_all(["traced-fine", "traced-flawed"]).unwrap();
    let pool = Pool::new(queue.clone()).max_retries(0).spawn_threads(|run| {
        if *run.key() == "traced-fine" { Ok(()) } else { Err("it has a flaw") }
    });
    assert!(pool.unwrap().drain_blocking(LONG).left.is_empty());
    let lines = LINES.lock().unwrap();
    let find = |text: &str| {
        let line = lines.iter().find(|line| line.contains(text));
        line.unwrap_or_else(|| panic!("{text} in {lines:?}"))
    };
    let span = find("key=\"traced-flawed\"");
    assert!(span.contains("run") && span.contains("pool=\"traced\""), "{span}");
    let number = span.split(':').next().unwrap();
    find(&format!("{number}: retries=0"));
    find(&format!("{number}: outcome=Failed"));
    let event = find("it has a flaw");
    assert!(event.starts_with("ERROR") && event.contains("dead"), "{event}");
    let other = find("key=\"traced-fine\"").split(':').next().unwrap();
    find(&format!("{other}: outcome=Succeeded"));
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct PanicsOnDebug(u32);

impl Debug for PanicsOnDebug {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("a debug that panics, on purpose");
    }
}

/// The subscriber formats the key. Each such key killed a worker.
#[test]
fn key_whose_debug_panics_costs_no_worker() {
    install();
    let queue = Queue::new();
    queue.add_all([1, 2, 3].map(PanicsOnDebug)).unwrap();
    let (done, is_done) = mpsc::channel();
    let pool = Pool::new(queue).spawn_threads(move |run| done.send(run.0));
    assert!(pool.unwrap().drain_blocking(LONG).left.is_empty());
    assert_eq!(is_done.iter().collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn subscriber_that_panics_costs_no_worker() {
    install();
    let queue = Queue::new();
    queue.add_all(["bad span", "fine"]).unwrap();
    let (done, is_done) = mpsc::channel();
    let pool = Pool::new(queue).max_retries(0);
    let pool = pool.spawn_threads(move |run| done.send(*run.key())).unwrap();
    assert_eq!([is_done.recv(), is_done.recv()], [Ok("bad span"), Ok("fine")]);
    assert_eq!(pool.workers(), 1);
    assert!(pool.drain_blocking(LONG).left.is_empty());
}

#[test]
fn run_on_a_thread_that_exceeds_its_timeout_has_an_event() {
    install();
    let (clock, queue) = (FakeClock::new(), Queue::new());
    queue.add("slow").unwrap();
    let pool = Pool::new(queue).clock(clock.clone()).timeout(SECOND);
    let pool = pool.spawn_threads(move |_| clock.advance(SECOND * 2));
    assert!(pool.unwrap().drain_blocking(LONG).left.is_empty());
    let lines = LINES.lock().unwrap();
    let overran = "WARN message=run exceeded its timeout";
    assert!(lines.iter().any(|line| line == overran), "{lines:?}");
}
