//! The shapes of handlers. Most of these tests are about compiling without annotations.

use std::error::Error;
use std::fmt;
use std::io;

use requeue::pool::{Failed, HandlerResult};

use super::*;

/// Runs one key with a handler. Returns the failures, and the delayed keys.
fn outcome<R: HandlerResult>(
    handler: impl Fn(&Run<String>) -> R + Send + Sync + 'static,
) -> (Vec<String>, usize) {
    let queue = Queue::new();
    queue.add("key".to_owned()).unwrap();
    let failures = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&failures);
    let pool = Pool::new(queue)
        .on_failure(move |_, failure| seen.lock().unwrap().push(failure.to_string()))
        .spawn_threads(handler)
        .unwrap();
    let left = pool.drain_blocking(LONG).left.len();
    (failures.lock().unwrap().clone(), left)
}

fn failure(text: &str) -> (Vec<String>, usize) {
    (vec![text.to_owned()], 1)
}

fn success() -> (Vec<String>, usize) {
    (Vec::new(), 0)
}

#[test]
fn handler_without_a_result_succeeds() {
    assert_eq!(outcome(|_| ()), success());
    assert_eq!(
        outcome(|run| {
            assert_eq!(run.len(), 3, "a run dereferences to its key");
        }),
        success()
    );
}

#[test]
fn handler_returns_a_finish() {
    assert_eq!(outcome(|_| Finish::Succeed), success());
    assert_eq!(outcome(|_| Finish::RequeueAfter(LONG)), (Vec::new(), 1));
    assert_eq!(outcome(|_| Finish::Release), (Vec::new(), 1));
    assert_eq!(outcome(|_| Finish::Retry), failure("the handler asked for a retry"));
}

#[test]
fn handler_returns_a_string_as_its_error() {
    let check = |run: &Run<String>| {
        if run.is_empty() { Ok(()) } else { Err(format!("{} is broken", run.key())) }
    };
    assert_eq!(outcome(check), failure("key is broken"));
    assert_eq!(outcome(|_| Err::<(), _>("broken")), failure("broken"));
}

#[test]
fn handler_returns_an_io_error() {
    let read = |run: &Run<String>| -> io::Result<()> {
        std::fs::read(format!("/nonexistent/{}", run.key()))?;
        Ok(())
    };
    assert_eq!(outcome(read).1, 1);
    assert_eq!(outcome(|_| io::Result::Ok(())), success());
}

#[test]
fn handler_returns_a_finish_or_a_boxed_error() {
    let parse = |run: &Run<String>| -> Result<Finish, Box<dyn Error + Send + Sync>> {
        let seconds = run.parse()?;
        Ok(Finish::RequeueAfter(Duration::from_secs(seconds)))
    };
    assert_eq!(outcome(parse), failure("invalid digit found in string"));
}

/// Like `anyhow::Error`: not an `Error` itself, but it converts into a boxed one.
#[derive(Debug)]
struct Opaque(io::Error);

impl<E: Error + Send + Sync + 'static> From<E> for Opaque {
    fn from(error: E) -> Self {
        Self(io::Error::other(error))
    }
}

impl From<Opaque> for Box<dyn Error + Send + Sync> {
    fn from(error: Opaque) -> Self {
        error.0.into()
    }
}

#[test]
fn handler_returns_an_opaque_error() {
    let parse = |run: &Run<String>| -> Result<(), Opaque> {
        let _: u32 = run.parse()?;
        Ok(())
    };
    assert_eq!(outcome(parse), failure("invalid digit found in string"));
}

#[test]
fn question_mark_converts_several_errors_into_failed() {
    let mixed = |run: &Run<String>| -> Result<(), Failed> {
        let text = std::str::from_utf8(run.as_bytes())?;
        let _: u32 = text.parse()?;
        Ok(())
    };
    assert_eq!(outcome(mixed), failure("invalid digit found in string"));
}

#[test]
fn failed_chooses_the_finish() {
    let busy = |_: &Run<String>| Err::<(), _>(Failed::retry_after("busy", LONG));
    assert_eq!(outcome(busy), failure("busy"));
    let gone = |_: &Run<String>| Err::<(), _>(Failed::give_up("gone"));
    assert_eq!(outcome(gone), (vec!["gone".to_owned()], 0));
    let parse = |run: &Run<String>| {
        run.parse::<u32>().map_err(Failed::give_up)?;
        Ok::<_, Failed>(())
    };
    assert_eq!(outcome(parse).1, 0);
}

#[test]
fn failed_shows_its_error() {
    let failed = Failed::new(fmt::Error, Finish::GiveUp);
    assert_eq!(failed.to_string(), fmt::Error.to_string());
    assert_eq!(format!("{failed:?}"), "Failed { error: Error, finish: GiveUp }");
    assert!(failed.error().is::<fmt::Error>());
    assert!(failed.into_error().is::<fmt::Error>());
}

/// An endpoint that always answered 503 with `Retry-After` was retried forever.
#[test]
fn key_that_is_always_retried_after_a_delay_is_dead_at_the_maximum() {
    let clock = FakeClock::new();
    let queue = queue_on(&clock);
    let dead = Failures::default();
    let pool = Pool::new(queue.clone())
        .max_retries(1)
        .on_dead(dead.callback())
        .spawn_threads(|_| Err::<(), _>(Failed::retry_after("busy", SECOND * 30)));
    queue.add("a").unwrap();
    clock.wait_for_timers_blocking(1);
    assert_eq!(queue.num_requeues(&"a"), 1);
    assert_eq!(dead.take(), []);
    clock.advance(SECOND * 30);
    queue.wait_idle_blocking();
    assert_eq!(dead.take(), [failed("a", "busy")]);
    drop(pool);
}

/// The same shapes in tasks.
#[cfg(feature = "tokio")]
#[test]
fn async_handlers_return_the_same_types() {
    async fn check<R, T>(handler: impl Fn(Run<String>) -> T + Send + Sync + 'static)
    where
        R: HandlerResult,
        T: Future<Output = R> + Send + 'static,
    {
        let queue = Queue::new();
        queue.add("7".to_owned()).unwrap();
        let pool = Pool::new(queue).spawn_tasks(handler).unwrap();
        assert!(pool.drain(LONG).await.in_time());
    }

    async fn parse(run: Run<String>) -> Result<Finish, Box<dyn Error + Send + Sync>> {
        let seconds = run.parse()?;
        Ok(Finish::RequeueAfter(Duration::from_secs(seconds)))
    }

    async fn mixed(run: Run<String>) -> Result<(), Failed> {
        let number: u32 = run.parse()?;
        char::from_u32(number).ok_or("not a character")?;
        String::from_utf8(run.into_key().into_bytes()).map_err(Failed::give_up)?;
        Ok(())
    }

    async fn opaque(run: Run<String>) -> Result<(), Opaque> {
        let _: u32 = run.parse()?;
        Ok(())
    }

    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        check(|_| async {}).await;
        check(|run| async move { assert_eq!(run.into_key(), "7") }).await;
        check(|_| async { Finish::GiveUp }).await;
        check(|_| async { Err::<(), _>("broken") }).await;
        check(|run| async move {
            if run.is_empty() { Err(format!("{run:?} is empty")) } else { Ok(()) }
        })
        .await;
        check(|_| async { io::Result::Ok(()) }).await;
        check(|_| async { Err::<Finish, _>(Failed::retry_after("busy", LONG)) }).await;
        check(parse).await;
        check(mixed).await;
        check(opaque).await;
        check(async |run: Run<String>| assert_eq!(run.key(), "7")).await;
    });
}
