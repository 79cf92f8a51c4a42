//! The engine's io_uring: one ring for sockets, files, timers and wake-ups. A turn takes one system call.
//!
//! Every operation carries 64 bits through the kernel that name its owner:
//!
//! ```text
//!   63..56 kind | 55..32 tag, the front end's or cache's own | 31..0 index of the front end, the piece or the volume
//! ```
//!
//! An index is used again only after every operation under it has come back, so it needs no generation count.

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use plimsoll_core::Span;
use rustix::io::Errno;
use std::io;
use std::os::fd::RawFd;

/// Operations that one system call can hand over; a turn with more makes more calls. A power of two.
const SUBMISSION_ENTRIES: u32 = 256;
/// Completions that fit before the kernel must queue them elsewhere (it loses none). A power of two.
const COMPLETION_ENTRIES: u32 = 4096;
/// Bits of a front end's tag.
const TAG_BITS: u32 = 24;

/// The owner of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The eventfd by which other threads wake the engine.
    Wake,
    /// The descriptor of the levels above, which has something to say.
    UpperLevels,
    /// A piece of a request, at its backend.
    Piece(u32),
    /// A front end, and its own name for the operation.
    FrontEnd(u32, u32),
    /// The cache of a volume, and its own number for the operation.
    Cache(u32, u32),
    /// The eventfd by which service threads say that they have done something.
    Work,
    /// No part of the engine waits for it.
    Nobody,
}

impl Owner {
    pub(crate) fn encode(self) -> u64 {
        let (kind, tag, index) = match self {
            Owner::Wake => (0, 0, 0),
            Owner::Piece(index) => (1, 0, index),
            Owner::FrontEnd(index, tag) => (2, tag, index),
            Owner::UpperLevels => (3, 0, 0),
            Owner::Nobody => (4, 0, 0),
            Owner::Cache(volume, operation) => (5, operation, volume),
            Owner::Work => (6, 0, 0),
        };
        debug_assert!(tag < 1 << TAG_BITS, "a tag has {TAG_BITS} bits");
        (kind << 56) | (u64::from(tag) << 32) | u64::from(index)
    }

    fn decode(user_data: u64) -> Owner {
        let (tag, index) = ((user_data >> 32) as u32 & ((1 << TAG_BITS) - 1), user_data as u32);
        match user_data >> 56 {
            0 => Owner::Wake,
            1 => Owner::Piece(index),
            2 => Owner::FrontEnd(index, tag),
            3 => Owner::UpperLevels,
            5 => Owner::Cache(index, tag),
            6 => Owner::Work,
            _ => Owner::Nobody,
        }
    }
}

/// An operation that the kernel has finished.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completed {
    pub(crate) owner: Owner,
    pub(crate) result: Result<u32, Errno>,
    /// It was a multishot operation and will complete again.
    pub(crate) has_more: bool,
}

/// The ring. It belongs to the thread that made it.
pub(crate) struct Ring {
    ring: IoUring,
}

fn timespec(span: Span) -> types::Timespec {
    types::Timespec::from(std::time::Duration::from_nanos(span.as_nanos()))
}

impl Ring {
    /// Makes a ring for this thread.
    ///
    /// # Errors
    /// What the kernel says: io_uring is switched off (`kernel.io_uring_disabled`), forbidden by a seccomp filter, or
    /// the kernel is older than 6.1.
    pub(crate) fn new() -> io::Result<Ring> {
        let ring = IoUring::builder()
            .setup_cqsize(COMPLETION_ENTRIES)
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_coop_taskrun()
            .setup_submit_all()
            .build(SUBMISSION_ENTRIES)?;
        Ok(Ring { ring })
    }

    /// Queues an operation for the end of the turn.
    ///
    /// # Safety
    /// Every address in `entry` stays valid, and what the kernel writes to stays unused, until it completes.
    pub(crate) unsafe fn push(&mut self, entry: squeue::Entry, owner: Owner) {
        let entry = entry.user_data(owner.encode());
        // SAFETY: the caller's promise.
        while unsafe { self.ring.submission().push(&entry) }.is_err() {
            if let Err(error) = self.ring.submit() {
                // Out of memory for a moment or interrupted: nothing was taken, the next try may succeed.
                tracing::warn!(%error, "io_uring took no operations, trying again");
            }
        }
    }

    /// Asks the kernel to cancel an operation of `owner`. It completes, as cancelled or with its result.
    pub(crate) fn cancel(&mut self, owner: Owner) {
        let entry = opcode::AsyncCancel::new(owner.encode()).build();
        // SAFETY: a cancellation has no addresses.
        unsafe { self.push(entry, Owner::Nobody) }
    }

    /// Watches `fd` for `owner`, completing once each time that it becomes readable.
    pub(crate) fn watch(&mut self, fd: RawFd, owner: Owner) {
        let entry = opcode::PollAdd::new(types::Fd(fd), libc::POLLIN as u32).multi(true).build();
        // SAFETY: a poll has no addresses.
        unsafe { self.push(entry, owner) }
    }

    /// Submits queued operations and waits until one completes or `timeout` has passed. Zero does not wait.
    pub(crate) fn submit_and_wait(&mut self, timeout: Option<Span>) -> io::Result<()> {
        let submitter = self.ring.submitter();
        let result = match timeout {
            Some(timeout) => submitter.submit_with_args(1, &types::SubmitArgs::new().timespec(&timespec(timeout))),
            None => submitter.submit_and_wait(1),
        };
        match result.map_err(|error| (error.raw_os_error(), error)) {
            Ok(_) | Err((Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN), _)) => Ok(()),
            Err((_, error)) => Err(error),
        }
    }

    /// Appends what has completed to `completed`.
    pub(crate) fn drain(&mut self, completed: &mut Vec<Completed>) {
        completed.extend(self.ring.completion().map(|entry| Completed {
            owner: Owner::decode(entry.user_data()),
            result: u32::try_from(entry.result()).map_err(|_| Errno::from_raw_os_error(-entry.result())),
            has_more: cqueue::more(entry.flags()),
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_survive_the_kernel() {
        for owner in [
            Owner::Wake,
            Owner::UpperLevels,
            Owner::Nobody,
            Owner::Work,
            Owner::Piece(u32::MAX),
            Owner::FrontEnd(u32::MAX, (1 << TAG_BITS) - 1),
            Owner::Cache(u32::MAX, (1 << TAG_BITS) - 1),
        ] {
            assert_eq!(Owner::decode(owner.encode()), owner);
        }
    }

    #[test]
    fn a_timeout_ends_the_wait_and_nothing_is_lost() {
        let mut ring = Ring::new().unwrap();
        let mut completed = Vec::new();
        ring.submit_and_wait(Some(Span::from_micros(10))).unwrap();
        ring.drain(&mut completed);
        assert!(completed.is_empty());
        for index in 0..3 * SUBMISSION_ENTRIES {
            // SAFETY: a no-op has no addresses.
            unsafe { ring.push(opcode::Nop::new().build(), Owner::Piece(index)) };
        }
        while completed.len() < 3 * SUBMISSION_ENTRIES as usize {
            ring.submit_and_wait(None).unwrap();
            ring.drain(&mut completed);
        }
        let owners: Vec<_> = completed.iter().map(|completed| completed.owner).collect();
        assert_eq!(owners, (0..3 * SUBMISSION_ENTRIES).map(Owner::Piece).collect::<Vec<_>>());
    }
}
