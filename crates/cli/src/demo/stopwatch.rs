//! The demonstration happens in real time, so it needs a clock. It is here.

use plimsoll_core::Span;
use std::time::Instant;

/// Time since it was started.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    started: Instant,
}

#[allow(clippy::disallowed_methods)] // A host in real time; see the module's text.
impl Stopwatch {
    /// Starts one.
    pub fn start() -> Stopwatch {
        Stopwatch { started: Instant::now() }
    }

    /// Time since the start.
    pub fn elapsed(self) -> Span {
        self.started.elapsed().into()
    }

    /// Sleeps until so long after the start; returns at once if that has passed.
    pub fn sleep_until(self, at: Span) {
        std::thread::sleep(at.saturating_sub(self.elapsed()).into());
    }
}
