//! A limiter keeps its rate if callers give up after a timeout.

use std::future::Future;
use std::time::Duration;

use super::tasks::Tasks;
use crate::rate::{Hierarchy, Keyed, Limit, Limiter, Pacer, Share, Window};
use crate::testing::FakeClock;

const SECONDS: u64 = 20;
const TIMEOUT: u64 = 200;

/// Sends 200 requests per second for 20 s to a limiter of 100 per second. Each request is
/// cancelled after 200 ms. Returns how many were served.
fn served<'a, T, F>(clock: &FakeClock, mut request: impl FnMut() -> F) -> usize
where
    F: Future<Output = T> + 'a,
    T: 'a,
{
    let (mut tasks, mut served) = (Tasks::new(), 0);
    for ms in 0..SECONDS * 1000 {
        if ms % 5 == 0 {
            tasks.spawn(request());
            if let Some(expired) = (ms / 5).checked_sub(TIMEOUT / 5) {
                tasks.cancel(expired);
            }
        }
        served += tasks.run().len();
        clock.advance(Duration::from_millis(1));
        served += tasks.run().len();
    }
    served
}

/// Only 41 of 4,000 requests were served, and none after second 4: each cancelled request
/// left its debt to the ones behind it.
#[track_caller]
fn assert_goodput(name: &str, served: usize) {
    assert!(served >= 1900, "{name}: served {served} of 2,000");
    assert!(served <= 2001 + 20, "{name}: served {served} of 2,000");
}

fn per_second() -> Limit {
    Limit::per_second(100.0)
}

#[test]
fn limiter_keeps_its_rate_under_timeouts() {
    for burst in [1, 10] {
        let clock = FakeClock::new();
        let limiter = Limiter::with_clock(per_second(), burst, clock.clone());
        assert_goodput("limiter", served(&clock, || limiter.wait()));
    }
}

#[test]
fn keyed_keeps_its_rate_under_timeouts() {
    let clock = FakeClock::new();
    let keyed = Keyed::with_clock(per_second(), 1, clock.clone());
    assert_goodput("keyed", served(&clock, || keyed.wait(&"key")));
    assert_eq!(keyed.tracked(), 1);
}

#[test]
fn pacer_keeps_its_rate_under_timeouts() {
    let clock = FakeClock::new();
    let pacer = Pacer::builder(100).slack(0).clock(clock.clone()).build();
    assert_goodput("pacer", served(&clock, || pacer.take()));
}

#[test]
fn window_keeps_its_rate_under_timeouts() {
    for (n, per) in [(1, 10), (10, 100)] {
        let clock = FakeClock::new();
        let window = Window::with_clock(n, Duration::from_millis(per), clock.clone());
        assert_goodput("window", served(&clock, || window.wait()));
    }
}

#[test]
fn hierarchy_keeps_its_rate_under_timeouts() {
    let clock = FakeClock::new();
    let root = Hierarchy::with_clock(per_second(), 2, clock.clone());
    let child = Share::new(Limit::per_second(50.0), 1);
    let children = [root.child(child).unwrap(), root.child(child).unwrap()];
    let mut turn = 0;
    let served = served(&clock, || {
        turn += 1;
        children[turn % 2].wait()
    });
    assert_goodput("hierarchy", served);
}

#[cfg(feature = "tower")]
#[test]
fn layer_keeps_its_rate_under_timeouts() {
    use crate::rate::RateLimitLayer;
    use std::convert::Infallible;
    use std::future::{Ready, poll_fn, ready};
    use std::task::{Context, Poll};
    use tower_layer::Layer;
    use tower_service::Service;

    #[derive(Clone)]
    struct Inner;
    impl Service<()> for Inner {
        type Response = ();
        type Error = Infallible;
        type Future = Ready<Result<(), Infallible>>;
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }
        fn call(&mut self, (): ()) -> Self::Future {
            ready(Ok(()))
        }
    }

    let clock = FakeClock::new();
    let limiter = Limiter::with_clock(per_second(), 1, clock.clone());
    let service = RateLimitLayer::new(limiter).layer(Inner);
    let served = served(&clock, || {
        let mut service = service.clone();
        async move {
            poll_fn(|cx| service.poll_ready(cx)).await?;
            service.call(()).await
        }
    });
    assert_goodput("layer", served);
}
