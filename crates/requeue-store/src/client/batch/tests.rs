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

/// Answers each number up to `max` with ten times itself.
fn tenfold(batch: Batch<u32, u32, ()>, max: u32) -> Option<Batch<u32, u32, ()>> {
    let answers: Vec<u32> = batch.items().iter().map(|number| number * 10).collect();
    batch.answer(answers, |number, answer| (*number <= max).then_some(Ok(answer)))
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
async fn error_reaches_every_caller_of_the_batch() {
    let numbers = numbers();
    let both = [(1, ()), (2, ())];
    let (answers, guard) = numbers.push_all(both, SystemClock.now());
    let batch = guard.unwrap().take().unwrap();
    batch.fail(&Error::new(ErrorKind::Unavailable, "no store"));
    for answer in answers {
        let error = answered(answer).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
}

#[tokio::test]
async fn missing_answer_of_a_store_is_an_error() {
    let numbers = numbers();
    let (answer, guard) = push(&numbers, 1);
    let batch = guard.unwrap().take().unwrap();
    assert!(batch.answer(Vec::<u32>::new(), |_, answer| Some(Ok(answer))).is_none());
    assert_eq!(answered(answer).await.unwrap_err().kind(), ErrorKind::Corrupt);
}

#[tokio::test]
async fn unanswered_items_stay_and_can_be_halved() {
    let numbers = numbers();
    let five = (1..=5).map(|number| (number, ()));
    let (answers, guard) = numbers.push_all(five, SystemClock.now());
    let mut guard = guard.unwrap();
    let left = tenfold(guard.take().unwrap(), 2).unwrap();
    assert_eq!(left.items(), [3, 4, 5]);
    assert!(guard.take().is_none());
    let (first, second) = left.halves();
    assert_eq!((first.items(), second.items()), (&[3, 4][..], &[5][..]));
    assert!(tenfold(first, 1000).is_none());
    assert!(!numbers.is_idle(), "one is left");
    assert!(tenfold(second, 1000).is_none());
    assert!(numbers.is_idle());
    for (number, answer) in (1..).zip(answers) {
        assert_eq!(answered(answer).await.unwrap(), number * 10);
    }
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

#[tokio::test]
async fn impatient_callers_get_the_error() {
    let numbers = numbers();
    let long_ago = SystemClock.now();
    let now = long_ago + std::time::Duration::from_secs(1);
    let (old, guard) = numbers.push(1, (), long_ago);
    let (young, _) = numbers.push(2, (), now);
    let mut guard = guard.unwrap();
    let mut batch = guard.take().unwrap();
    let (old_unsent, _) = numbers.push(3, (), long_ago);
    let (young_unsent, _) = numbers.push(4, (), now);
    let error = Error::new(ErrorKind::Unknown, "no answer");
    batch.fail_impatient(|since| since < now, &error);
    guard.fail_impatient(|since| since < now, &error);
    assert_eq!(answered(old).await.unwrap_err().kind(), ErrorKind::Unknown);
    let error = answered(old_unsent).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "it was not sent");
    assert!(tenfold(batch, 1000).is_none());
    assert!(tenfold(guard.take().unwrap(), 1000).is_none());
    assert_eq!(answered(young).await.unwrap(), 20);
    assert_eq!(answered(young_unsent).await.unwrap(), 40);
}
