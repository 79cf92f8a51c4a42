//! What each account has caused so far.

#[cfg(feature = "bpf")]
use crate::shared;
use crate::shared::CLASSES;

/// The books of one account since it was opened. Bytes. What several accounts have caused is divided among them, so
/// that the accounts and the unknown add up to what the device did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Read from the device, data and metadata.
    pub read_bytes: u64,
    /// Data of files written, and what is written to a bare device.
    pub data_bytes: u64,
    /// Journal written: jbd2's blocks, fast commits, XFS's log.
    pub journal_bytes: u64,
    /// Metadata written in its place.
    pub metadata_bytes: u64,
    /// Clean pages that became dirty.
    pub dirtied_bytes: u64,
    /// Dirty pages that were truncated or deleted before they were written.
    pub freed_bytes: u64,
    /// Written, by the numbers of classes; the sum is that of data, journal and metadata.
    pub written_bytes_by_class: [u64; CLASSES],
}

impl Counters {
    /// All that was written.
    pub fn written_bytes(&self) -> u64 {
        self.data_bytes + self.journal_bytes + self.metadata_bytes
    }

    /// Adds what another processor has counted.
    #[cfg(feature = "bpf")]
    pub(crate) fn add(&mut self, part: &shared::Counters) {
        self.read_bytes += part.read;
        self.data_bytes += part.data;
        self.journal_bytes += part.journal;
        self.metadata_bytes += part.metadata;
        self.dirtied_bytes += part.dirtied;
        self.freed_bytes += part.freed;
        for (sum, bytes) in self.written_bytes_by_class.iter_mut().zip(part.by_class) {
            *sum += bytes;
        }
    }
}
