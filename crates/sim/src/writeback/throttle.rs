//! Slowing down who dirties faster than the device writes (Linux `balance_dirty_pages`).
//!
//! A process may dirty a number of pages, then it is looked at. Below freerun it goes on, with a new number that grows with
//! the room that is left. Above, it sleeps so long that its pages per time become the rate limit times the position ratio:
//! many short pauses, at most 200 ms each, instead of one long stop. At the limit it sleeps until there is room.
//!
//! Left out of Linux's rules: the shared count over all tasks of a core (`bdp_ratelimits`), strict limits and cgroups.

use super::bandwidth::{Bandwidth, ONE};
use crate::machine::Machine;
use crate::process::Process;
use plimsoll_core::Span;
use std::cell::Cell;

/// Longest pause, milliseconds (`MAX_PAUSE`: a fifth of a second).
const PAUSE_MS_MAX: u64 = 200;
/// The pause that is aimed at when few dirty, milliseconds (`wb_min_pause`: a hundredth of a second).
const PAUSE_MS_AIM: u64 = 10;
/// It grows by this for each halving of a task's share of the bandwidth (`wb_min_pause`: 10 * HZ / 1024).
const PAUSE_MS_PER_HALVING: u64 = 10;
/// Pages between two looks at the least, if the pause allows (`DIRTY_POLL_THRESH`: 128 KiB).
const POLL_PAGES: u64 = 32;
/// Pages between two looks while the limit is exceeded (`balance_dirty_pages_ratelimited`: 32 KiB).
const EXCEEDED_PAGES: u64 = 8;
/// A second in the arithmetic of pauses, rounded up to a power of two (`roundup_pow_of_two(HZ)`).
const SECOND_MS_ROUNDED: u64 = 1024;
/// An eighth of a second, likewise (`wb_max_pause`).
const EIGHTH_MS_ROUNDED: u64 = 128;

/// What the kernel keeps of a process that dirties pages.
pub(crate) struct Dirtier {
    /// Pages since it was looked at.
    dirtied: Cell<u64>,
    /// Pages after which it is looked at (`nr_dirtied_pause`).
    pause_after: Cell<u64>,
    /// When its last pause ended (`dirty_paused_when`), milliseconds; 0 if it never paused.
    paused_ms: Cell<u64>,
}

impl Dirtier {
    pub(crate) fn new(machine: &Machine) -> Dirtier {
        let limit = machine.writeback.bandwidth.borrow().limit_pages;
        Dirtier { dirtied: Cell::new(0), pause_after: Cell::new(poll_pages(0, limit)), paused_ms: Cell::new(0) }
    }

    /// Pages that it may dirty before it is looked at; at least one.
    pub(crate) fn allowance(&self) -> u64 {
        self.pause_after.get().saturating_sub(self.dirtied.get()).max(1)
    }
}

/// Pages between two looks when nobody is held back: the square root of the room (`dirty_poll_interval`).
fn poll_pages(dirty: u64, limit: u64) -> u64 {
    if limit > dirty { 1 << ((limit - dirty).ilog2() / 2) } else { 1 }
}

/// `wb_max_pause`, milliseconds.
fn pause_ms_max(bandwidth: &Bandwidth, dirty: u64) -> u64 {
    (dirty / (1 + bandwidth.average_pages_per_second / EIGHTH_MS_ROUNDED) + 1).min(PAUSE_MS_MAX)
}

/// `wb_min_pause`: the shortest pause, milliseconds, and the pages between two.
fn pause_ms_min(bandwidth: &Bandwidth, pause_max: u64) -> (u64, u64) {
    let halvings =
        bandwidth.average_pages_per_second.max(1).ilog2().saturating_sub(bandwidth.rate_limit.max(1).ilog2());
    let mut aim = (PAUSE_MS_AIM + u64::from(halvings) * PAUSE_MS_PER_HALVING).min(1 + pause_max / 2);
    let mut pages = bandwidth.rate_limit * aim / SECOND_MS_ROUNDED;
    if pages < POLL_PAGES {
        aim = pause_max;
        pages = bandwidth.rate_limit * aim / SECOND_MS_ROUNDED;
        if pages > POLL_PAGES {
            pages = POLL_PAGES;
            aim = 1000 * POLL_PAGES / bandwidth.rate_limit.max(1);
        }
    }
    (if pages >= POLL_PAGES { 1 + aim / 2 } else { aim }, pages.max(1))
}

