use super::*;
use crate::rate::{Keyed, Limit, Limiter};
use crate::testing::FakeClock;

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

fn delays<P: RetryPolicy<u32>>(policy: &P, failures: usize) -> Vec<Duration> {
    (0..failures).map(|_| policy.when(&1)).collect()
}

fn by_count(policy: &dyn RetryPolicy<u32>) -> &dyn ByCount {
    policy.by_count().expect("this policy is by count")
}

fn millis(all: &[u64]) -> Vec<Duration> {
    all.iter().copied().map(Duration::from_millis).collect()
}

#[test]
fn controller_delays_equal_client_go() {
    let expected = millis(&[
        5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 10_240, 20_480, 40_960,
        81_920, 163_840, 327_680, 655_360, 1_000_000, 1_000_000,
    ]);
    assert_eq!(delays(&Exponential::default(), 20), expected);
}

#[test]
fn item_delays_equal_client_go() {
    let expected = millis(&[
        1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768,
        65_536, 131_072, 262_144, 524_288, 1_000_000, 1_000_000,
    ]);
    assert_eq!(delays(&item_default(), 22), expected);
}

#[test]
fn extreme_exponential_delays_do_not_overflow() {
    let ns = Duration::from_nanos;
    // base, max, failures, delay
    let table = [
        (SEC, 60 * SEC, u32::MAX, 60 * SEC),
        (SEC, 60 * SEC, 63, 60 * SEC),
        (Duration::ZERO, SEC, 0, Duration::ZERO),
        (Duration::ZERO, SEC, 1024, Duration::ZERO),
        (Duration::ZERO, SEC, u32::MAX, Duration::ZERO),
        (2 * SEC, SEC, 0, SEC),
        (SEC, Duration::ZERO, 0, Duration::ZERO),
        // A power of two reaches 2^63 exactly, which is negative in Go.
        (ns(1), ns(i64::MAX as u64), 62, ns(1 << 62)),
        (ns(1), ns(i64::MAX as u64), 63, ns(i64::MAX as u64)),
        (ns(1), ns(u64::MAX), 63, ns(1 << 63)),
        (ns(1), ns(u64::MAX), 64, ns(u64::MAX)),
        (ns(3), ns(u64::MAX), 62, ns(3 << 62)),
        (ns(3), ns(u64::MAX), 63, ns(u64::MAX)),
        (Duration::MAX, Duration::MAX, 0, ns(u64::MAX)),
        (Duration::MAX, Duration::MAX, u32::MAX, ns(u64::MAX)),
        // Floating point, as in Go: an f64 cannot hold 2^53 + 1.
        (ns((1 << 53) + 1), ns(u64::MAX), 0, ns(1 << 53)),
        (ns((1 << 53) + 3), ns(u64::MAX), 1, ns((1 << 54) + 8)),
        (ns((1 << 53) - 1), ns(u64::MAX), 1, ns((1 << 54) - 2)),
    ];
    for (base, max, retries, delay) in table {
        let policy = Exponential::<u32>::new(base, max);
        let given = by_count(&policy).delay(retries);
        assert_eq!(given, delay, "{base:?} to {max:?} after {retries}");
    }
}

#[test]
fn exponential_counts_each_key_separately_until_it_is_forgotten() {
    let policy = Exponential::default();
    delays(&policy, 5);
    assert_eq!(policy.when(&2), 5 * MS);
    assert_eq!((policy.num_requeues(&1), policy.num_requeues(&2)), (5, 1));
    policy.forget(&1);
    assert_eq!((policy.num_requeues(&1), policy.num_requeues(&2)), (0, 1));
    assert_eq!(policy.when(&1), 5 * MS);
    assert_eq!(policy.num_requeues(&3), 0);
    assert!(format!("{policy:?}").contains("tracked: 2"));
}

#[test]
fn asking_or_forgetting_an_unknown_key_tracks_nothing() {
    let policy = FastSlow::new(MS, SEC, 1);
    assert_eq!(policy.num_requeues(&1), 0);
    policy.forget(&1);
    assert!(format!("{policy:?}").contains("tracked: 0"));
}

#[test]
fn fast_slow_is_slow_after_n_failures() {
    let expected = millis(&[5, 5, 5, 10_000, 10_000]);
    assert_eq!(delays(&FastSlow::new(5 * MS, 10 * SEC, 3), 5), expected);
    assert_eq!(delays(&FastSlow::new(MS, SEC, 0), 2), [SEC, SEC]);
    let never_slow = FastSlow::<u32>::new(MS, SEC, u32::MAX);
    assert_eq!(by_count(&never_slow).delay(u32::MAX - 1), MS);
    assert_eq!(by_count(&never_slow).delay(u32::MAX), SEC);
}

#[test]
fn max_of_is_the_longer_delay() {
    let policy = FastSlow::new(5 * MS, 3 * SEC, 3).and(Exponential::new(MS, 1000 * SEC));
    assert_eq!(delays(&policy, 5), millis(&[5, 5, 5, 3000, 3000]));
    assert_eq!(delays(&policy, 10)[9], Duration::from_millis(1 << 14));
    assert_eq!(policy.num_requeues(&1), 15);
    policy.forget(&1);
    assert_eq!(policy.num_requeues(&1), 0);
    assert_eq!(policy.when(&1), 5 * MS);
}

