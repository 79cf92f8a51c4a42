//! The table of tags, as whoever serves the device reads it: no system call, no lock.
//!
//! One entry stands for 4 KiB. Where the device has more blocks than the table has entries, block n is in entry n modulo
//! the entries, and the entry says which of them: whoever asks for another one is told that nothing is known, never
//! somebody else's tag.
//!
//! **Order.** A program in the kernel writes a tag before the I/O is queued, so the tag of a request that arrived is
//! complete: the queues on the way and the system call that delivers the request order both. A sequence lock guards the
//! rest (a block written again while its last tag is being read): the program makes the sequence odd by a compare and
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

    /// The tag of `block`, in units of 4 KiB from the start of the device; the default tag if nothing is known of it.
    pub fn tag(&self, block: u64) -> Tag {
        let slot = block & ((1 << self.slot_shift) - 1);
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
            let (is_write, is_sync) = (flags & shared::TAG_WRITE != 0, flags & shared::TAG_SYNC != 0);
            return Tag { causes_mask, time_ns, inode, class, is_write, is_sync, sequence: before };
        }
        Tag::default()
    }

    /// Bytes of memory of the table.
    pub fn bytes(&self) -> u64 {
        (ENTRY_BYTES as u64) << self.slot_shift
    }

    /// The causes without the numbers that belonged to somebody else when the tag was written.
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
