//! What the store needs of an engine: to keep groups of records in the order in which they
//! were given, and to tell them again.

use fjall::Slice;
use requeue_store::Error;

/// One record to be kept under its name, or to be dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) name: Slice,
    pub(crate) value: Option<Slice>,
}

/// How far a group must get before it counts as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// It is with the system, and outlives the process.
    System,
    /// It is on disk, with all that was given before.
    Disk,
}

/// What takes each record that was kept: its name and its value.
pub(crate) type Visitor<'a> = dyn FnMut(&[u8], &[u8]) -> Result<(), Error> + 'a;

/// Where records are kept.
pub(crate) trait Journal: Send + 'static {
    /// Tells all records, in any order.
    fn load(&mut self, visit: &mut Visitor<'_>) -> Result<(), Error>;

    /// Keeps a group: all of it, or nothing if the process dies meanwhile. After an error
    /// the journal is not used again.
    fn append(
        &mut self,
        group: &mut dyn Iterator<Item = Write>,
        reach: Reach,
    ) -> Result<(), Error>;

    /// Lets go of the files, for others to open.
    fn close(self: Box<Self>);
}
