//! Making a cache on a device, and giving one up.
//!
//! Both begin with the same two steps: each superblock in turn gets a new uuid, and a state that says that there is no
//! cache. From then on nothing that the device still holds can be taken for a part of a cache, and it need not be
//! erased.

use super::blocks::Blocks;
use super::bytes::{BLOCK_BYTES, Block};
use super::error::{DeviceError, FormatError};
use super::layout::Layout;
use super::map::{self, PageHead};
use super::reading::Unreadable;
use super::superblock::{Found, Superblock, page_digest};
use crate::units::BLOCKS_MAX;

/// Pages that are written at once: 1 MiB.
pub(super) const PAGES_AT_ONCE: usize = 256;

/// The store of a cache, so that the cache is not used with another store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The store's name, or what the host makes of it.
    pub store: [u8; 16],
    /// Blocks of the store, below [`BLOCKS_MAX`](crate::units::BLOCKS_MAX).
    pub store_blocks: u64,
}

/// Makes an empty cache; whatever was in the device is gone. `uuid` is random.
///
/// # Errors
/// The device's, that it is too small for `layout`, or that the store is too large for any cache; then nothing was
/// written.
pub fn format(
    device: &mut dyn Blocks,
    identity: Identity,
    uuid: [u8; 16],
    layout: Layout,
) -> Result<Superblock, FormatError> {
    if identity.store_blocks >= BLOCKS_MAX {
        return Err(FormatError::StoreTooLarge { blocks: identity.store_blocks });
    }
    let needs = layout.blocks();
    if needs > device.blocks() {
        return Err(FormatError::TooSmall { blocks: device.blocks(), needs });
    }
    let given_up = give_up(device, identity, uuid, layout)?;
    let generation = given_up.generation + 1;
    let mut map_digest = 0;
    // The second slots hold in no case; but a slot that was never written could not be told from one that was damaged.
    for (slot, generation) in [generation, given_up.generation].into_iter().enumerate() {
        write_pages(device, &layout, slot, |page, block| {
            map::encode(block, &uuid, PageHead { generation, page, sequence: 0 }, |_| None);
        })?;
    }
    (0..layout.map_pages()).for_each(|page| map_digest ^= page_digest(page, generation));
    device.flush().map_err(DeviceError::flush)?;
    let ready = Superblock { generation, map_digest, is_ready: true, ..given_up };
    write_superblocks(device, &ready, 0)?;
    Ok(ready)
}

/// Writes all pages of a slot; `encode` makes each.
fn write_pages(
    device: &mut dyn Blocks,
    layout: &Layout,
    slot: usize,
    mut encode: impl FnMut(u32, &mut Block),
) -> Result<(), DeviceError> {
    let mut pages = Vec::new();
    for first in (0..layout.map_pages()).step_by(PAGES_AT_ONCE) {
        pages.clear();
        for page in first..layout.map_pages().min(first + PAGES_AT_ONCE as u32) {
            let mut block: Block = [0; BLOCK_BYTES];
            encode(page, &mut block);
            pages.extend_from_slice(&block);
        }
        device.write(layout.map_block(slot, first), &pages).map_err(DeviceError::write)?;
    }
    Ok(())
}

/// Gives up what is on the device: no cache is found there any more. `uuid` is random.
///
/// # Errors
/// The device's.
pub fn give_up(
    device: &mut dyn Blocks,
    identity: Identity,
    uuid: [u8; 16],
    layout: Layout,
) -> Result<Superblock, DeviceError> {
    let (found, _) = read_superblocks(device)?;
    let newest = newest(&found);
    // A spent superblock is refused as long as it is there.
    let generation = newest.map_or(1, |(_, newest)| if newest.is_spent() { 1 } else { newest.generation + 1 });
    let given_up = Superblock {
        uuid,
        store: identity.store,
        store_blocks: identity.store_blocks,
        layout,
        starts: 0,
        generation,
        journal_sequence: 1,
        journal_previous: 0,
        map_digest: 0,
        is_ready: false,
    };
    // The superblock that does not hold is written first: until the new one is durable, the old one holds. The process
    // that wrote the old one may have been killed before that was durable: hence the flush.
    device.flush().map_err(DeviceError::flush)?;
    write_superblocks(device, &given_up, newest.map_or(0, |(slot, _)| 1 - slot))?;
    Ok(given_up)
}

/// Writes both, `first` first.
pub(super) fn write_superblocks(
    device: &mut dyn Blocks,
    superblock: &Superblock,
    first: u64,
) -> Result<(), DeviceError> {
    let block = superblock.encode();
    for slot in [first, 1 - first] {
        device.write(slot, &block).map_err(DeviceError::write)?;
        device.flush().map_err(DeviceError::flush)?;
    }
    Ok(())
}

/// Both superblocks, and the unreadable blocks: an unreadable superblock counts as damaged.
pub(super) fn read_superblocks(device: &mut dyn Blocks) -> Result<([Found; 2], Unreadable), DeviceError> {
    let (mut found, mut unreadable) = ([Found::Foreign; 2], Unreadable::default());
    for (slot, found) in (0..).zip(&mut found) {
        let mut block: Block = [0; BLOCK_BYTES];
        unreadable.read(device, slot, &mut block)?;
        *found = if unreadable.contains(slot) { Found::Damaged } else { Superblock::decode(&block) };
    }
    Ok((found, unreadable))
}

/// The superblock that holds, and which of the two it is.
pub(super) fn newest(found: &[Found; 2]) -> Option<(u64, Superblock)> {
    let superblocks = found.iter().enumerate().filter_map(|(slot, found)| match found {
        Found::Superblock(superblock) => Some((slot as u64, *superblock)),
        Found::Version(_) | Found::Damaged | Found::Foreign => None,
    });
    // Superblocks of one generation differ where a crash came between the two writes that count a start.
    superblocks.max_by_key(|(_, superblock)| (superblock.generation, superblock.starts))
}
