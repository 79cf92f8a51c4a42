//! Requests to a file or disk at the caller's times, many outstanding: for a load that does not wait for answers.

use super::{ALIGNMENT_BYTES, AlignedPage, MeasureError, Target, system};
use crate::ring::{Completed, Owner, Ring};
use io_uring::{opcode, types};
use plimsoll_core::Span;
use rustix::io::Errno;
use std::io;
use std::os::fd::AsRawFd;

/// A target, and memory for requests to it. A *slot* is the memory of one request.
pub struct Requests {
    target: Target,
    ring: Ring,
    /// Of all slots, one after the other.
    memory: Vec<AlignedPage>,
    slot_pages: usize,
    /// Bytes and direction of what is under way, by slot.
    under_way: Vec<Option<(u32, bool)>>,
    completed: Vec<Completed>,
}

impl Requests {
    /// At most `slots` requests at once, of at most `bytes_max` bytes. Slots have `content` until they read something
    /// else.
    ///
    /// # Errors
    /// There is no io_uring.
    pub fn new(target: Target, slots: u32, bytes_max: u32, content: &[u8]) -> Result<Requests, MeasureError> {
        let ring = Ring::new().map_err(|error| system(&target.path, "use io_uring for it", error))?;
        let slot_pages = (bytes_max as usize).div_ceil(ALIGNMENT_BYTES);
        let mut memory = vec![AlignedPage([0; ALIGNMENT_BYTES]); slot_pages * slots as usize];
        for (page, bytes) in memory.iter_mut().zip(content.chunks_exact(ALIGNMENT_BYTES).cycle()) {
            page.0.copy_from_slice(bytes);
        }
        Ok(Requests { target, ring, memory, slot_pages, under_way: vec![None; slots as usize], completed: Vec::new() })
    }

    /// Bytes that there are.
    pub fn size_bytes(&self) -> u64 {
        self.target.size_bytes
    }

    /// Reads into, or writes from, the memory of a free slot. The next [`wait`](Self::wait) sends it.
    ///
    /// # Panics
    /// If the slot is in use or too small, or if this is a write and writing was not allowed.
    pub fn submit(&mut self, slot: u32, is_read: bool, offset: u64, length: u32) {
        assert!(
            is_read || self.target.is_writable,
            "no permission was given to write to \
                                                     {}",
            self.target.path.display()
        );
        assert!(length as usize <= self.slot_pages * ALIGNMENT_BYTES, "{length} bytes are more than a slot has");
        let before = self.under_way[slot as usize].replace((length, is_read));
        assert!(before.is_none(), "slot {slot} is in use");
        let data = self.memory[slot as usize * self.slot_pages..].as_mut_ptr().cast::<u8>();
        let file = types::Fd(self.target.file.as_raw_fd());
        let entry = match is_read {
            true => opcode::Read::new(file, data, length).offset(offset).build(),
            false => opcode::Write::new(file, data, length).offset(offset).build(),
        };
        // SAFETY: the slot's pages are used by one request at a time and freed when none is under way (`drop`).
        unsafe { self.ring.push(entry, Owner::Piece(slot)) };
    }

    /// Sends what was submitted and waits until something is done, at most `at_most`. `done` gets the slots that are
    /// free again.
    ///
    /// # Errors
    /// What the system says of a request.
    pub fn wait(&mut self, at_most: Span, done: &mut Vec<u32>) -> Result<(), MeasureError> {
        let waited = self.ring.submit_and_wait(Some(at_most));
        waited.map_err(|error| system(&self.target.path, "wait for it", error))?;
        let mut completed = std::mem::take(&mut self.completed);
        self.ring.drain(&mut completed);
        let mut failure = None;
        for one in completed.drain(..) {
            let Owner::Piece(slot) = one.owner else { continue };
            let Some((length, is_read)) = self.under_way[slot as usize].take() else { continue };
            let result = one.result.and_then(|bytes| if bytes == length { Ok(()) } else { Err(Errno::IO) });
            match result {
                Ok(()) => done.push(slot),
                Err(errno) => {
                    let action = if is_read { "read it" } else { "write to it" };
                    failure = Some(system(&self.target.path, action, io::Error::from(errno)));
                }
            }
        }
        self.completed = completed;
        failure.map_or(Ok(()), Err)
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        // What is under way writes into memory that is freed after this.
        while self.under_way.iter().any(Option::is_some) {
            if self.ring.submit_and_wait(None).is_err() {
                // It is unknown when it ends: the memory is left to it.
                std::mem::forget(std::mem::take(&mut self.memory));
                return;
            }
            let mut completed = Vec::new();
            self.ring.drain(&mut completed);
            for one in completed {
                if let Owner::Piece(slot) = one.owner {
                    self.under_way[slot as usize] = None;
                }
            }
        }
    }
}
