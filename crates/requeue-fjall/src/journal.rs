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

/// Why a group was not written.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// The disk is full. Earlier groups are not affected.
    Full(Error),
    /// Any other error. The content of the disk is unknown.
    Failed(Error),
}

/// Receives the name and the value of each stored record.
pub(crate) type Visitor<'a> = dyn FnMut(&[u8], &[u8]) -> Result<(), Error> + 'a;

/// Stores records.
pub(crate) trait Journal: Send + 'static {
    /// Visits all records, in any order.
    fn load(&mut self, visit: &mut Visitor<'_>) -> Result<(), Error>;

    /// Writes a group atomically: after a crash either all or none of it is there.
    ///
    /// After [`WriteError::Full`], the journal must be [reopened](Self::reopen) before the
    /// group is written again. After [`WriteError::Failed`], it is not used any more.
    fn append(
        &mut self,
        group: &mut dyn Iterator<Item = Write>,
        durability: Durability,
    ) -> Result<(), WriteError>;

    /// Closes the files and opens them again, which removes a partly written group.
    fn reopen(&mut self) -> Result<(), WriteError>;

    /// Reserves disk space for a group, unless it is reserved. Returns whether it is.
    fn reserve(&mut self) -> bool;

    /// Frees the reserved disk space.
    fn release(&mut self);

    /// Closes the files, so that they can be opened again.
    fn close(self: Box<Self>);
}