#[test]
fn max_of_reports_the_larger_count() {
    let (small, large) = (Exponential::default(), Exponential::default());
    delays(&small, 2);
    delays(&large, 7);
    assert_eq!(MaxOf::new(small, large).num_requeues(&1), 7);
}

#[test]
fn max_wait_bounds_only_delays() {
    let policy = FastSlow::new(5 * MS, 100 * SEC, 2).at_most(10 * SEC);
    assert_eq!(delays(&policy, 4), millis(&[5, 5, 10_000, 10_000]));
    assert_eq!(policy.num_requeues(&1), 4);
    policy.forget(&1);
    assert_eq!(policy.when(&1), 5 * MS);
}

#[test]
fn by_count_form_agrees_with_when() {
    type Make = fn() -> Box<dyn RetryPolicy<u32>>;
    let policies: [Make; 6] = [
        || Box::new(Exponential::default()),
        || Box::new(FastSlow::new(MS, SEC, 3)),
        || Box::new(Exponential::default().at_most(SEC)),
        || Box::new(FastSlow::new(MS, SEC, 3).and(item_default()).at_most(20 * SEC)),
        || Box::new(Exponential::default().full_jitter().seed(9)),
        || Box::new(item_default().at_most(SEC).equal_jitter().seed(9)),
    ];
    for make in policies {
        let (policy, twin) = (make(), make());
        assert!(by_count(&twin).counts());
        for retries in 0..25 {
            assert_eq!(policy.when(&1), by_count(&twin).delay(retries));
        }
        assert_eq!(policy.num_requeues(&1), 25);
        assert_eq!(twin.num_requeues(&1), 0);
    }
}

#[test]
fn combinator_is_by_count_only_if_all_its_policies_are() {
    let counted = Exponential::<u32>::default;
    let other = || Decorrelated::<u32>::new(MS, SEC);
    assert!(other().by_count().is_none());
    assert!(counted().and(other()).by_count().is_none());
    assert!(other().and(counted()).by_count().is_none());
    assert!(other().at_most(SEC).by_count().is_none());
    assert!(other().full_jitter().by_count().is_none());
    assert!(counted().and(counted().equal_jitter()).by_count().is_some());
}

#[test]
fn policies_work_behind_pointers() {
    let shared: Arc<dyn RetryPolicy<u32>> = Arc::new(Exponential::default());
    let policy = Arc::clone(&shared).at_most(8 * MS);
    assert_eq!(delays(&policy, 2), [5 * MS, 8 * MS]);
    assert_eq!(shared.num_requeues(&1), 2);
    shared.forget(&1);
    assert_eq!(policy.num_requeues(&1), 0);
    assert_eq!(policy.by_count().map(|p| p.delay(0)), Some(5 * MS));
}

#[test]
fn full_jitter_is_spread_over_the_whole_delay() {
    let policy = FastSlow::new(SEC, SEC, 0).full_jitter().seed(1);
    let delays = delays(&policy, 1000);
    assert!(delays.iter().all(|&d| d <= SEC));
    assert!(delays.iter().any(|&d| d < SEC / 50));
    assert!(delays.iter().any(|&d| d > SEC * 49 / 50));
    let mean = delays.iter().sum::<Duration>() / 1000;
    assert!((450 * MS..550 * MS).contains(&mean), "{mean:?}");
}

#[test]
fn equal_jitter_is_spread_over_half_the_delay() {
    let policy = FastSlow::new(SEC, SEC, 0).equal_jitter().seed(1);
    let delays = delays(&policy, 1000);
    assert!(delays.iter().all(|&d| SEC / 2 <= d && d <= SEC));
    let mean = delays.iter().sum::<Duration>() / 1000;
    assert!((725 * MS..775 * MS).contains(&mean), "{mean:?}");
}

#[test]
fn jitter_of_extreme_delays_does_not_panic() {
    let none = FastSlow::new(Duration::ZERO, Duration::ZERO, 0);
    assert_eq!(delays(&none.full_jitter(), 2), [Duration::ZERO; 2]);
    let one = Duration::from_nanos(1);
    assert!(
        delays(&FastSlow::new(one, one, 0).equal_jitter(), 9).iter().all(|&d| d <= one)
    );
    let all = FastSlow::new(Duration::MAX, Duration::MAX, 0).equal_jitter();
    let half = Duration::from_nanos(u64::MAX / 2);
    assert!(delays(&all, 9).iter().all(|&d| d >= half));
}

#[test]
fn same_seed_gives_the_same_delays() {
    let policy = || Exponential::new(SEC, 1000 * SEC).full_jitter();
    assert_eq!(delays(&policy().seed(3), 9), delays(&policy().seed(3), 9));
    assert_ne!(delays(&policy().seed(3), 9), delays(&policy().seed(4), 9));
    assert_ne!(delays(&policy(), 9), delays(&policy(), 9));
    let policy = || Decorrelated::new(SEC, 1000 * SEC);
    assert_eq!(delays(&policy().seed(3), 9), delays(&policy().seed(3), 9));
    assert_ne!(delays(&policy(), 9), delays(&policy(), 9));
}

