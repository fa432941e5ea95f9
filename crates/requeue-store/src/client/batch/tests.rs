use requeue::{Clock, SystemClock};

use super::*;

type Numbers = Batcher<u32, u32>;

fn numbers() -> Numbers {
    Batcher::new(Arc::default())
}

fn push(
    numbers: &Numbers,
    number: u32,
) -> (Answer<u32>, Option<SendGuard<u32, u32, ()>>) {
    numbers.push(number, (), SystemClock.now())
}

const PATIENCE: Duration = Duration::from_secs(10);

/// Answers each number up to `max` with ten times itself, and the others with `kind`.
fn tenfold_or(
    batch: Batch<u32, u32, ()>,
    max: u32,
    kind: ErrorKind,
    now: Instant,
) -> Option<Batch<u32, u32, ()>> {
    let answer = |number: &u32| match *number {
        number if number <= max => Ok(number * 10),
        _ => Err(Error::new(kind, "too large")),
    };
    let answers = batch.items().iter().map(answer).collect();
    batch.answer(answers, |_, answer, _| Ok(answer), |_, error| error, now, PATIENCE)
}

fn tenfold(batch: Batch<u32, u32, ()>, max: u32) -> Option<Batch<u32, u32, ()>> {
    tenfold_or(batch, max, ErrorKind::Unknown, SystemClock.now())
}

#[tokio::test]
async fn items_pushed_while_a_call_is_in_flight_go_together() {
    let numbers = numbers();
    let (first, guard) = push(&numbers, 1);
    let mut guard = guard.expect("no task is sending yet");
    let alone = guard.take().unwrap();
    let later: Vec<_> = (2..=300).map(|number| push(&numbers, number)).collect();
    assert!(later.iter().all(|(_, guard)| guard.is_none()), "a task is sending already");
    assert_eq!(alone.items(), [1]);
    assert!(tenfold(alone, 1000).is_none());
    let sizes: Vec<_> = std::iter::from_fn(|| {
        let batch = guard.take()?;
        let size = batch.items().len();
        assert!(!numbers.is_idle());
        assert!(tenfold(batch, 1000).is_none());
        Some(size)
    })
    .collect();
    assert_eq!(sizes, [256, 43]);
    assert_eq!(answered(first).await.unwrap(), 10);
    for (number, (answer, _)) in (2..).zip(later) {
        assert_eq!(answered(answer).await.unwrap(), number * 10);
    }
    assert!(numbers.is_idle());
}

#[tokio::test]
async fn missing_answer_of_a_store_is_an_error() {
    let numbers = numbers();
    let (answer, guard) = push(&numbers, 1);
    let batch = guard.unwrap().take().unwrap();
    let (none, now) = (Vec::<Result<u32, Error>>::new(), SystemClock.now());
    let rest = batch.answer(none, |_, it, _| Ok(it), |_, error| error, now, PATIENCE);
    assert!(rest.is_none());
    assert_eq!(answered(answer).await.unwrap_err().kind(), ErrorKind::Corrupt);
}

#[tokio::test]
async fn only_transient_errors_are_repeated() {
    let numbers = numbers();
    let (fatal, guard) = push(&numbers, 1);
    let mut guard = guard.unwrap();
    let batch = guard.take().unwrap();
    assert!(tenfold_or(batch, 0, ErrorKind::Server, SystemClock.now()).is_none());
    assert_eq!(answered(fatal).await.unwrap_err().kind(), ErrorKind::Server);
    let (_transient, _) = push(&numbers, 2);
    let batch = guard.take().unwrap();
    assert!(tenfold_or(batch, 0, ErrorKind::Full, SystemClock.now()).is_some());
}

#[tokio::test]
async fn failed_items_are_repeated_by_one_task_and_delay_no_new_ones() {
    let numbers = numbers();
    let now = SystemClock.now();
    let (answers, guard) = numbers.push_all((1..=5).map(|number| (number, ())), now);
    let mut guard = guard.unwrap();
    let rest = tenfold_or(guard.take().unwrap(), 2, ErrorKind::Busy, now).unwrap();
    assert_eq!(rest.items(), [3, 4, 5]);
    let mut repeat = rest.repeat_later().expect("no task repeats yet");
    let (new, _) = push(&numbers, 6);
    let rest = tenfold_or(guard.take().unwrap(), 5, ErrorKind::Busy, now).unwrap();
    assert!(rest.repeat_later().is_none(), "one task repeats them all");
    assert!(guard.take().is_none());
    let next = repeat.next().unwrap();
    assert!(next > now && repeat.take_due(now).is_none(), "after a pause");
    let batch = repeat.take_due(next).unwrap();
    assert_eq!(batch.items(), [3, 4, 5, 6]);
    assert!(tenfold(batch, 1000).is_none());
    assert!(!numbers.is_idle());
    assert_eq!(repeat.next(), None);
    assert!(numbers.is_idle());
    for (number, answer) in (1..).zip(answers.into_iter().chain([new])) {
        assert_eq!(answered(answer).await.unwrap(), number * 10);
    }
}

#[tokio::test]
async fn patience_of_a_failed_item_ends() {
    let numbers = numbers();
    let (answer, guard) = push(&numbers, 1);
    let (mut batch, mut now) = (guard.unwrap().take(), SystemClock.now());
    let begun = now;
    while let Some(failed) = batch {
        let rest = tenfold_or(failed, 0, ErrorKind::Unavailable, now);
        batch = rest.and_then(|rest| {
            let mut repeat = rest.repeat_later()?;
            now = repeat.next()?;
            let due = repeat.take_due(now);
            assert_eq!(repeat.next(), None);
            due
        });
    }
    assert_eq!(answered(answer).await.unwrap_err().kind(), ErrorKind::Unavailable);
    let lasted = now.duration_since(begun);
    assert!(lasted > PATIENCE / 2 && lasted <= PATIENCE, "{lasted:?}");
}

#[tokio::test]
async fn postponed_items_are_not_sent_and_lose_patience() {
    let numbers = numbers();
    let (answer, guard) = push(&numbers, 1);
    let now = SystemClock.now();
    let rest = tenfold_or(guard.unwrap().take().unwrap(), 0, ErrorKind::Full, now);
    let mut repeat = rest.unwrap().repeat_later().unwrap();
    let error = Error::new(ErrorKind::Unavailable, "no server");
    let mut postponed = 0;
    while let Some(next) = repeat.next() {
        repeat.postpone_due(&error, next, PATIENCE);
        postponed += 1;
    }
    assert!(postponed > 5, "{postponed}");
    assert_eq!(answered(answer).await.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn dropped_repeat_guard_fails_its_callers() {
    let numbers = numbers();
    let (answer, guard) = push(&numbers, 1);
    let rest = tenfold(guard.unwrap().take().unwrap(), 0).unwrap();
    drop(rest.repeat_later());
    assert_eq!(answered(answer).await.unwrap_err().kind(), ErrorKind::Unknown);
    assert!(numbers.is_idle());
}

#[tokio::test]
async fn dropped_guard_fails_all_callers_and_is_replaced() {
    let numbers = numbers();
    let (sent, guard) = push(&numbers, 1);
    let mut guard = guard.unwrap();
    let batch = guard.take().unwrap();
    let (waiting, _) = push(&numbers, 2);
    drop((guard, batch));
    assert_eq!(answered(sent).await.unwrap_err().kind(), ErrorKind::Unknown);
    let error = answered(waiting).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "it was not sent");
    assert!(numbers.is_idle());
    assert!(push(&numbers, 3).1.is_some());
}
