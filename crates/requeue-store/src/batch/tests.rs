use requeue::{Clock, SystemClock};

use super::*;

type Numbers = Batcher<u32, u32>;

fn numbers() -> Numbers {
    Batcher::new(Arc::default())
}

fn push(numbers: &Numbers, number: u32) -> (Answer<u32>, Option<Turn<u32, u32, ()>>) {
    numbers.push(number, (), SystemClock.now())
}

/// Tells ten times each number, and nothing of those above `most`.
fn tenfold(batch: Batch<u32, u32, ()>, most: u32) -> Option<Batch<u32, u32, ()>> {
    let answers: Vec<u32> = batch.items().iter().map(|number| number * 10).collect();
    batch.answer(answers, |number, answer| (*number <= most).then_some(Ok(answer)))
}

#[tokio::test]
async fn what_comes_while_one_call_is_on_its_way_goes_together() {
    let numbers = numbers();
    let (first, turn) = push(&numbers, 1);
    let mut turn = turn.expect("somebody has to send it");
    let alone = turn.take().unwrap();
    let later: Vec<_> = (2..=300).map(|number| push(&numbers, number)).collect();
    assert!(later.iter().all(|(_, turn)| turn.is_none()), "a task is sending already");
    assert_eq!(alone.items(), [1]);
    assert!(tenfold(alone, 1000).is_none());
    let sizes: Vec<_> = std::iter::from_fn(|| {
        let batch = turn.take()?;
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
async fn an_error_reaches_each_who_waited_for_the_call() {
    let numbers = numbers();
    let both = [(1, ()), (2, ())];
    let (answers, turn) = numbers.push_all(both, SystemClock.now());
    let batch = turn.unwrap().take().unwrap();
    batch.fail(&Error::new(ErrorKind::Unavailable, "no store"));
    for answer in answers {
        let error = answered(answer).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
}

#[tokio::test]
async fn a_store_that_forgets_an_answer_is_found_out() {
    let numbers = numbers();
    let (answer, turn) = push(&numbers, 1);
    let batch = turn.unwrap().take().unwrap();
    assert!(batch.answer(Vec::<u32>::new(), |_, answer| Some(Ok(answer))).is_none());
    assert_eq!(answered(answer).await.unwrap_err().kind(), ErrorKind::Corrupt);
}

#[tokio::test]
async fn what_has_no_answer_yet_stays_in_halves() {
    let numbers = numbers();
    let five = (1..=5).map(|number| (number, ()));
    let (answers, turn) = numbers.push_all(five, SystemClock.now());
    let mut turn = turn.unwrap();
    let left = tenfold(turn.take().unwrap(), 2).unwrap();
    assert_eq!(left.items(), [3, 4, 5]);
    assert!(turn.take().is_none());
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
async fn a_turn_that_is_dropped_tells_everybody_and_can_be_had_again() {
    let numbers = numbers();
    let (sent, turn) = push(&numbers, 1);
    let mut turn = turn.unwrap();
    let batch = turn.take().unwrap();
    let (waiting, _) = push(&numbers, 2);
    drop((turn, batch));
    assert_eq!(answered(sent).await.unwrap_err().kind(), ErrorKind::Unknown);
    let error = answered(waiting).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "nothing was sent");
    assert!(numbers.is_idle());
    assert!(push(&numbers, 3).1.is_some());
}

#[tokio::test]
async fn those_who_have_waited_for_too_long_are_told_of_the_error() {
    let numbers = numbers();
    let long_ago = SystemClock.now();
    let now = long_ago + std::time::Duration::from_secs(1);
    let (old, turn) = numbers.push(1, (), long_ago);
    let (young, _) = numbers.push(2, (), now);
    let mut turn = turn.unwrap();
    let mut batch = turn.take().unwrap();
    let (old_in_line, _) = numbers.push(3, (), long_ago);
    let (young_in_line, _) = numbers.push(4, (), now);
    let error = Error::new(ErrorKind::Unknown, "no answer");
    batch.give_up(|since| since < now, &error);
    turn.give_up(|since| since < now, &error);
    assert_eq!(answered(old).await.unwrap_err().kind(), ErrorKind::Unknown);
    let error = answered(old_in_line).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "nothing was sent");
    assert!(tenfold(batch, 1000).is_none());
    assert!(tenfold(turn.take().unwrap(), 1000).is_none());
    assert_eq!(answered(young).await.unwrap(), 20);
    assert_eq!(answered(young_in_line).await.unwrap(), 40);
}