impl Machine {
    /// A process has dirtied `pages`; it may have to wait.
    pub(crate) async fn balance_dirty_pages(&self, process: &Process, pages: u64) {
        let dirtier = process.dirtier();
        dirtier.dirtied.set(dirtier.dirtied.get() + pages);
        let is_exceeded = self.dirty_pages() >= self.writeback.bandwidth.borrow().limit_pages;
        let pause_after = dirtier.pause_after.get();
        if dirtier.dirtied.get() < if is_exceeded { pause_after.min(EXCEEDED_PAGES) } else { pause_after } {
            return;
        }
        while let Some(pause) = self.next_pause(dirtier) {
            process.sleep(pause.span).await;
            dirtier.paused_ms.set(self.now_ms());
            dirtier.dirtied.set(0);
            dirtier.pause_after.set(pause.pause_after);
            if !pause.is_at_limit {
                break;
            }
        }
        if self.cache.borrow().dirty() > self.writeback.bandwidth.borrow().background_pages {
            self.wake_flusher();
        }
    }

    fn now_ms(&self) -> u64 {
        self.now().as_nanos() / Span::from_millis(1).as_nanos()
    }

    /// Pages that count against the limit.
    fn dirty_pages(&self) -> u64 {
        let cache = self.cache.borrow();
        cache.dirty() + cache.writeback()
    }

    /// How long the process must pause now; `None` if it may go on.
    fn next_pause(&self, dirtier: &Dirtier) -> Option<Pause> {
        let dirty = self.dirty_pages();
        let mut bandwidth = self.writeback.bandwidth.borrow_mut();
        if dirty <= bandwidth.freerun_pages() {
            dirtier.dirtied.set(0);
            dirtier.paused_ms.set(self.now_ms());
            dirtier.pause_after.set(poll_pages(dirty, bandwidth.limit_pages));
            return None;
        }
        self.wake_flusher();
        let now_ms = self.now_ms();
        bandwidth.update(now_ms, self.writeback.written.get(), self.cache.borrow().totals.dirtied, dirty);
        let pause_max = pause_ms_max(&bandwidth, dirty);
        let (pause_min, pause_after) = pause_ms_min(&bandwidth, pause_max);
        let rate = bandwidth.rate_limit * bandwidth.position_ratio(dirty) as u64 / ONE as u64;
        if rate == 0 {
            return Some(Pause { span: Span::from_millis(pause_max), pause_after, is_at_limit: true });
        }
        let period = 1000 * dirtier.dirtied.get() / rate;
        // What it paused too little before lies in the future, and is made up for now.
        let paused_ms = dirtier.paused_ms.get();
        let since_pause = if paused_ms > 0 { now_ms as i64 - paused_ms as i64 } else { 0 };
        let pause = period as i64 - since_pause;
        if pause < pause_min as i64 {
            if pause < -1000 {
                dirtier.paused_ms.set(now_ms);
                dirtier.dirtied.set(0);
            } else if period > 0 {
                dirtier.paused_ms.set(dirtier.paused_ms.get() + period);
                dirtier.dirtied.set(0);
            } else if dirtier.pause_after.get() <= dirtier.dirtied.get() {
                dirtier.pause_after.set(dirtier.pause_after.get() + dirtier.dirtied.get());
            }
            return None;
        }
        let span = Span::from_millis((pause as u64).min(pause_max));
        Some(Pause { span, pause_after, is_at_limit: false })
    }
}

struct Pause {
    span: Span,
    pause_after: u64,
    /// Nothing may be dirtied at all: look again afterwards.
    is_at_limit: bool,
}
