//! Retry policies on a store, which counts the failures.

use requeue::retry::{Decorrelated, Exponential, FastSlow, RetryPolicy};
use requeue::{AddOptions, Finish};
use requeue_store::{Backoff, Finished, Rate, SharedQueue, SharedQueueBuilder, Store};

use super::*;

fn build(
    bench: &Bench,
    policy: impl RetryPolicy<String> + 'static,
) -> SharedQueueBuilder<String, Spy> {
    SharedQueue::builder(bench.spy.clone()).retry(policy)
}

/// Fails the key "a" once.
async fn fail(bench: &Bench, queue: &SharedQueue<String, Spy>) -> Duration {
    let lease = queue.get().await.unwrap().expect("it is ready");
    let Finished::Delayed(delay) = lease.retry().await.unwrap() else {
        panic!("the key is delayed")
    };
    bench.engine.advance(delay);
    delay
}

#[tokio::test]
async fn policy_chooses_the_delay_by_the_failures_in_the_store() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let queue = build(&bench, FastSlow::new(SECOND, 60 * SECOND, 2)).build();
    queue.add("a".to_owned()).await.unwrap();
    for delay in [1, 1] {
        assert_eq!(fail(&bench, &queue).await, delay * SECOND);
    }
    let other = build(&bench, FastSlow::new(SECOND, 60 * SECOND, 2)).build();
    assert_eq!(fail(&bench, &other).await, 60 * SECOND, "another process");
    queue.forget(&"a".to_owned()).await.unwrap();
    assert_eq!(fail(&bench, &queue).await, SECOND);
}

#[tokio::test]
async fn policy_applies_to_rate_limited_adds_and_dropped_leases() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let queue = build(&bench, Exponential::new(SECOND, 99 * SECOND)).build();
    let delay = queue.add_rate_limited("a".to_owned()).await.unwrap().delay;
    assert_eq!(delay, SECOND);
    bench.engine.advance(delay);
    drop(queue.get().await.unwrap().expect("it is ready"));
    while bench.spy.calls("finish").is_empty() {
        settle().await;
    }
    settle().await;
    assert_eq!(queue.look(&"a".to_owned()).await.unwrap().delayed, Some(2 * SECOND));
    let limited = AddOptions::new().rate_limited(true).after(3 * SECOND);
    let delay = queue.add_with("b".to_owned(), limited).await.unwrap().delay;
    assert_eq!(delay, SECOND, "the shorter one");
}

#[tokio::test]
async fn jitter_stays_within_the_delay_of_its_policy() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let policy = Exponential::new(SECOND, 8 * SECOND).equal_jitter();
    let queue = build(&bench, policy.at_most(7 * SECOND)).build();
    queue.add("a".to_owned()).await.unwrap();
    for whole in [1, 2, 4, 8, 8] {
        let delay = fail(&bench, &queue).await;
        assert!(delay >= whole * SECOND / 2 && delay <= whole.min(7) * SECOND);
    }
}

#[tokio::test]
async fn shared_rate_still_applies() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let rate = Rate { interval: 9 * SECOND, burst: std::num::NonZeroU32::MIN };
    let queue = build(&bench, FastSlow::new(SECOND, SECOND, 0))
        .backoff(Backoff { rate: Some(rate), ..Backoff::default() })
        .build();
    queue.add_all(["a", "b"].map(str::to_owned)).await.unwrap();
    let mut delays = Vec::new();
    for lease in queue.get_many(2).await.unwrap() {
        delays.push(lease.retry().await.unwrap());
    }
    assert_eq!(delays, [Finished::Delayed(SECOND), Finished::Delayed(9 * SECOND)]);
}

#[tokio::test]
async fn panicking_policy_is_replaced_by_the_backoff() {
    struct Panics;
    impl RetryPolicy<String> for Panics {
        fn when(&self, _: &String) -> Duration {
            Duration::ZERO
        }
        fn forget(&self, _: &String) {}
        fn num_requeues(&self, _: &String) -> u32 {
            0
        }
        fn by_count(&self) -> Option<&dyn requeue::retry::ByCount> {
            Some(self)
        }
    }
    impl requeue::retry::ByCount for Panics {
        fn delay(&self, _: u32) -> Duration {
            panic!("on purpose")
        }
    }
    let _limit = Limit::start();
    let bench = Bench::new();
    let queue = build(&bench, Panics).build();
    queue.add("a".to_owned()).await.unwrap();
    assert_eq!(fail(&bench, &queue).await, Duration::from_millis(5));
    assert_eq!(bench.spy.failing(1).await.unwrap()[0].failures, 1);
    let lease = queue.get().await.unwrap().unwrap();
    assert_eq!(lease.finish(Finish::Succeed).await.unwrap(), Finished::Done);
}

#[tokio::test]
#[should_panic(expected = "depends only on the number of failures")]
async fn policy_with_a_memory_is_refused() {
    drop(build(&Bench::new(), Decorrelated::new(SECOND, 9 * SECOND)));
}

/// A worker that waited when its key failed looked again after 20 seconds. The clocks are
/// real here: twenty such retries would exceed the limit of the test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_worker_notices_each_retry() {
    let _limit = Limit::start();
    let store = MemoryStore::new();
    let short = Duration::from_millis(1);
    let queue = || {
        let policy = FastSlow::new(short, short, 0);
        SharedQueue::<String, _>::builder(store.clone()).retry(policy).build()
    };
    let [one, other] = [queue(), queue()];
    one.add("a".to_owned()).await.unwrap();
    let mut lease = one.get().await.unwrap().unwrap();
    for failures in 1..20 {
        let waiter = if failures % 2 == 0 { &one } else { &other };
        let next = tokio::spawn(waiter.get());
        settle().await;
        lease.retry().await.unwrap();
        lease = next.await.unwrap().unwrap().unwrap();
        assert_eq!(lease.num_requeues(), failures);
    }
    lease.succeed().await.unwrap();
}
