//! The gauges of several queues with one name, as one.

use crate::Counts;
use crate::metrics::{Gauge, Gauges};

/// Merges the gauges of two queues of the same name.
pub(super) fn merge(one: Gauges, other: Gauges) -> Gauges {
    let shared = one.shared || other.shared;
    Gauges {
        keys: merge_counts(one.keys, other.keys, shared),
        shared,
        parked: one.parked + other.parked,
        unfinished: one.unfinished.saturating_add(other.unfinished),
        longest_running: one.longest_running.max(other.longest_running),
        extra: merge_extra(one.extra, other.extra),
    }
}

/// Adds up the keys of two queues, or takes the higher numbers if the keys are shared: one
/// queue then has read them later than the other.
fn merge_counts(
    one: Option<Counts>,
    other: Option<Counts>,
    shared: bool,
) -> Option<Counts> {
    let (Some(one), Some(other)) = (one, other) else { return one.or(other) };
    let merge = |one: usize, other: usize| {
        if shared { one.max(other) } else { one + other }
    };
    Some(Counts {
        ready: merge(one.ready, other.ready),
        delayed: merge(one.delayed, other.delayed),
        processing: merge(one.processing, other.processing),
        dirty: merge(one.dirty, other.dirty),
    })
}

fn merge_extra(mut one: Vec<Gauge>, other: Vec<Gauge>) -> Vec<Gauge> {
    for gauge in other {
        match one.iter_mut().find(|known| known.name == gauge.name) {
            Some(known) => known.value = known.value.max(gauge.value),
            None => one.push(gauge),
        }
    }
    one
}
