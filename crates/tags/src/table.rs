//! The table of tags for the server of the device: reading takes no system call and no lock.
//!
//! One entry stands for 4 KiB. If the device has more blocks than the table has entries, several blocks share one, and
//! the entry names its block. A look-up of another block finds nothing, never another block's tag. Blocks one behind
//! the other have entries one behind the other, but each stretch as long as the table begins elsewhere in it. File
//! systems put bitmaps and the like at the same places of groups with a power of two as length, and these would all
//! share.
//!
//! **Order.** A program in the kernel writes a tag before the I/O is queued, so the tag of an arrived request is
//! complete. The queues on the way and the system call that delivers the request order both. A sequence lock guards the
//! rest (a block written again while its last tag is being read). The program makes the sequence odd by a compare and
//! swap, writes, and makes it even by another, both fully ordered. A reader loads the sequence (acquire), the fields
//! (relaxed), and after an acquire fence the sequence again; if it changed or was odd, once more.

use crate::memory::SharedMemory;
use crate::shared::{self, ENTRY_BYTES, State};
use crate::tag::Tag;
use plimsoll_core::Class;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// How often a reader that met a writer tries again. A program writes for some nanoseconds and is not interrupted.
const TURNS_MAX: u32 = 1000;

/// The entry of a block in a table of `2^slot_shift`; the programs count likewise (`slot_of`).
fn slot_of(block: u64, slot_shift: u32) -> u64 {
    block.wrapping_add((block >> slot_shift).wrapping_mul(u64::from(shared::SLOT_STEP))) & ((1 << slot_shift) - 1)
}

/// The tags of a device's blocks. Cloning is cheap; any thread may read while the tags are loaded, and what was known
/// stays readable when they are gone.
#[derive(Clone)]
pub struct TagTable {
    entries: Arc<SharedMemory>,
    state: Arc<SharedMemory>,
    slot_shift: u32,
}

impl TagTable {
    pub(crate) fn new(entries: Arc<SharedMemory>, state: Arc<SharedMemory>, slot_shift: u32) -> TagTable {
        TagTable { entries, state, slot_shift }
    }

    /// The tag of `block`, in units of 4 KiB from the device's start; the default tag if it is unknown.
    pub fn tag(&self, block: u64) -> Tag {
        let slot = slot_of(block, self.slot_shift);
        let at = slot as usize * ENTRY_BYTES;
        let sequence = self.entries.half_word(at + offset_of!(shared::Tag, sequence));
        for _ in 0..TURNS_MAX {
            let before = sequence.load(Ordering::Acquire);
            if before & 1 == 1 {
                std::hint::spin_loop();
                continue;
            }
            let word = |offset| self.entries.word(at + offset).load(Ordering::Relaxed);
            let causes = word(offset_of!(shared::Tag, causes));
            let time_ns = word(offset_of!(shared::Tag, time_ns));
            let inode = word(offset_of!(shared::Tag, inode));
            let last = self.entries.half_word(at + offset_of!(shared::Tag, quotient)).load(Ordering::Relaxed);
            fence(Ordering::Acquire);
            if sequence.load(Ordering::Relaxed) != before {
                continue;
            }
            let [low, high, class, flags] = last.to_ne_bytes();
            if u16::from_ne_bytes([low, high]) != (block >> self.slot_shift) as u16 || before == 0 {
                return Tag::default();
            }
            let class = Class::new(class).unwrap_or_default();
            let causes_mask = self.of_that_time(causes, time_ns);
            let has = |flag| flags & flag != 0;
            return Tag {
                causes_mask,
                time_ns,
                inode,
                class,
                is_class_said: has(shared::TAG_SAID),
                is_write: has(shared::TAG_WRITE),
                is_sync: has(shared::TAG_SYNC),
                sequence: before,
            };
        }
        Tag::default()
    }

    /// Bytes of memory of the table.
    pub fn bytes(&self) -> u64 {
        (ENTRY_BYTES as u64) << self.slot_shift
    }

    /// The causes without the numbers that belonged to another account when the tag was written.
    fn of_that_time(&self, causes: u64, time_ns: u64) -> u64 {
        let (mut rest, mut known) = (causes, causes);
        while rest != 0 {
            let account = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let since = self.state.word(offset_of!(State, since_ns) + account * 8).load(Ordering::Relaxed);
            if since > time_ns {
                known &= !(1 << account);
            }
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::slot_of;
    use std::collections::BTreeSet;

    /// Of what the loader makes for a device that is larger: 8 GiB.
    const SHIFT: u32 = 21;

    /// Red with the rest of a division alone.
    #[test]
    fn what_lies_at_the_same_place_of_many_stretches_has_many_slots() {
        let same_place = |stretch: u64| slot_of(stretch << SHIFT | 16, SHIFT);
        assert_eq!((0..128).map(same_place).collect::<BTreeSet<u64>>().len(), 128);
    }

    #[test]
    fn a_stretch_has_each_slot_once_in_its_order() {
        let shift = 8;
        for stretch in [0u64, 1, 2, 1 << 20] {
            let slots: Vec<u64> = (0..1 << shift).map(|place| slot_of(stretch << shift | place, shift)).collect();
            assert!(slots.windows(2).all(|two| two[1] == (two[0] + 1) % (1 << shift)), "{stretch}");
            assert_eq!(slots.iter().collect::<BTreeSet<_>>().len(), slots.len());
        }
    }

    #[test]
    fn a_device_that_fits_has_its_blocks_in_their_order() {
        assert!((0..1 << SHIFT).step_by(997).all(|block| slot_of(block, SHIFT) == block));
    }
}
