//! The distribution of tokens in a tree; time is an argument.
//!
//! Tokens flow in at the root, at its rate. Each node passes the guaranteed rates of its
//! children on to them and keeps the rest in its own bucket. A full bucket spills into the
//! bucket of the parent, and the root's spills away. A node takes tokens from its own bucket
//! first, then from those of its ancestors, nearest first. That is borrowing.
//!
//! # Invariants
//!
//! 1. The buckets of a tree together gain no more than the rate of the root, and hold no more
//!    than its burst: the rate and burst of a child are taken from its parent.
//! 2. Only a node and its descendants take from its bucket. So guaranteed tokens are always
//!    available.
//! 3. A parent comes before its children in `nodes`.
//! 4. Arithmetic is in whole grains and exact: many small steps of time have the same effect
//!    as a large one.

use super::Share;
use crate::rate::error::InvalidShare;
use crate::rate::limit::Limit;
use crate::rate::moment::Nanos;

/// Grains per token. A rate of one billionth of a token per second is one grain per
/// nanosecond.
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
    bucket: GrainBucket,
    /// The upper bound of what passes through this node, if there is one.
    ceil: Option<GrainBucket>,
}

/// A bucket of grains. It gains what is not guaranteed to the children of its node.
#[derive(Clone, Copy, Debug)]
struct GrainBucket {
    rate: u128,
    cap: u128,
    grains: u128,
}

impl GrainBucket {
    fn full(limit: Limit, burst: u32) -> Self {
        let cap = u128::from(burst) * GRAINS;
        Self { rate: grains_per_nano(limit), cap, grains: cap }
    }

    fn gain(&mut self, span: u128) {
        self.grains = self.grains.saturating_add(self.rate.saturating_mul(span));
    }

    /// Removes and returns the grains that do not fit.
    fn spill(&mut self) -> u128 {
        let kept = self.grains.min(self.cap);
        std::mem::replace(&mut self.grains, kept) - kept
    }
}

/// Returns billionths of a token per second, rounded down and at most 2^64 tokens per second.
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
    /// Returns a tree of a root with a full bucket.
    pub(super) fn new(limit: Limit, burst: u32) -> Self {
        let bucket = GrainBucket::full(limit, burst);
        Self { nodes: vec![Node { parent: None, bucket, ceil: None }] }
    }

    /// Adds a child to `parent`. Its tokens are taken from the bucket of the parent.
    pub(super) fn add(
        &mut self,
        parent: usize,
        share: Share,
    ) -> Result<usize, InvalidShare> {
        let mut bucket = GrainBucket::full(share.limit, share.burst);
        share.check_ceil()?;
        let ceil = share.ceil.map(|ceil| GrainBucket::full(ceil.limit, ceil.burst));
        let lender = &mut self.nodes[parent].bucket;
        let rate = lender.rate.checked_sub(bucket.rate).ok_or_else(|| {
            InvalidShare::LimitTaken { asked: share.limit, left: limit(lender.rate) }
        })?;
        let cap = lender.cap.checked_sub(bucket.cap).ok_or_else(|| {
            InvalidShare::BurstTaken { asked: share.burst, left: tokens(lender.cap) }
        })?;
        bucket.grains = bucket.cap.min(lender.grains);
        *lender = GrainBucket { rate, cap, grains: lender.grains - bucket.grains };
        self.nodes.push(Node { parent: Some(parent), bucket, ceil });
        Ok(self.nodes.len() - 1)
    }

    /// Lets time pass.
    pub(super) fn advance(&mut self, span: Nanos) {
        let span = u128::try_from(span).unwrap_or(0);
        // Children first (invariant 3), so that a parent gets what they spill.
        for i in (0..self.nodes.len()).rev() {
            let node = &mut self.nodes[i];
            node.bucket.gain(span);
            if let Some(ceil) = &mut node.ceil {
                ceil.gain(span);
                ceil.spill();
            }
            let spilt = node.bucket.spill();
            if let Some(parent) = node.parent {
                let bucket = &mut self.nodes[parent].bucket;
                bucket.grains = bucket.grains.saturating_add(spilt);
            }
        }
    }

    /// Takes `n` tokens for `node` if they are available. Returns whether it did.
    pub(super) fn take(&mut self, node: usize, n: u32) -> bool {
        if self.tokens(node) < n {
            return false;
        }
        let grains = u128::from(n) * GRAINS;
        let (mut missing, mut next) = (grains, Some(node));
        while let Some(i) = next {
            let Node { parent, bucket, ceil } = &mut self.nodes[i];
            let taken = missing.min(bucket.grains);
            bucket.grains -= taken;
            missing -= taken;
            if let Some(ceil) = ceil {
                ceil.grains -= grains;
            }
            next = *parent;
        }
        debug_assert_eq!(missing, 0, "available tokens can be taken");
        true
    }

    /// Returns the grains that are available to `node`.
    fn available(&self, node: usize) -> u128 {
        self.reach(node, |bucket| bucket.grains)
    }

    /// Returns the whole tokens that are available to `node`.
    pub(super) fn tokens(&self, node: usize) -> u32 {
        tokens(self.available(node))
    }

    /// Returns the largest number of tokens that `node` can ever have at once.
    pub(super) fn max_tokens(&self, node: usize) -> u32 {
        tokens(self.reach(node, |bucket| bucket.cap))
    }

    /// Returns the sum over the buckets from `node` to the root, bounded by the ceilings.
    fn reach(&self, node: usize, of: impl Fn(&GrainBucket) -> u128) -> u128 {
        let (mut sum, mut least, mut next) = (0_u128, u128::MAX, Some(node));
        while let Some(i) = next {
            let Node { parent, bucket, ceil } = &self.nodes[i];
            sum = sum.saturating_add(of(bucket));
            least = ceil.as_ref().map_or(least, |ceil| least.min(of(ceil)));
            next = *parent;
        }
        sum.min(least)
    }

    /// Returns how long `n` tokens for `node` take to come, if no others are taken meanwhile.
    ///
    /// Available tokens only grow with time (invariant 4), so this is a binary search. Returns
    /// `None` if they never come.
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

    /// Panics unless the buckets hold at most `burst` and gain at most `limit`.
    #[cfg(test)]
    pub(super) fn check(&self, limit: Limit, burst: u32) {
        let root = GrainBucket::full(limit, burst);
        let buckets = || self.nodes.iter().map(|node| node.bucket);
        assert_eq!(
            buckets().map(|bucket| bucket.rate).sum::<u128>(),
            root.rate,
            "invariant 1"
        );
        assert_eq!(
            buckets().map(|bucket| bucket.cap).sum::<u128>(),
            root.cap,
            "invariant 1"
        );
        assert!(
            buckets().all(|bucket| bucket.grains <= bucket.cap),
            "a full bucket spills"
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
