//! What a scheduler may know of its device.

use crate::time::Span;

/// What a scheduler may know of its device.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceProfile {
    /// What people call it.
    pub name: String,
    /// Bytes.
    pub capacity_bytes: u64,
    /// Small random runs per second with `outstanding_max` outstanding: the worst case, and what can be promised.
    pub worst_case_runs_per_second: f64,
    /// Bytes per second of one sequential stream.
    pub sequential_bytes_per_second: f64,
    /// Bytes per second of one sequential writer that lasts: a solid-state drive writes slower than it reads.
    pub sequential_write_bytes_per_second: f64,
    /// Additional time of a head to settle before a write, over a read (data sheets: average write seek less average
    /// read seek). Zero if it is not known, and without a head.
    pub write_settle: Span,
    /// Whether a head has to move.
    pub is_rotational: bool,
    /// How many requests to keep at the device: enough to keep it efficient, few enough to keep control.
    pub outstanding_max: u32,
}
