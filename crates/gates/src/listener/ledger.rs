//! Calls that a listener's agent has received and not yet answered, in memory that its keeper maps, too.
//!
//! A call with a received notification waits for the answer to its number, and a dead agent's successor could not
//! know the number. So the kernel writes each notification straight into the ledger: there is no moment at which one
//! is received and not in it.

use crate::kernel::{ARGUMENTS_OFFSET, NOTIFICATION_BYTES, NUMBER_OFFSET, THREAD_OFFSET};
use crate::mapping::Mapping;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

/// Most held calls of one tenant. More wait in the kernel, where each costs a search through the held ones.
pub(crate) const SLOTS: usize = 1024;
/// Bytes of a slot. A notification has 80 bytes; the rest is for later kernels with larger ones.
pub(crate) const SLOT_BYTES: usize = 128;
const BYTES: usize = SLOTS * SLOT_BYTES;

/// One notification, as the kernel wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Notification {
    /// The kernel's number, by which it is answered.
    pub id: u64,
    /// The thread, or 0 if it is in a foreign process namespace.
    pub thread: u32,
    pub number: i64,
    pub arguments: [u64; 6],
}

pub(crate) struct Ledger {
    file: OwnedFd,
    mapping: Mapping,
    free: Vec<u16>,
}

impl Ledger {
    pub(crate) fn new() -> io::Result<Ledger> {
        let file = memfd_create(c"plimsoll-ledger", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, BYTES as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        Ledger::of(file)
    }

    /// One that another agent made; its keeper has answered everything in it.
    pub(crate) fn of(file: OwnedFd) -> io::Result<Ledger> {
        if rustix::fs::fstat(&file)?.st_size != BYTES as i64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a ledger of another size"));
        }
        let mapping = Mapping::new(file.as_fd(), BYTES)?;
        (0..BYTES).step_by(8).for_each(|offset| mapping.long(offset).store(0, Ordering::Relaxed));
        Ok(Ledger { file, mapping, free: (0..SLOTS as u16).rev().collect() })
    }

    /// A slot and the address that the kernel writes to; `None` if all are taken. Give it back with
    /// [`free`](Self::free).
    pub(crate) fn take(&mut self) -> Option<(u16, *mut u8)> {
        let slot = self.free.pop()?;
        Some((slot, self.mapping.address(usize::from(slot) * SLOT_BYTES, NOTIFICATION_BYTES)))
    }

    pub(crate) fn read(&self, slot: u16) -> Notification {
        let start = usize::from(slot) * SLOT_BYTES;
        let word = |offset| self.mapping.word(start + offset).load(Ordering::Relaxed);
        let long = |offset| self.mapping.long(start + offset).load(Ordering::Relaxed);
        Notification {
            id: long(0),
            thread: word(THREAD_OFFSET),
            number: i64::from(word(NUMBER_OFFSET) as i32),
            arguments: std::array::from_fn(|argument| long(ARGUMENTS_OFFSET + 8 * argument)),
        }
    }

    /// Empties a slot: the kernel wants zeros, and the keeper answers what is not zero.
    pub(crate) fn free(&mut self, slot: u16) {
        let start = usize::from(slot) * SLOT_BYTES;
        (0..SLOT_BYTES).step_by(8).for_each(|offset| self.mapping.long(start + offset).store(0, Ordering::Relaxed));
        self.free.push(slot);
    }
}

impl AsFd for Ledger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keeper_was_compiled_for_this_ledger() {
        let header = include_str!("../../shim/layout.h");
        assert!(header.contains(&format!("#define LEDGER_SLOTS {SLOTS}\n")));
        assert!(header.contains(&format!("#define SLOT_BYTES {SLOT_BYTES}\n")));
    }

    #[test]
    fn slots_run_out_and_come_back_empty() {
        let mut ledger = Ledger::new().unwrap();
        let slots: Vec<_> = std::iter::from_fn(|| ledger.take().map(|(slot, _)| slot)).collect();
        assert_eq!(slots.len(), SLOTS);
        ledger.mapping.long(usize::from(slots[5]) * SLOT_BYTES).store(99, Ordering::Relaxed);
        assert_eq!(ledger.read(slots[5]).id, 99);
        assert_eq!(ledger.read(slots[6]).id, 0);
        ledger.free(slots[5]);
        assert_eq!(ledger.take().map(|(slot, _)| slot), Some(slots[5]));
        assert_eq!(ledger.read(slots[5]).id, 0);
    }
}
