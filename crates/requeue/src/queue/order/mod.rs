//! In which order ready keys are handed out.

/// A ready key, as an [`Order`] knows it.
///
/// A ticket stands for one ready key for as long as that key is ready; after it was
/// popped or removed, the same ticket may stand for another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub(crate) u32);
