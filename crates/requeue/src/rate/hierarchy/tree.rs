//! Who gets which of the tokens that flow into a tree; time comes in as an argument.
//!
//! Tokens flow in at the root, at its rate. Each node passes the guaranteed rates of its
//! children on to them and keeps the rest in a pool of its own. A pool that is full spills
//! into the pool of the parent, and the root's spills away. A node takes tokens from its
//! own pool first, then from those of its ancestors, nearest first: that is borrowing, and
//! what is borrowed is what others left.
//!
//! # Invariants
//!
//! 1. The pools of a tree gain no more than the rate of the root, and hold no more than
//!    its burst: a child's rate and burst come out of those of its parent.
//! 2. Nobody but a node and its descendants takes from its pool. So what is guaranteed is
//!    there, whatever the others do.
//! 3. A parent comes before its children in `nodes`.
//! 4. Arithmetic is in whole grains and exact: many small steps of time make the same of a
//!    tree as a large one.

use super::Share;
use crate::rate::error::InvalidShare;
use crate::rate::limit::Limit;
use crate::rate::moment::Nanos;

/// So many of these make a token. A rate of a billionth of a token a second is one of
/// these in a nanosecond.
const GRAINS: u128 = 1_000_000_000_000_000_000;

/// The nodes of a tree, the root first.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    nodes: Vec<Node>,
}

#[derive(Clone, Debug)]
struct Node {
    /// `None` for the root.
    parent: Option<usize>,
    pool: Pool,
    /// What passes through this node at the most, if that is bounded.
    ceil: Option<Pool>,
}

/// A bucket of grains. A node's pool gains what its children are not promised.
#[derive(Clone, Copy, Debug)]
struct Pool {
    rate: u128,
    cap: u128,
    grains: u128,
}

impl Pool {
    fn full(limit: Limit, burst: u32) -> Self {
        let cap = u128::from(burst) * GRAINS;
        Self { rate: grains_per_nano(limit), cap, grains: cap }
    }

    fn gain(&mut self, span: u128) {
        self.grains = self.grains.saturating_add(self.rate.saturating_mul(span));
    }

    /// Takes out what does not fit.
    fn spill(&mut self) -> u128 {
        let kept = self.grains.min(self.cap);
        std::mem::replace(&mut self.grains, kept) - kept
    }
}

/// Billionths of a token a second, rounded down; more than 2^64 tokens a second count as
/// that many.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a limit is never negative, and the cast saturates"
)]
fn grains_per_nano(limit: Limit) -> u128 {
    const MOST: u128 = 1_000_000_000 << 64;
    ((limit.events_per_second() * 1e9) as u128).min(MOST)
}

fn tokens(grains: u128) -> u32 {
    u32::try_from(grains / GRAINS).unwrap_or(u32::MAX)
}

impl Tree {
    /// A tree of a root with a full pool.
    pub(super) fn new(limit: Limit, burst: u32) -> Self {
        let pool = Pool::full(limit, burst);
        Self { nodes: vec![Node { parent: None, pool, ceil: None }] }
    }

    /// Adds a child to `parent`. Its tokens come out of the pool of the parent.
    pub(super) fn add(
        &mut self,
        parent: usize,
        share: Share,
    ) -> Result<usize, InvalidShare> {
        let mut pool = Pool::full(share.limit, share.burst);
        share.check_ceil()?;
        let ceil = share.ceil.map(|(limit, burst)| Pool::full(limit, burst));
        let lender = &mut self.nodes[parent].pool;
        let rate = lender.rate.checked_sub(pool.rate).ok_or_else(|| {
            InvalidShare::LimitTaken { asked: share.limit, left: limit(lender.rate) }
        })?;
        let cap = lender.cap.checked_sub(pool.cap).ok_or_else(|| {
            InvalidShare::BurstTaken { asked: share.burst, left: tokens(lender.cap) }
        })?;
        pool.grains = pool.cap.min(lender.grains);
        *lender = Pool { rate, cap, grains: lender.grains - pool.grains };
        self.nodes.push(Node { parent: Some(parent), pool, ceil });
        Ok(self.nodes.len() - 1)
    }

