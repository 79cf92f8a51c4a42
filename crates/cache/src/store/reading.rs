//! Reading what a cache knows of itself from a device that may have bad sectors.
//!
//! **The rule.** What cannot be read at once is read block by block, a few times. A block that stays unreadable is
//! taken for a damaged one: it is zeroes, of which no checksum is right. So a bad sector costs what stands in it and
//! not the whole cache.
//!
//! **The complication.** A device that is failing as a whole looks like one with many bad sectors. With losses
//! accepted, a start would give up data that the device can read again a minute later. So only what a device says of
//! single blocks counts, and only of so many.

use super::blocks::Blocks;
use super::bytes::BLOCK_BYTES;
use super::error::DeviceError;
use rustix::io::Errno;
use std::io;

/// Tries to read a block by itself: a transient fault is over by then, any other stays.
const TRIES: u32 = 3;
/// Most unreadable blocks (ours): the few of an ageing device, each of which may take seconds to fail.
const UNREADABLE_MAX: usize = 64;

/// The blocks that could not be read, and the device's error for the first one.
#[derive(Debug, Default)]
pub(super) struct Unreadable {
    blocks: Vec<u64>,
    error: Option<io::Error>,
}

impl Unreadable {
    pub fn count(&self) -> u32 {
        self.blocks.len() as u32
    }

    pub fn contains(&self, block: u64) -> bool {
        self.blocks.contains(&block)
    }

    /// The device's error for the first unreadable block, if there is one.
    pub fn into_error(self) -> Option<DeviceError> {
        self.error.map(DeviceError::read)
    }

    /// Reads from block `first` on; unreadable blocks become zeroes, and are noted.
    ///
    /// # Errors
    /// The device's error, if it does not concern single blocks, or concerns too many.
    pub fn read(&mut self, device: &mut dyn Blocks, first: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        match device.read(first, into) {
            Err(error) if is_of_a_block(&error) => {}
            read => return read.map_err(DeviceError::read),
        }
        for (block, into) in (first..).zip(into.chunks_exact_mut(BLOCK_BYTES)) {
            let mut read = device.read(block, into);
            for _ in 1..TRIES {
                if read.is_err() {
                    read = device.read(block, into);
                }
            }
            let Err(error) = read else { continue };
            if !is_of_a_block(&error) || self.blocks.len() == UNREADABLE_MAX {
                return Err(DeviceError::read(error));
            }
            into.fill(0);
            self.blocks.push(block);
            self.error.get_or_insert(error);
        }
        Ok(())
    }
}

/// Whether an error may be of the blocks that were read, and not of the device. Linux's error for a bad sector depends
/// on the path to it.
fn is_of_a_block(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::IO | Errno::NODATA | Errno::ILSEQ))
}