#[test]
fn decorrelated_stays_between_base_and_three_times_the_last_delay() {
    let policy = Decorrelated::new(5 * MS, SEC).seed(1);
    let mut last = 5 * MS;
    for delay in delays(&policy, 1000) {
        assert!(5 * MS <= delay && delay <= (last * 3).min(SEC), "{last:?} {delay:?}");
        last = delay;
    }
    assert_eq!(policy.num_requeues(&1), 1000);
    policy.forget(&1);
    assert_eq!(policy.num_requeues(&1), 0);
    assert!(format!("{policy:?}").contains("tracked: 0"));
    assert!(policy.when(&1) <= 15 * MS);
}

#[test]
fn extreme_decorrelated_delays_do_not_panic() {
    let zero = Decorrelated::new(Duration::ZERO, SEC);
    assert_eq!(delays(&zero, 3), [Duration::ZERO; 3]);
    let inverted = Decorrelated::new(SEC, MS);
    assert_eq!(delays(&inverted, 3), [MS; 3]);
    let longest = Decorrelated::new(Duration::MAX, Duration::MAX);
    assert_eq!(delays(&longest, 3), [Duration::from_nanos(u64::MAX); 3]);
}

#[test]
fn debug_shows_numbers_and_no_keys() {
    let policy = Exponential::default();
    policy.when(&"secret");
    assert_eq!(
        format!("{:?}", policy.at_most(SEC)),
        "MaxWait { policy: Exponential { first: 5ms, longest: 1000s, tracked: 1, .. }, max: 1s, .. }"
    );
}

fn limiter(per_second: f64, burst: u32) -> (Limiter, FakeClock) {
    let clock = FakeClock::new();
    (Limiter::with_clock(Limit::per_second(per_second), burst, clock.clone()), clock)
}

#[test]
fn all_keys_wait_for_one_bucket() {
    let (limiter, clock) = limiter(10.0, 2);
    let policy = Bucket::new(limiter);
    let waits: Vec<_> = (0..5).map(|key| policy.when(&key)).collect();
    assert_eq!(waits, millis(&[0, 0, 100, 200, 300]));
    clock.advance(SEC);
    policy.forget(&1);
    assert_eq!(policy.num_requeues(&1), 0);
    assert_eq!(policy.when(&1), Duration::ZERO);
}

#[test]
fn bucket_without_tokens_waits_as_long_as_in_go() {
    for (rate, burst) in [(10.0, 0), (0.0, 0)] {
        let policy = Bucket::new(limiter(rate, burst).0);
        assert_eq!(policy.when(&1), Bucket::NEVER);
        assert_eq!(policy.at_most(SEC).when(&1), SEC);
    }
    let used_up = Bucket::new(limiter(0.0, 1).0);
    assert_eq!(used_up.when(&1), Duration::ZERO);
    assert_eq!(used_up.when(&1), Bucket::NEVER);
    assert_eq!(Bucket::NEVER.as_nanos(), i64::MAX as u128);
}

#[test]
fn bucket_is_by_count_and_counts_nothing() {
    let bucket = || Bucket::new(limiter(10.0, 1).0);
    assert!(!by_count(&bucket()).counts());
    assert!(!by_count(&bucket().at_most(SEC)).counts());
    let policy = Exponential::default().and(bucket());
    assert!(by_count(&policy).counts());
    assert_eq!(by_count(&policy).delay(0), 5 * MS);
    assert_eq!(by_count(&policy).delay(0), 100 * MS);
    assert_eq!(by_count(&policy).delay(10), 5120 * MS);
}

#[test]
fn controller_default_allows_ten_per_second_after_a_hundred() {
    let policy = controller_default();
    let waits: Vec<_> = (0..102).map(|key| policy.when(&key)).collect();
    assert!(waits[..100].iter().all(|&wait| wait == 5 * MS));
    assert!(waits[100..].iter().all(|&wait| wait <= 200 * MS));
    let shown = format!("{policy:?}");
    assert!(shown.contains("Limit(10.0), burst: 100"), "{shown}");
    assert!(policy.by_count().is_some());
}

#[test]
fn every_key_has_its_own_bucket() {
    let clock = FakeClock::new();
    let keyed = Keyed::with_clock(Limit::per_second(10.0), 1, clock.clone());
    let policy = PerKeyBucket::new(keyed);
    assert_eq!(delays(&policy, 3), millis(&[0, 100, 200]));
    assert_eq!(policy.when(&2), Duration::ZERO);
    policy.forget(&1);
    assert_eq!(policy.num_requeues(&1), 0);
    clock.advance(SEC);
    assert_eq!(policy.when(&1), Duration::ZERO);
    assert!(policy.by_count().is_none());
}

#[test]
fn per_key_bucket_without_tokens_waits_as_long_as_in_go() {
    let policy = PerKeyBucket::new(Keyed::new(Limit::per_second(10.0), 0));
    assert_eq!(policy.when(&1), Bucket::NEVER);
}
