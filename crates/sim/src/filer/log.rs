//! The log of writes, and the consistency points that empty it.
//!
//! The log has two halves. Writes are acknowledged once they are in one; when it is full, a consistency point begins, which writes
//! what it stands for to the drives, and writes go to the other. When that is full before the consistency point has ended, writes
//! wait (section 2.1).

use super::chance::Chance;

/// Operations of a consistency point: "hundreds" (section 2.1).
pub(super) const OPERATIONS: u32 = 500;
/// What one write to a drive has at the most, bytes. Assumed: a segment of a RAID group's stripe.
pub(super) const DRIVE_WRITE_BYTES: u32 = 64 << 10;

/// The log.
pub(super) struct Log {
    half_bytes: u64,
    /// In the half that is being filled.
    bytes: u64,
    /// Operations of the consistency point that are not done; 0: there is none.
    operations_left: u32,
    /// Slots of writes that wait.
    pub(super) waiting: Vec<u32>,
    points: u64,
}

impl Log {
    /// A log that is filled by chance at first, as it is at some moment of a long day.
    pub(super) fn new(log_bytes: u64, chance: &mut Chance) -> Log {
        let half_bytes = log_bytes / 2;
        Log { half_bytes, bytes: chance.below(half_bytes), operations_left: 0, waiting: Vec::new(), points: 0 }
    }

    /// Whether a write has to wait.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= self.half_bytes
    }

    /// A write is in the log. Answers whether a consistency point begins; its operations write [`operation_bytes`](Self::operation_bytes).
    pub(super) fn append(&mut self, bytes: u32) -> bool {
        self.bytes += u64::from(bytes);
        self.begin()
    }

    fn begin(&mut self) -> bool {
        if !self.is_full() || self.operations_left > 0 {
            return false;
        }
        self.bytes = 0;
        self.operations_left = OPERATIONS;
        self.points += 1;
        true
    }

    /// What each operation of a consistency point writes, bytes.
    pub(super) fn operation_bytes(&self) -> u32 {
        (self.half_bytes / u64::from(OPERATIONS)) as u32
    }

    /// An operation is done. Answers whether another consistency point begins.
    pub(super) fn operation_done(&mut self) -> bool {
        self.operations_left -= 1;
        self.operations_left == 0 && self.begin()
    }

    /// Consistency points that began.
    pub(super) fn points(&self) -> u64 {
        self.points
    }
}
