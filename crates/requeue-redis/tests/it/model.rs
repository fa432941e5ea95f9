//! Random calls, compared with the store in memory.

use std::num::NonZeroU32;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use requeue::Finish;
use requeue_redis::{RedisStore, RedisStoreBuilder};
use requeue_store::{
    Add, Backoff, EngineClock, FinishRequest, Hold, Key, LeaseRequest, MemoryStore,
    Owner, Rate, RepliesExt, Stats, Store, When, Which,
};

use crate::support::invariants::check;
use crate::support::{self, connect, new_queue};

/// A pseudo-random number generator.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn key(&mut self) -> Key {
        support::key(&format!("k{}", self.below(6)))
    }

    fn keys(&mut self) -> Vec<Key> {
        (0..=self.below(4)).map(|_| self.key()).collect()
    }

    /// Returns a delay that hardly repeats: keys that are due at the same time have no order.
    fn delay(&mut self) -> Duration {
        Duration::from_micros(self.below(4) * 1_000_003 + self.below(1_000_000))
    }

    fn backoff(&mut self) -> Backoff {
        let rate = Rate {
            interval: Duration::from_millis(700),
            burst: NonZeroU32::new(2).unwrap(),
        };
        Backoff {
            base: Duration::from_micros(self.below(3) * 250_000 + self.below(1000)),
            max: Duration::from_secs(3),
            rate: (self.below(2) == 0).then_some(rate),
        }
    }

    fn add(&mut self) -> Add {
        let when = match self.below(4) {
            0 | 1 => When::Now,
            2 => When::After(self.delay()),
            _ => When::RateLimited(self.backoff()),
        };
        let revive_after = Duration::from_micros(self.below(2) * 1_500_017);
        let priority = self.priority();
        Add { priority, revive_after, ..Add::new(self.key(), when) }
    }

    fn priority(&mut self) -> i8 {
        let priorities = [0, 0, 0, 0, 1, -1, 100, -100];
        priorities[usize::try_from(self.below(8)).unwrap()]
    }

    fn finish(&mut self) -> Finish {
        match self.below(8) {
            0 | 1 => Finish::Done,
            2 => Finish::Succeed,
            3 => Finish::Retry,
            4 => Finish::RequeueAfter(self.delay()),
            5 => Finish::GiveUp,
            6 => Finish::RetryAfter(self.delay()),
            _ => Finish::Release,
        }
    }

    fn owner(&mut self) -> Owner {
        Owner::new(["host:1", "host:2"][usize::try_from(self.below(2)).unwrap()])
    }

    fn which(&mut self) -> Which {
        if self.below(2) == 0 { Which::All } else { Which::Keys(self.keys()) }
    }
}

/// The store and its model.
struct Pair {
    store: RedisStore,
    builder: RedisStoreBuilder,
    server: MultiplexedConnection,
    model: MemoryStore,
    clock: EngineClock,
    /// All leases so far, even finished ones.
    held: Vec<Hold>,
    seed: u64,
}

macro_rules! same {
    ($pair:ident, $call:ident($($arg:expr),*)) => {{
        let model = $pair.model.$call($($arg),*).await.unwrap();
        let store = $pair.store.$call($($arg),*).await.unwrap();
        assert_eq!(store, model, "seed {}: {}{:?}", $pair.seed, stringify!($call), ($($arg,)*));
        store
    }};
}

/// As `same`, for a batch.
macro_rules! same_each {
    ($pair:ident, $call:ident($($arg:expr),*)) => {{
        let model = $pair.model.$call($($arg),*).all().await.unwrap();
        let store = $pair.store.$call($($arg),*).all().await.unwrap();
        assert_eq!(store, model, "seed {}: {}{:?}", $pair.seed, stringify!($call), ($($arg,)*));
    }};
}

