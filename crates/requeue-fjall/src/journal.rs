//! The interface to the storage engine: ordered, atomic writes of groups of records.

use fjall::Slice;
use requeue_store::Error;

/// Sets the value of a record, or deletes the record if there is no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) name: Slice,
    pub(crate) value: Option<Slice>,
}

/// What a change survives once it is written. The stronger guarantee is the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Durability {
    /// In the operating system's buffers: survives the process.
    Buffered,
    /// On disk, with all earlier writes: survives a power failure.
    Durable,
}

/// Receives the name and the value of each stored record.
pub(crate) type Visitor<'a> = dyn FnMut(&[u8], &[u8]) -> Result<(), Error> + 'a;

/// Stores records.
pub(crate) trait Journal: Send + 'static {
    /// Visits all records, in any order.
    fn load(&mut self, visit: &mut Visitor<'_>) -> Result<(), Error>;

    /// Writes a group atomically: after a crash either all or none of it is there.
    ///
    /// The journal is not used again after an error.
    fn append(
        &mut self,
        group: &mut dyn Iterator<Item = Write>,
        durability: Durability,
    ) -> Result<(), Error>;

    /// Closes the files, so that they can be opened again.
    fn close(self: Box<Self>);
}
