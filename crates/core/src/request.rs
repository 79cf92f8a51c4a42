//! What reaches a device: one contiguous piece of I/O.

use crate::account::AccountId;
use crate::call::FileId;
use crate::cause::CauseSet;
use crate::class::Class;
use crate::time::Time;
use crate::units::RUN_BYTES_MAX;

/// The host's name for a request under way. The host chooses it and may reuse it after completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What a request asks of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Reads bytes.
    Read,
    /// Writes bytes.
    Write,
    /// Makes every write that completed before durable; has no length.
    Flush,
    /// Says that the bytes are no longer needed.
    Trim,
    /// Makes the bytes read as zero.
    WriteZeroes,
}

impl Operation {
    /// Whether the device's content may change: everything but a read and a flush.
    pub const fn is_write(self) -> bool {
        matches!(self, Operation::Write | Operation::Trim | Operation::WriteZeroes)
    }

    /// How many runs it takes for so many bytes: one for every 32 KiB begun (Zygaria, section 4.3). A flush and a trim
    /// move no data, and are one run each.
    #[inline]
    pub const fn runs(self, bytes: u32) -> u64 {
        match self {
            Operation::Flush | Operation::Trim => 1,
            _ if bytes == 0 => 1,
            _ => (bytes as u64).div_ceil(RUN_BYTES_MAX),
        }
    }
}

/// One request to a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockRequest {
    /// The host's name for it.
    pub id: RequestId,
    /// The session that submitted it: the one that waits.
    pub session: AccountId,
    /// The accounts that caused it; empty where none is known, and then the session counts as the cause.
    pub causes: CauseSet,
    /// What the bytes mean.
    pub class: Class,
    /// What is asked.
    pub operation: Operation,
    /// First byte on the device.
    pub offset: u64,
    /// Number of bytes; 0 for a flush.
    pub length: u32,
    /// A process waits for it: a read, or a write under an fsync.
    pub is_sync: bool,
    /// The write must be durable when it completes.
    pub is_forced: bool,
    /// The file it belongs to, where known; [`FileId::DEVICE`] for a file system's metadata in its place.
    pub file: Option<FileId>,
    /// When it arrived at the scheduler.
    pub arrived: Time,
}

impl BlockRequest {
    /// A request with everything optional left out.
    pub fn new(id: RequestId, session: AccountId, operation: Operation, offset: u64, length: u32, now: Time) -> Self {
        BlockRequest {
            id,
            session,
            causes: CauseSet::EMPTY,
            class: Class::UNCLASSIFIED,
            operation,
            offset,
            length,
            is_sync: operation == Operation::Read,
            is_forced: false,
            file: None,
            arrived: now,
        }
    }

    /// The byte after its last one.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.length)
    }

    /// How many runs it takes by itself.
    #[inline]
    pub fn runs(&self) -> u64 {
        self.operation.runs(self.length)
    }
}

/// A request that a device has finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The host's name for it.
    pub id: RequestId,
    /// The session that submitted it.
    pub session: AccountId,
    /// Runs that it took ([`BlockRequest::runs`]).
    pub runs: u64,
    /// How long the device had it: from dispatch to completion.
    pub service: crate::time::Span,
    /// Whether the device carried it out.
    pub succeeded: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_32_kib_of_data_and_a_trim_is_one_however_long() {
        let runs = |operation: Operation, bytes| operation.runs(bytes);
        assert_eq!(
            [1, 4096, 32 << 10, (32 << 10) + 1, 1 << 20].map(|bytes| runs(Operation::Read, bytes)),
            [1, 1, 1, 2, 32]
        );
        assert_eq!(runs(Operation::WriteZeroes, 1 << 20), 32, "where zeroes must be written, they are data");
        assert_eq!(runs(Operation::Trim, u32::MAX), 1);
        assert_eq!(runs(Operation::Flush, 0), 1);
    }
}
