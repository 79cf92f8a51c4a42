//! The kernel's monotonic clock. The laboratory's other parts live in virtual time; here alone it is real.

use plimsoll_core::{Span, Time};
use rustix::thread::{NanosleepRelativeResult, Timespec, nanosleep};
use rustix::time::{ClockId, clock_gettime};

/// A waiting thread looks this often whether the run is over.
pub(super) const SLICE: Span = Span::from_millis(100);

const NS_PER_SECOND: u64 = 1_000_000_000;

fn read(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * NS_PER_SECOND + now.tv_nsec as u64
}

/// Now, since the machine started.
pub(crate) fn now() -> Time {
    Time::from_nanos(read(ClockId::Monotonic))
}

/// Processor time of the calling thread.
pub(crate) fn thread_processor_time() -> Span {
    Span::from_nanos(read(ClockId::ThreadCPUTime))
}

/// Waits until `time`.
pub(super) fn sleep_until(time: Time) {
    loop {
        let left_ns = time.since(now()).as_nanos();
        if left_ns == 0 {
            return;
        }
        let left = Timespec { tv_sec: (left_ns / NS_PER_SECOND) as i64, tv_nsec: (left_ns % NS_PER_SECOND) as i64 };
        if let NanosleepRelativeResult::Ok = nanosleep(&left) {
            return;
        }
    }
}
