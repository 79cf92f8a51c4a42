//! Gives a cache to its store under another name: the same bytes, moved to another file system or behind another
//! device.
//!
//! **The order.** The superblock that holds may be volatile, so the device is flushed first, and the other superblock
//! is made to say the same. Then each gets the new name in turn, with a flush between. The new one counts a start more,
//! so it holds as soon as it is whole and durable. A crash in between leaves the cache with the old name or with the
//! new one, and with all of its data.

use super::blocks::Blocks;
use super::error::{DeviceError, OpenError};
use super::format::{read_superblocks, write_superblocks};
use super::recovery::{probe, repair};
use super::superblock::{Found, Superblock};

/// Says durably, in both superblocks, that the cache on `device` is of `store`. Nothing else of it changes. A copy of
/// the device from before is older from now on, by its count of starts.
///
/// # Errors
/// There is no cache, or the device's; then the cache is of the old store or of the new one.
pub fn move_to_store(device: &mut dyn Blocks, store: [u8; 16]) -> Result<Superblock, OpenError> {
    device.flush().map_err(DeviceError::flush)?;
    let superblock = probe(device)?;
    repair(device, &superblock)?;
    let moved = Superblock { store, starts: superblock.starts.saturating_add(1), ..superblock };
    // Both say the same now: whichever is written first, the other one holds meanwhile.
    write_superblocks(device, &moved, 0)?;
    let (found, _) = read_superblocks(device)?;
    match found.iter().all(|found| *found == Found::Superblock(moved)) {
        true => Ok(moved),
        false => Err(DeviceError::write(std::io::Error::other("a superblock is not what was written")).into()),
    }
}
