//! The device as a start and the making of a cache see it.

use std::io;

/// A device, one call after the other, though not always from the same thread. The numbers are of blocks of
/// [`BLOCK_BYTES`](super::BLOCK_BYTES).
pub trait Blocks: Send {
    /// How many there are.
    fn blocks(&self) -> u64;

    /// Reads from block `first` on.
    ///
    /// # Errors
    /// What the device says.
    fn read(&mut self, first: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes from block `first` on.
    ///
    /// # Errors
    /// What the device says.
    fn write(&mut self, first: u64, from: &[u8]) -> io::Result<()>;

    /// Makes all earlier writes durable.
    ///
    /// # Errors
    /// What the device says.
    fn flush(&mut self) -> io::Result<()>;
}
