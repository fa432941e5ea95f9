//! Random histories on the store and on the [`Model`], with the same answers and the same
//! states after each step.
//!
//! `REQUEUE_SEED` adds a seed to the fixed ones.

use std::num::NonZeroU32;
use std::time::Duration;

use requeue::Finish;

use super::model::{
    ExpectedLease, KEYS, LEASE, MAX_DELIVERIES, Model, ModelPhase, ModelRecord, REVIVE,
};
use super::trial::{Trial, key, summary, worker};
use crate::{RepliesExt, 
    Add, Backoff, FinishRequest, Grant, Hold, Key, LeaseRequest, Look, Phase, Stats,
    Token, When, Which,
};

const SEEDS: [u64; 8] = [1, 2, 3, 5, 8, 13, 21, 34];
const STEPS: usize = 200;

/// The promised order of leases.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaseOrder {
    /// None: there are several partitions.
    Any,
    /// By priority, then first in, first out.
    Fifo,
}

pub(super) async fn random_histories_match_the_model(t: Trial) {
    replay(&t, LeaseOrder::Any).await;
}

/// One step. Keys are numbers.
#[derive(Clone, Debug)]
enum Op {
    Add(usize, When, i8),
    Lease(usize),
    Finish(usize, Finish, TokenKind),
    Extend(usize, TokenKind),
    Expire,
    Forget(usize),
    Remove(usize),
    Revive(usize),
    DropDead(usize),
    /// Reclaims all leases but that of this key.
    Reclaim(usize),
    Advance(Duration),
    SetBack(Duration),
    Pause,
    Resume,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum TokenKind {
    Current,
    Stale,
}

pub(super) async fn replay(t: &Trial, order: LeaseOrder) {
    let own = std::env::var("REQUEUE_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in SEEDS.into_iter().chain(own) {
        let mut model = Model::new(t.clock.now().micros());
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let mut history = Vec::new();
        for _ in 0..STEPS {
            let op = random.op();
            history.push(op.clone());
            if let Err(difference) = step(t, &mut model, &op, order).await {
                panic!("{difference}\nwith REQUEUE_SEED={seed}, after {history:#?}");
            }
        }
        clear(t, &mut model).await;
    }
}

/// Empties the queue for the next history.
async fn clear(t: &Trial, model: &mut Model) {
    let all = |op: fn(usize) -> Op| (0..KEYS).map(op);
    let end = |number| Op::Finish(number, Finish::Done, TokenKind::Current);
    let ops = all(end).chain(all(Op::Remove)).chain(all(Op::DropDead));
    for op in ops.chain(all(Op::Forget)).chain([Op::Resume]) {
        let cleared = step(t, model, &op, LeaseOrder::Any).await;
        cleared.unwrap_or_else(|difference| panic!("{difference}\nafter {op:?}"));
    }
}

/// Executes a step on both sides. Returns how they differ.
async fn step(
    t: &Trial,
    model: &mut Model,
    op: &Op,
    order: LeaseOrder,
) -> Result<(), String> {
    if let Op::Lease(max) = op {
        lease(t, model, *max, order).await?;
    } else {
        let is = store_answer(t, model, op).await;
        let should = model_answer(model, op);
        if is != should {
            return Err(format!("the store answered {is}, the rules say {should}"));
        }
    }
    model.wake();
    let looks = t.store.look(&names()).all().await.expect("look succeeds");
    for (number, look) in looks.iter().enumerate() {
        let record = &mut model.records[number];
        same_look(record, look, model.now)
            .map_err(|text| format!("key {number}: {text}"))?;
    }
    let counted = Stats { oldest_ready: None, ..t.stats().await };
    let should = model.stats();
    let text = || format!("the store counted {counted:?}, the rules say {should:?}");
    (counted == should).then_some(()).ok_or_else(text)
}

async fn lease(
    t: &Trial,
    model: &mut Model,
    max: usize,
    order: LeaseOrder,
) -> Result<(), String> {
    let request = LeaseRequest {
        owner: worker(),
        max,
        lease: Duration::from_micros(LEASE),
        max_deliveries: NonZeroU32::new(MAX_DELIVERIES),
    };
    let grants = t.lease_all(&request).await;
    model.expire();
    let should = if model.paused { 0 } else { model.stats().ready.min(max as u64) };
    if grants.len() as u64 != should {
        return Err(format!("{} keys were leased instead of {should}", grants.len()));
    }
    grants.iter().try_for_each(|grant| same_grant(model, grant, order))
}

fn same_grant(model: &mut Model, grant: &Grant, order: LeaseOrder) -> Result<(), String> {
    let number = number_of(&grant.key);
    let Some(expected) = model.grant(grant, number) else {
        return Err(format!("{grant:?} was not ready"));
    };
    if order == LeaseOrder::Fifo && !expected.in_order {
        return Err(format!("{grant:?} was leased out of order"));
    }
    let ModelRecord { deliveries, failures, .. } = model.records[number];
    let ExpectedLease { priority, waited, .. } = expected;
    let should = Grant { deliveries, failures, priority, waited, ..grant.clone() };
    let text = || format!("the store granted {grant:?}, the rules say {should:?}");
    (*grant == should).then_some(()).ok_or_else(text)
}

fn same_look(record: &mut ModelRecord, look: &Look, now: u64) -> Result<(), String> {
    if record.phase == ModelPhase::Absent && look.deliveries == 0 {
        // Whether the deliveries of an absent key are remembered is not specified.
        record.deliveries = 0;
    }
    let delayed = record.wake_at.map(|at| Duration::from_micros(at - now));
    let phase = match record.phase {
        ModelPhase::Absent => Phase::Absent,
        ModelPhase::Ready { .. } => Phase::Ready,
        ModelPhase::Held { token, dirty, .. } => {
            Phase::Processing { owner: worker(), token, dirty }
        }
        ModelPhase::Dead => Phase::Dead,
    };
    let ModelRecord { failures, deliveries, .. } = *record;
    let should = Look { phase, delayed, failures, deliveries };
    let same = look.phase == should.phase && summary(look) == summary(&should);
    same.then_some(()).ok_or_else(|| format!("{look:?}, the rules say {should:?}"))
}

async fn store_answer(t: &Trial, model: &Model, op: &Op) -> String {
    let expected = "the call succeeds";
    let store = &t.store;
    match op {
        Op::Add(number, when, priority) => {
            let (key, revive_after) = (name(*number), Duration::from_micros(REVIVE));
            let add = [Add { key, when: *when, priority: *priority, revive_after }];
            format!("{:?}", t.adds(&add).await[0])
        }
        Op::Finish(number, finish, token_kind) => {
            let hold = hold_of(model, *number, *token_kind);
            let request = FinishRequest::new(hold, *finish);
            format!("{:?}", t.finish_all(&[request]).await[0])
        }
        Op::Extend(number, token_kind) => {
            let (lease, held) =
                (Duration::from_micros(LEASE), [hold_of(model, *number, *token_kind)]);
            format!("{:?}", store.extend(&worker(), &held, lease).all().await.expect(expected))
        }
        Op::Expire => format!("{:?}", t.expire(Some(MAX_DELIVERIES)).await),
        Op::Forget(number) => {
            format!("{:?}", store.forget(&[name(*number)]).all().await.map(drop).expect(expected))
        }
        Op::Remove(number) => {
            format!("{:?}", store.remove(&[name(*number)]).all().await.expect(expected))
        }
        Op::Revive(number) => {
            let which = Which::Keys(vec![name(*number)]);
            format!("{:?}", store.revive(&which).await.expect(expected))
        }
        Op::DropDead(number) => {
            let which = Which::Keys(vec![name(*number)]);
            format!("{:?}", store.drop_dead(&which).await.expect(expected))
        }
        Op::Reclaim(number) => {
            let known = [hold_of(model, *number, TokenKind::Current)];
            format!("{:?}", store.reclaim(&worker(), &known).await.expect(expected))
        }
        Op::Advance(time) => format!("{:?}", t.clock.advance(*time)),
        Op::SetBack(time) => format!("{:?}", t.clock.set_back(*time)),
        Op::Pause => format!("{:?}", store.pause().await.expect(expected)),
        Op::Resume => format!("{:?}", store.resume().await.expect(expected)),
        Op::Lease(_) => unreachable!("leases are compared grant by grant"),
    }
}

fn model_answer(model: &mut Model, op: &Op) -> String {
    match op {
        Op::Add(number, when, priority) => {
            format!("{:?}", model.add(*number, *when, *priority))
        }
        Op::Finish(number, finish, token_kind) => {
            let hold = hold_of(model, *number, *token_kind);
            format!("{:?}", model.finish(&hold, *number, *finish))
        }
        Op::Extend(number, token_kind) => {
            let hold = hold_of(model, *number, *token_kind);
            format!("{:?}", [model.extend(&hold, *number)])
        }
        Op::Expire => format!("{:?}", model.expire()),
        Op::Forget(number) => format!("{:?}", model.forget(*number)),
        Op::Remove(number) => format!("{:?}", [model.remove(*number)]),
        Op::Revive(number) => format!("{:?}", model.revive(*number)),
        Op::DropDead(number) => format!("{:?}", model.take_from_dead(*number)),
        Op::Reclaim(number) => format!("{:?}", model.reclaim(*number)),
        Op::Advance(time) => format!("{:?}", model.now += micros(*time)),
        Op::SetBack(time) => format!("{:?}", model.now -= micros(*time)),
        Op::Pause => format!("{:?}", model.paused = true),
        Op::Resume => format!("{:?}", model.paused = false),
        Op::Lease(_) => unreachable!("leases are compared grant by grant"),
    }
}

fn hold_of(model: &Model, number: usize, token_kind: TokenKind) -> Hold {
    let token = model.held(number).map_or(Token(1), |(token, ..)| token);
    let token = if token_kind == TokenKind::Stale { Token(token.0 - 1) } else { token };
    Hold { key: name(number), token }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).expect("short")
}

