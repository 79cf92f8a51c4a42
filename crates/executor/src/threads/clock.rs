//! The clock of service threads: the only place of this crate that reads one.

use plimsoll_core::Time;

/// Now, nanoseconds of CLOCK_MONOTONIC.
pub(super) fn now() -> Time {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Time::from_nanos(now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs())
}
