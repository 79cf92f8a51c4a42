//! The log of writes, and the consistency points that empty it.
//!
//! The log has two halves. Writes are acknowledged once they are in one half. When it is full, a consistency point
//! begins, which writes its data to the drives, and writes go to the other half. When that is full before the
//! consistency point has ended, writes wait (section 2.1).
//!
//! That must not happen while the threads can do both, so consistency points are *paced*. "The weight and time slice
//! given to the MQ changes dynamically based on a complex ratio of the two rates" (section 2.3). The rates are their
//! progress and the log's filling. The paper does not print the ratio; here it is that of what is left of both
//! ([`FilerLog::weights`]), and the weight alone changes.

use super::chance::Chance;
use plimsoll_executor::QUEUES;

/// Operations of a consistency point: "hundreds" (section 2.1).
pub(super) const OPERATIONS: u32 = 500;
/// What one write to a drive has at the most, bytes. Assumed: a segment of a RAID group's stripe.
pub(super) const DRIVE_WRITE_BYTES: u32 = 64 << 10;
/// A consistency point is to be done when this part of the other half is full. The last operations are with the drives
/// for a while.
const DONE_AT: f64 = 0.75;
/// The maintenance queue has at most this weight for one of the others: nine draws of ten.
const WEIGHT_MAX: u32 = 9;

/// The log.
pub(super) struct FilerLog {
    half_bytes: u64,
    /// In the half that is being filled.
    bytes: u64,
    /// Operations of the consistency point that are not done; 0: there is none.
    operations_left: u32,
    /// Slots of writes that wait.
    pub(super) waiting: Vec<u32>,
    points: u64,
}

impl FilerLog {
    /// A log that is filled by chance at first, as it is at some moment of a long day.
    pub(super) fn new(log_bytes: u64, chance: &mut Chance) -> FilerLog {
        let half_bytes = log_bytes / 2;
        FilerLog { half_bytes, bytes: chance.below(half_bytes), operations_left: 0, waiting: Vec::new(), points: 0 }
    }

    /// Whether a write has to wait.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= self.half_bytes
    }

    /// A write is in the log. Answers whether a consistency point begins; its operations write
    /// [`operation_bytes`](Self::operation_bytes).
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

    /// The weights of the queues: `base`, unless a consistency point is late. Then the maintenance queue's weight is
    /// multiplied by the square of a ratio. It is the rest of the point over the rest of the room. So however little
    /// its due is, the point is done with the room, and it has no more than it needs. O(1).
    pub(super) fn weights(&self, base: [u32; QUEUES]) -> [u32; QUEUES] {
        let [high, low, maintenance] = base;
        let left = f64::from(self.operations_left) / f64::from(OPERATIONS);
        let room = 1.0 - self.bytes as f64 / (self.half_bytes as f64 * DONE_AT);
        let late = if room > 0.0 { left / room } else { f64::INFINITY };
        if self.operations_left == 0 || late <= 1.0 {
            return base;
        }
        let weight = (f64::from(maintenance) * late * late) as u32;
        [high, low, weight.min(WEIGHT_MAX * (high + low)).max(maintenance)]
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
