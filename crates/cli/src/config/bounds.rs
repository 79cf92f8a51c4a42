//! Bounds that several sections share, and how a message says them.

use plimsoll_core::Rate;

/// Sizes and starts are multiples of this: the page size of loop devices and O_DIRECT. Bytes.
pub(super) const BLOCK_BYTES: u64 = 4096;
pub(super) const OUTSTANDING_MAX: u64 = 1024;
const WORST_CASE_RUNS_PER_SECOND_MAX: f64 = 1e9;
pub(super) const WORST_CASE: &str = "more than 0 runs/s, such as \"112 runs/s\"";
pub(super) const SIZE: &str = "a size such as \"10GiB\", a multiple of 4096 bytes above zero";

/// Whether a device can do so much at its worst.
pub(super) fn is_worst_case(rate: &Rate) -> bool {
    matches!(rate, Rate::RunsPerSecond(runs) if *runs > 0.0 && *runs <= WORST_CASE_RUNS_PER_SECOND_MAX)
}
