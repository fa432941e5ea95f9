//! What tables with linear probing have in common.

/// Whether `home` lies after `gap` and not after `place`, counting past the end on from
/// the start: then what stands at `place` is found without passing the gap, and need not
/// move up into it.
#[inline]
pub(crate) fn is_between(gap: usize, home: usize, place: usize) -> bool {
    if gap <= place { gap < home && home <= place } else { gap < home || home <= place }
}
