//! The system's monotonic clock: leases, and the times of calls. The one place of this crate that reads the time.

use plimsoll_core::Time;
use rustix::time::{ClockId, clock_gettime};

/// Now, on `CLOCK_MONOTONIC`, which all processes outside of a time namespace share.
pub fn monotonic_now() -> Time {
    let now = clock_gettime(ClockId::Monotonic);
    Time::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}
