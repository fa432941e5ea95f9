//! The store against the reference in memory: the same calls, the same answers.

use std::num::NonZeroU32;
use std::time::Duration;

use requeue::Finish;
use requeue_store::{
    Add, Backoff, EngineClock, FinishRequest, Hold, Key, LeaseRequest, MemoryStore,
    Owner, Rate, Stats, Store, When, Which,
};

use crate::server;

/// Numbers that are the same in every run with the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn key(&mut self) -> Key {
        server::key(&format!("k{}", self.roll(6)))
    }

    fn keys(&mut self) -> Vec<Key> {
        (0..=self.roll(4)).map(|_| self.key()).collect()
    }

    /// Different each time: keys that are due at the same time have no order.
    fn delay(&mut self) -> Duration {
        Duration::from_micros(self.roll(4) * 1_000_003 + self.roll(1_000_000))
    }

    fn backoff(&mut self) -> Backoff {
        let rate = Rate {
            interval: Duration::from_millis(700),
            burst: NonZeroU32::new(2).unwrap(),
        };
        Backoff {
            base: Duration::from_micros(self.roll(3) * 250_000 + self.roll(1000)),
            max: Duration::from_secs(3),
            rate: (self.roll(2) == 0).then_some(rate),
        }
    }

    fn add(&mut self) -> Add {
        let when = match self.roll(4) {
            0 | 1 => When::Now,
            2 => When::After(self.delay()),
            _ => When::RateLimited(self.backoff()),
        };
        let revive_after = Duration::from_micros(self.roll(2) * 1_500_017);
        let priority = self.priority();
        Add { priority, revive_after, ..Add::new(self.key(), when) }
    }

    fn priority(&mut self) -> i8 {
        let some = [0, 0, 0, 0, 1, -1, 100, -100];
        some[usize::try_from(self.roll(8)).unwrap()]
    }

    fn finish(&mut self) -> Finish {
        match self.roll(8) {
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
        Owner::new(["host:1", "host:2"][usize::try_from(self.roll(2)).unwrap()])
    }

    fn which(&mut self) -> Which {
        if self.roll(2) == 0 { Which::All } else { Which::Keys(self.keys()) }
    }
}

/// Both stores, and the leases that were ever given.
struct Pair<S> {
    store: S,
    model: MemoryStore,
    clock: EngineClock,
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

impl<S: Store> Pair<S> {
    async fn step(&mut self, dice: &mut Dice) {
        // Single keys have a script of their own if time has moved since the last lease.
        self.clock.advance(Duration::from_micros(1));
        self.skip_turns_of_the_oldest();
        let max = NonZeroU32::new(3);
        match dice.roll(14) {
            0..=2 => {
                let adds: Vec<_> = (0..=dice.roll(4)).map(|_| dice.add()).collect();
                same!(self, add(&adds));
            }
            3..=5 => self.lease(dice).await,
            6..=7 => self.finish(dice).await,
            8 => {
                let (owner, held) = (dice.owner(), self.held.clone());
                same!(self, extend(&owner, &held, Duration::from_secs(2)));
            }
            9 => {
                let keys = dice.keys();
                same!(self, remove(&keys));
            }
            10 => {
                let keys = dice.keys();
                same!(self, forget(&keys));
            }
            11 => {
                same!(self, expire(max));
            }
            12 => self.rarely(dice).await,
            _ => self.clock.advance(Duration::from_micros(dice.roll(2_500_000))),
        }
        self.compare().await;
    }

    /// Whose turn it is whatever its priority, each store finds out in its own way; here it
    /// is by round tokens.
    fn skip_turns_of_the_oldest(&self) {
        while !(100..200).contains(&(self.clock.now().micros() % 256)) {
            self.clock.advance(Duration::from_micros(1));
        }
    }

    async fn lease(&mut self, dice: &mut Dice) {
        let request = LeaseRequest {
            owner: dice.owner(),
            max: usize::try_from(dice.roll(4)).unwrap(),
            // Single keys have a script of their own if the lease is not a short one.
            lease: Duration::from_micros(
                1_900_000 + dice.roll(3) * 10_000_000 + dice.roll(99),
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

    async fn finish(&mut self, dice: &mut Dice) {
        let mut ends = Vec::new();
        for hold in self.held.iter().rev().take(4) {
            if dice.roll(2) == 0 {
                let (hold, finish) = (hold.clone(), dice.finish());
                let (backoff, error) = (dice.backoff(), "it: broke\n".into());
                ends.push(FinishRequest { hold, finish, backoff, error });
            }
        }
        same!(self, finish(&ends));
    }

    async fn rarely(&mut self, dice: &mut Dice) {
        let (which, owner) = (dice.which(), dice.owner());
        match dice.roll(5) {
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

    async fn compare(&self) {
        let keys: Vec<_> = (0..6).map(|n| server::key(&format!("k{n}"))).collect();
        same!(self, look(&keys));
        assert_eq!(counted(&self.store).await, counted(&self.model).await);
        same!(self, failing(10));
        same!(self, dead(10));
        same!(self, workers());
    }
}

/// Since when a key is ready that was raised is left open.
async fn counted(store: &impl Store) -> Stats {
    let stats = store.stats().await.unwrap();
    Stats { oldest_ready: stats.oldest_ready.map(|_| Duration::ZERO), ..stats }
}

#[tokio::test]
async fn random_calls_are_answered_as_the_reference_answers_them() {
    let Some(url) = server::url() else { return };
    for seed in 1..=8 {
        let clock = EngineClock::new();
        let store = server::open(&url, &clock).await;
        let model = MemoryStore::with_clock(clock.clone());
        let mut pair = Pair { store, model, clock, held: Vec::new(), seed };
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ seed);
        for _ in 0..200 {
            pair.step(&mut dice).await;
        }
    }
}
