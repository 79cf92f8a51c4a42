//! Lines in the log that a peer can cause as often as it likes.
//!
//! **Rule.** In [`WINDOW`] there are [`LINES_MAX`] of them at the level that they deserve; the others are at `debug`.
//! The first line of a later window says how many those were. So nothing is lost that a person would read, and no peer
//! fills a disk.

use rustix::time::{ClockId, clock_gettime};
use std::fmt::Display;
use std::sync::{Mutex, TryLockError};
use std::time::Duration;
use tracing::{debug, info, warn};

/// Lines of one kind in a window.
const LINES_MAX: u32 = 10;
/// How long a window is.
const WINDOW: Duration = Duration::from_secs(60);

/// The budget of one kind of line. Safe for statics; any thread.
#[derive(Debug)]
pub struct PeerLog(Mutex<Budget>);

#[derive(Debug)]
struct Budget {
    /// When the window began, on the kernel's monotonic clock; `None` before the first line.
    since: Option<Duration>,
    lines: u32,
    left_out: u64,
}

impl Budget {
    const NEW: Budget = Budget { since: None, lines: 0, left_out: 0 };

    /// Whether a line may be shown, and then how many were not since the last one that was. O(1).
    fn spend(&mut self, now: Duration) -> Option<u64> {
        if self.since.is_none_or(|since| now - since >= WINDOW) {
            (self.since, self.lines) = (Some(now), 0);
        }
        if self.lines == LINES_MAX {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

impl PeerLog {
    /// A budget of which nothing is spent.
    pub const fn new() -> PeerLog {
        PeerLog(Mutex::new(Budget::NEW))
    }

    /// Says `line` as a warning, or at `debug`.
    pub fn warn(&self, line: impl Display) {
        match self.spend() {
            Some(0) => warn!("{line}"),
            Some(left_out) => warn!("{line} (and {left_out} lines like this one at level debug)"),
            None => debug!("{line}"),
        }
    }

    /// Says `line` as information, or at `debug`.
    pub fn info(&self, line: impl Display) {
        match self.spend() {
            Some(0) => info!("{line}"),
            Some(left_out) => info!("{line} (and {left_out} lines like this one at level debug)"),
            None => debug!("{line}"),
        }
    }

    /// An engine's thread waits for no other: while another one holds the budget, the line is at `debug` and is not
    /// counted.
    fn spend(&self) -> Option<u64> {
        match self.0.try_lock() {
            Ok(mut budget) => budget.spend(monotonic()),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().spend(monotonic()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// The kernel's monotonic clock; answered without entering the kernel.
fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

impl Default for PeerLog {
    fn default() -> Self {
        PeerLog::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Planted break that was seen red: every line is shown.
    #[test]
    fn a_window_shows_some_lines_and_the_next_one_how_many_it_did_not() {
        let (mut budget, start) = (Budget::NEW, Duration::from_secs(7));
        for _ in 0..LINES_MAX {
            assert_eq!(budget.spend(start), Some(0));
        }
        for _ in 0..2_000 {
            assert_eq!(budget.spend(start + Duration::from_secs(59)), None);
        }
        assert_eq!(budget.spend(start + WINDOW), Some(2_000));
        assert_eq!(budget.spend(start + WINDOW), Some(0));
    }
}
