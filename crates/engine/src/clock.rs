//! The engine's clock: the one place of the data path that reads the time.

use plimsoll_core::Time;
use rustix::time::{ClockId, clock_gettime};

/// The kernel's monotonic clock, counted from when the engine started.
pub(crate) struct Clock {
    zero_ns: u64,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock { zero_ns: monotonic_ns() }
    }

    /// Nanoseconds since the start; answered without entering the kernel.
    pub(crate) fn now(&self) -> Time {
        Time::from_nanos(monotonic_ns() - self.zero_ns)
    }

    /// The engine's time for a reading of the kernel's monotonic clock; 0 for a time before the engine's start.
    pub(crate) fn time_of(&self, monotonic_ns: u64) -> Time {
        Time::from_nanos(monotonic_ns.saturating_sub(self.zero_ns))
    }
}

/// Nanoseconds of the kernel's monotonic clock.
pub(crate) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