impl Pair {
    async fn step(&mut self, random: &mut Random) {
        // The short script for leases needs a time after the last token.
        self.clock.advance(Duration::from_micros(1));
        self.skip_turn_of_oldest();
        let max = NonZeroU32::new(3);
        match random.below(14) {
            0..=2 => {
                let adds: Vec<_> = (0..=random.below(4)).map(|_| random.add()).collect();
                same_each!(self, add(&adds));
            }
            3..=5 => self.lease(random).await,
            6..=7 => self.finish(random).await,
            8 => {
                let (owner, held) = (random.owner(), self.held.clone());
                same_each!(self, extend(&owner, &held, Duration::from_secs(2)));
            }
            9 => {
                let keys = random.keys();
                same_each!(self, remove(&keys));
            }
            10 => {
                let keys = random.keys();
                same_each!(self, forget(&keys));
            }
            11 => {
                same!(self, expire(max));
            }
            12 => self.operate(random).await,
            _ => self.clock.advance(Duration::from_micros(random.below(2_500_000))),
        }
        self.compare().await;
    }

    /// Advances the clock past the leases that go to the oldest key: stores choose these in
    /// different ways.
    fn skip_turn_of_oldest(&self) {
        while !(100..200).contains(&(self.clock.now().micros() % 256)) {
            self.clock.advance(Duration::from_micros(1));
        }
    }

    async fn lease(&mut self, random: &mut Random) {
        let request = LeaseRequest {
            owner: random.owner(),
            max: usize::try_from(random.below(4)).unwrap(),
            // The short script is only for leases of at least 20 seconds.
            lease: Duration::from_micros(
                1_900_000 + random.below(3) * 10_000_000 + random.below(99),
            ),
            max_deliveries: NonZeroU32::new(3),
        };
        let model = self.model.lease(&request).await.unwrap();
        let mut leased = self.store.lease(&request).await.unwrap();
        if !model.grants.is_empty() && leased.more_in == Some(Duration::ZERO) {
            leased.more_in = model.more_in;
        }
        assert_eq!(leased, model, "seed {}: {request:?}", self.seed);
        let holds = leased.grants.into_iter();
        self.held.extend(holds.map(|grant| Hold { key: grant.key, token: grant.token }));
    }

    async fn finish(&mut self, random: &mut Random) {
        let mut requests = Vec::new();
        for hold in self.held.iter().rev().take(4) {
            if random.below(2) == 0 {
                let (hold, finish) = (hold.clone(), random.finish());
                let (backoff, error) = (random.backoff(), "it: broke\n".into());
                requests.push(FinishRequest { hold, finish, backoff, error });
            }
        }
        same_each!(self, finish(&requests));
    }

    async fn operate(&mut self, random: &mut Random) {
        let (which, owner) = (random.which(), random.owner());
        match random.below(5) {
            0 => {
                same!(self, revive(&which));
            }
            1 => {
                same!(self, drop_dead(&which));
            }
            2 => same!(self, pause()),
            3 => same!(self, resume()),
            _ => {
                let held: Vec<_> = self.held.iter().rev().take(1).cloned().collect();
                same!(self, reclaim(&owner, &held));
            }
        }
    }

    async fn compare(&mut self) {
        let keys: Vec<_> = (0..6).map(|n| support::key(&format!("k{n}"))).collect();
        same_each!(self, look(&keys));
        assert_eq!(stats(&self.store).await, stats(&self.model).await);
        same!(self, failing(10));
        same!(self, dead(10));
        same!(self, workers());
        let context = format!("seed {}", self.seed);
        check(&mut self.server, &self.builder, &context).await;
    }
}

/// Stores may differ in which key is the oldest after priorities were raised.
async fn stats(store: &impl Store) -> Stats {
    let stats = store.stats().await.unwrap();
    Stats { oldest_ready: stats.oldest_ready.map(|_| Duration::ZERO), ..stats }
}

#[tokio::test]
async fn random_calls_have_the_answers_of_the_store_in_memory() {
    let Some(url) = support::url() else { return };
    let mut server = connect(&url).await;
    for seed in 1..=8 {
        let clock = EngineClock::new();
        let builder = new_queue(&url).clock(clock.clone());
        let store = builder.clone().open().await.unwrap();
        let model = MemoryStore::with_clock(clock.clone());
        let held = Vec::new();
        let mut pair = Pair { store, builder, server, model, clock, held, seed };
        let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ seed);
        for _ in 0..200 {
            pair.step(&mut random).await;
        }
        server = pair.server;
    }
}
