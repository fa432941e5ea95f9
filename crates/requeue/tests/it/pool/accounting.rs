//! A pool that is stopped at any moment accounts for every key.
//!
//! Each round adds keys while eight workers run, and drains or stops the pool at a random
//! deadline. Each key that the queue accepted then succeeded, or is in one of the two lists
//! of `Stopped`. No key is in both, since each is added once.

use std::collections::HashSet;
use std::panic::resume_unwind;
use std::thread;

use requeue::pool::Stopped;

use super::*;

const WORKERS: usize = 8;
const KEYS: u32 = 40;

/// Pseudo-random numbers, with the constants of Knuth's MMIX.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// The keys that succeeded.
#[derive(Clone, Default)]
struct Successes(Arc<Mutex<HashSet<u32>>>);

impl Successes {
    /// Runs a key. One of four succeeds at once, one is requeued, one fails and one panics;
    /// the last two succeed if `lucky`.
    fn run(&self, key: u32, lucky: bool) -> Result<Finish, &'static str> {
        match key % 4 {
            1 => return Ok(Finish::RequeueAfter(Duration::from_micros(50))),
            2 if !lucky => return Err("fails"),
            // Unwinds without calling the panic hook, which would print.
            3 if !lucky => resume_unwind(Box::new("panics")),
            _ => {}
        }
        self.0.lock().unwrap().insert(key);
        Ok(Finish::Succeed)
    }
}

fn quick_retries() -> Queue<u32> {
    let micros = Duration::from_micros;
    Queue::builder().retry(Exponential::new(micros(5), micros(100))).build()
}

/// Adds keys from another thread, ends the pool, and looks for each key.
fn account(pool: &Handle<Queue<u32>>, successes: &Successes, random: &mut Random) {
    let queue = pool.queue().clone();
    queue.add_all(0..KEYS / 2).unwrap();
    let adding = thread::spawn(move || {
        let added = |key: &u32| queue.add(*key).is_ok();
        (KEYS / 2..KEYS).filter(added).collect::<Vec<_>>()
    });
    let within = Duration::from_micros(random.below(300));
    let stopped = match random.below(2) {
        0 => pool.drain_blocking(within),
        _ => pool.stop_blocking(within),
    };
    let mut accepted = adding.join().unwrap();
    accepted.extend(0..KEYS / 2);
    assert_accounted(&accepted, &stopped, successes);
    pool.join_blocking();
}

#[track_caller]
fn assert_accounted(accepted: &[u32], stopped: &Stopped<u32>, successes: &Successes) {
    let Stopped { left, still_running, .. } = stopped;
    let successes = successes.0.lock().unwrap();
    let known = |key| {
        successes.contains(key) || left.contains(key) || still_running.contains(key)
    };
    assert!(left.iter().all(|key| !still_running.contains(key)), "{stopped:?}");
    let lost: Vec<_> = accepted.iter().filter(|key| !known(key)).collect();
    assert!(lost.is_empty(), "lost {lost:?}, in time: {}", stopped.in_time());
}

/// Every fourth drain with eight workers and a short deadline lost a key: one that a worker
/// had leased and not registered yet, or had just returned.
#[test]
fn threads_lose_no_key_at_any_deadline() {
    let mut random = Random(1);
    for _ in 0..500 {
        let successes = Successes::default();
        let (seen, luck) = (successes.clone(), Mutex::new(Random(random.below(1000))));
        let pool =
            Pool::new(quick_retries()).workers(WORKERS).spawn_threads(move |run| {
                let lucky = luck.lock().unwrap().below(3) == 0;
                thread::yield_now();
                seen.run(*run.key(), lucky)
            });
        account(&pool.unwrap(), &successes, &mut random);
    }
}

#[cfg(feature = "tokio")]
#[test]
fn tasks_lose_no_key_at_any_deadline() {
    let mut random = Random(2);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build();
    let runtime = runtime.unwrap();
    let _entered = runtime.enter();
    for _ in 0..500 {
        let successes = Successes::default();
        let (seen, luck) = (successes.clone(), Mutex::new(Random(random.below(1000))));
        let pool = Pool::new(quick_retries()).workers(WORKERS).spawn_tasks(move |run| {
            let lucky = luck.lock().unwrap().below(3) == 0;
            let seen = seen.clone();
            async move {
                tokio::task::yield_now().await;
                seen.run(*run.key(), lucky)
            }
        });
        account(&pool.unwrap(), &successes, &mut random);
    }
}
