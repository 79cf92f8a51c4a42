//! The disk of split_token's tests.

use plimsoll_core::{DeviceProfile, Span};

pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;

/// Each positioning costs about a megabyte.
pub fn device() -> DeviceProfile {
    DeviceProfile {
        name: "device".into(),
        capacity_bytes: 400 * GIB,
        worst_case_runs_per_second: 100.0,
        sequential_bytes_per_second: 1e8,
        sequential_write_bytes_per_second: 1e8,
        write_settle: Span::ZERO,
        is_rotational: true,
        outstanding_max: 10,
    }
}
