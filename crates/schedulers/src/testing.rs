//! What the unit tests share.

use plimsoll_core::{DeviceProfile, Span};

/// A disk of 1 TiB: 100 MB/s in sequence, 100 random requests a second, so that a random one costs a megabyte.
pub(crate) fn disk(outstanding_max: u32) -> DeviceProfile {
    DeviceProfile {
        name: "disk".into(),
        capacity_bytes: 1 << 40,
        worst_case_runs_per_second: 100.0,
        sequential_bytes_per_second: 1e8,
        sequential_write_bytes_per_second: 1e8,
        write_settle: Span::ZERO,
        is_rotational: true,
        outstanding_max,
    }
}