fn name(number: usize) -> Key {
    key(&number.to_string())
}

fn names() -> Vec<Key> {
    (0..KEYS).map(name).collect()
}

fn number_of(key: &Key) -> usize {
    key.to_string().parse().expect("keys are numbers")
}

/// Marsaglia's xorshift: reproducible on every platform.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let limit = u64::try_from(limit).expect("small");
        usize::try_from((self.0 >> 11) % limit).expect("small")
    }

    /// Returns a time that often coincides with the end of a lease or a delay.
    fn time(&mut self) -> Duration {
        let times = [0, 1, 1_000, 4_999, 5_000, LEASE - 1, LEASE, 20_000, 1_000_000];
        Duration::from_micros(times[self.below(times.len())])
    }

    fn when(&mut self) -> When {
        match self.below(4) {
            0 | 1 => When::Now,
            2 => When::After(self.time()),
            _ => When::RateLimited(Backoff::default()),
        }
    }

    fn priority(&mut self) -> i8 {
        let priorities = [0, 0, 0, 0, 1, 7, -1, i8::MAX, i8::MIN];
        priorities[self.below(priorities.len())]
    }

    fn finish(&mut self) -> Finish {
        match self.below(9) {
            0 | 1 => Finish::Done,
            2 => Finish::Succeed,
            3 | 4 => Finish::Retry,
            5 => Finish::RequeueAfter(self.time()),
            6 => Finish::RetryAfter(self.time()),
            7 => Finish::GiveUp,
            _ => Finish::Release,
        }
    }

    fn token_kind(&mut self) -> TokenKind {
        if self.below(8) == 0 { TokenKind::Stale } else { TokenKind::Current }
    }

    fn op(&mut self) -> Op {
        let key = self.below(KEYS);
        match self.below(44) {
            0..12 => Op::Add(key, self.when(), self.priority()),
            12..19 => Op::Lease(1 + self.below(3)),
            19..26 => Op::Finish(key, self.finish(), self.token_kind()),
            26 => Op::Extend(key, self.token_kind()),
            27 | 28 => Op::Expire,
            29 => Op::Forget(key),
            30 => Op::Remove(key),
            31 => Op::Revive(key),
            32 => Op::DropDead(key),
            33 => Op::Reclaim(key),
            34 => Op::SetBack(self.time()),
            35 => Op::Pause,
            36 | 37 => Op::Resume,
            _ => Op::Advance(self.time()),
        }
    }
}
