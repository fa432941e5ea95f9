//! A lease survives any single lost, hung or late call, and a hung server costs only its own
//! leases.

use requeue_store::{SharedLease, Store};
use tokio::task::JoinHandle;

use super::spy::Fault;
use super::*;

/// Passes time in small steps.
async fn pass_slowly(bench: &Bench, time: Duration) {
    let step = SECOND / 2;
    for _ in 0..time.as_millis() / step.as_millis() {
        bench.pass(step);
        settle().await;
    }
}

/// Watches a lease as a pool does. The task ends when the lease is lost.
fn watch(lease: &SharedLease<String, Spy>) -> JoinHandle<()> {
    tokio::spawn(lease.lost())
}

/// Leases a key at `offset` in a period of the heartbeat, injects a fault into the next
/// extension, and returns whether the lease is lost two lease durations later.
async fn is_lost_after(bench: &Bench, fault: Fault, offset: Duration) -> bool {
    assert!(bench.queue.try_get().await.unwrap().is_none(), "starts the heartbeat");
    settle().await;
    bench.pass(offset);
    bench.add("a").await;
    let lease = bench.queue.get().await.unwrap().unwrap();
    let watch = watch(&lease);
    settle().await;
    bench.spy.fail("extend", fault);
    pass_slowly(bench, 2 * LEASE).await;
    let returned = bench.spy.expire(None).await.unwrap().returned;
    watch.is_finished() || returned > 0
}

/// The next attempt came a third of the lease after the end of a hung one, past the fence:
/// one hung call lost every lease.
#[tokio::test]
async fn lease_survives_any_single_failed_extension() {
    let _limit = Limit::start();
    for fault in [Fault::Hung, Fault::Late, Fault::NoAnswer, Fault::Unreachable] {
        for offset in [0, 1, 5, 9] {
            let bench = Bench::new();
            let lost = is_lost_after(&bench, fault, offset * SECOND).await;
            assert!(!lost, "{fault:?} at {offset} s");
        }
    }
}

#[tokio::test]
async fn ticks_do_not_drift_while_calls_are_slow() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("a").await;
    let _lease = bench.queue.get().await.unwrap().unwrap();
    settle().await;
    for _ in 0..9 {
        bench.spy.fail("extend", Fault::Hung);
    }
    pass_slowly(&bench, 3 * LEASE).await;
    assert_eq!(bench.spy.calls("extend").len(), 9, "three for each lease duration");
}

/// The fence counted from the reply: a late success would let the holder work on after the
/// lease has expired in the store.
#[tokio::test]
async fn fence_counts_from_the_start_of_the_last_successful_extension() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("a").await;
    let lease = bench.queue.get().await.unwrap().unwrap();
    settle().await;
    bench.spy.fail("extend", Fault::Late);
    bench.pass(LEASE / 3);
    settle().await;
    bench.pass(LEASE / 6);
    bench.spy.let_go();
    settle().await;
    for _ in 0..9 {
        bench.spy.fail("extend", Fault::Unreachable);
    }
    // The extension began at 10 s and was answered at 15 s; its fence is at 10 + 27 s.
    bench.pass(21 * SECOND);
    settle().await;
    assert!(!lease.is_lost(), "at 36 s");
    bench.pass(SECOND);
    assert!(lease.is_lost(), "at 37 s");
}

#[tokio::test]
async fn hung_reclaim_does_not_delay_the_ticks() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("a").await;
    let lease = bench.queue.get().await.unwrap().unwrap();
    bench.spy.fail("lease", Fault::NoAnswer);
    bench.queue.try_get().await.unwrap_err();
    for _ in 0..9 {
        bench.spy.fail("reclaim", Fault::Hung);
    }
    let watch = watch(&lease);
    pass_slowly(&bench, 2 * LEASE).await;
    assert!(!watch.is_finished());
}

/// A panic in a call of the heartbeat ended it, and all leases were lost.
#[tokio::test]
async fn panic_of_a_call_does_not_end_the_heartbeat() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("a").await;
    let lease = bench.queue.get().await.unwrap().unwrap();
    bench.spy.fail("lease", Fault::NoAnswer);
    bench.queue.try_get().await.unwrap_err();
    bench.spy.fail("extend", Fault::Panic);
    bench.spy.fail("reclaim", Fault::Panic);
    let watch = watch(&lease);
    pass_slowly(&bench, 3 * LEASE).await;
    assert!(!watch.is_finished());
    assert_eq!(bench.spy.calls("extend").len(), 9);
}

/// One of three cluster nodes that stopped for nine seconds cost the leases on all three.
#[tokio::test]
async fn hung_server_costs_only_its_own_leases() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.spy.use_lanes();
    bench.queue.add_all(["a1", "a2", "b1", "c1"].map(str::to_owned)).await.unwrap();
    let leases = bench.queue.get_many(4).await.unwrap();
    settle().await;
    bench.spy.hang_lane(Some(b'b'));
    let watches: Vec<_> = leases.iter().map(watch).collect();
    pass_slowly(&bench, 2 * LEASE).await;
    let lost: Vec<_> = watches.iter().map(JoinHandle::is_finished).collect();
    assert_eq!(lost, [false, false, true, false], "a1, a2, b1, c1");
}

#[tokio::test]
async fn hung_server_delays_only_its_own_adds_and_finishes() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.spy.use_lanes();
    bench.queue.add_all(["a1", "b1"].map(str::to_owned)).await.unwrap();
    let mut leases = bench.queue.get_many(2).await.unwrap();
    bench.spy.hang_lane(Some(b'b'));
    let hung = (start(bench.queue.add("b2".to_owned())), leases.pop().unwrap().succeed());
    settle().await;
    bench.add("a2").await;
    leases.pop().unwrap().succeed().await.unwrap();
    assert!(is_waiting(hung.0) && is_waiting(hung.1));
}