    /// Lets time pass.
    pub(super) fn advance(&mut self, span: Nanos) {
        let span = u128::try_from(span).unwrap_or(0);
        // Children first (invariant 3), so that a parent has what they spill.
        for i in (0..self.nodes.len()).rev() {
            let node = &mut self.nodes[i];
            node.pool.gain(span);
            if let Some(ceil) = &mut node.ceil {
                ceil.gain(span);
                ceil.spill();
            }
            let spilt = node.pool.spill();
            if let Some(parent) = node.parent {
                let pool = &mut self.nodes[parent].pool;
                pool.grains = pool.grains.saturating_add(spilt);
            }
        }
    }

    /// Takes `n` tokens for `node` if it may have them now, and says whether.
    pub(super) fn take(&mut self, node: usize, n: u32) -> bool {
        if self.tokens(node) < n {
            return false;
        }
        let grains = u128::from(n) * GRAINS;
        let (mut missing, mut next) = (grains, Some(node));
        while let Some(i) = next {
            let Node { parent, pool, ceil } = &mut self.nodes[i];
            let taken = missing.min(pool.grains);
            pool.grains -= taken;
            missing -= taken;
            if let Some(ceil) = ceil {
                ceil.grains -= grains;
            }
            next = *parent;
        }
        debug_assert_eq!(missing, 0, "what was available could be taken");
        true
    }

    /// The grains that `node` may have now.
    fn available(&self, node: usize) -> u128 {
        self.reach(node, |pool| pool.grains)
    }

    /// The whole tokens that `node` may have now.
    pub(super) fn tokens(&self, node: usize) -> u32 {
        tokens(self.available(node))
    }

    /// The most tokens that `node` can ever have at once.
    pub(super) fn most(&self, node: usize) -> u32 {
        tokens(self.reach(node, |pool| pool.cap))
    }

    /// The sum over the pools from `node` to the root, cut by the ceilings on the way.
    fn reach(&self, node: usize, of: impl Fn(&Pool) -> u128) -> u128 {
        let (mut sum, mut least, mut next) = (0_u128, u128::MAX, Some(node));
        while let Some(i) = next {
            let Node { parent, pool, ceil } = &self.nodes[i];
            sum = sum.saturating_add(of(pool));
            least = ceil.as_ref().map_or(least, |ceil| least.min(of(ceil)));
            next = *parent;
        }
        sum.min(least)
    }

    /// How long until `node` may have `n` tokens, if nobody takes any meanwhile; `None` if
    /// never.
    ///
    /// What is available only grows with time, so it can be searched for (invariant 4).
    pub(super) fn wait(&self, node: usize, n: u32) -> Option<Nanos> {
        let mut scratch = self.clone();
        let mut has_after = |span: Nanos| {
            scratch.nodes.clone_from(&self.nodes);
            scratch.advance(span);
            scratch.tokens(node) >= n
        };
        if has_after(0) {
            return Some(0);
        }
        let late = (0..62).map(|bit| 1 << bit).find(|&span| has_after(span));
        let (mut early, mut late) = late.map(|span| (span / 2, span))?;
        while late - early > 1 {
            let middle = early + (late - early) / 2;
            if has_after(middle) { late = middle } else { early = middle }
        }
        Some(late)
    }

    /// Panics unless the pools hold no more than `burst` and gain no more than `limit`.
    #[cfg(test)]
    pub(super) fn check(&self, limit: Limit, burst: u32) {
        let root = Pool::full(limit, burst);
        let pools = || self.nodes.iter().map(|node| node.pool);
        assert_eq!(pools().map(|pool| pool.rate).sum::<u128>(), root.rate, "invariant 1");
        assert_eq!(pools().map(|pool| pool.cap).sum::<u128>(), root.cap, "invariant 1");
        assert!(
            pools().all(|pool| pool.grains <= pool.cap),
            "a pool spills what is over"
        );
        for (i, node) in self.nodes.iter().enumerate() {
            assert!(node.parent.is_none_or(|parent| parent < i), "invariant 3");
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "for a message")]
fn limit(grains_per_nano: u128) -> Limit {
    Limit::per_second(grains_per_nano as f64 / 1e9)
}
