//! Slowing down processes that dirty faster than the device writes (Linux `balance_dirty_pages`).
//!
//! A process may dirty a number of pages, then it is looked at. Below freerun it continues, with a new number that
//! grows with the room that is left. Above, its sleep makes its pages per time equal to the rate limit times the
//! position ratio. It makes many short pauses, at most 200 ms each, instead of one long stop. At the limit it sleeps
//! until there is room.
//!
//! The complication: all is counted in ticks of 4 ms, and a look comes before a folio is written, never within it. A
//! writer that dirties a MiB at once is over its number at every look. Its earned pause is two or three ticks, less
//! than the shortest one. So it is put on account, and about every second check brings a pause for both.
//!
//! Left out of Linux's rules: the shared count over all tasks of a core (`bdp_ratelimits`), strict limits and cgroups.

use super::bandwidth::{Bandwidth, ONE};
use crate::config::{TICK, TICKS_PER_SECOND};
use crate::machine::Machine;
use plimsoll_core::Time;
use std::cell::Cell;

/// Longest pause, ticks (`MAX_PAUSE`: a fifth of a second).
const PAUSE_TICKS_MAX: u64 = TICKS_PER_SECOND / 5;
/// The pause that is aimed at when few dirty, ticks (`wb_min_pause`: a hundredth of a second).
const PAUSE_TICKS_AIM: u64 = TICKS_PER_SECOND / 100;
/// It grows by this for each halving of a task's share of the bandwidth, 1024th of a tick (`wb_min_pause`).
const PAUSE_PER_HALVING: u64 = 10 * TICKS_PER_SECOND;
/// Pages between two looks at the least, if the pause allows (`DIRTY_POLL_THRESH`: 128 KiB).
const POLL_PAGES: u64 = 32;
/// Pages between two looks while the limit is exceeded (`balance_dirty_pages_ratelimited`: 32 KiB).
const EXCEEDED_PAGES: u64 = 8;
/// A second in the arithmetic of pauses, ticks, rounded up to a power of two (`roundup_pow_of_two(HZ)`).
const SECOND_TICKS_ROUNDED: u64 = TICKS_PER_SECOND.next_power_of_two();
/// An eighth of a second, likewise (`wb_max_pause`).
const EIGHTH_TICKS_ROUNDED: u64 = (1 + TICKS_PER_SECOND / 8).next_power_of_two();

/// What the kernel keeps of a process that dirties pages.
pub(crate) struct Dirtier {
    /// Pages since it was looked at (`nr_dirtied`).
    dirtied: Cell<u64>,
    /// Pages after which it is looked at (`nr_dirtied_pause`).
    pause_after: Cell<u64>,
    /// When its last pause ended, ticks; in the future if it has paused too little (`dirty_paused_when`).
    paused: Cell<u64>,
}

impl Dirtier {
    pub(crate) fn new(machine: &Machine) -> Dirtier {
        let limit = machine.writeback.bandwidth.borrow().limit_pages;
        Dirtier { dirtied: Cell::new(0), pause_after: Cell::new(poll_pages(0, limit)), paused: Cell::new(0) }
    }

    /// Pages that it may dirty before it is looked at; at least one.
    pub(crate) fn allowance(&self) -> u64 {
        self.pause_after.get().saturating_sub(self.dirtied.get()).max(1)
    }

    /// Counts pages that were not dirty before (`folio_account_dirtied`).
    pub(crate) fn count(&self, pages: u64) {
        self.dirtied.set(self.dirtied.get() + pages);
    }

    /// It may go on as it likes.
    fn run_free(&self, now: u64, pause_after: u64) {
        self.dirtied.set(0);
        self.paused.set(now);
        self.pause_after.set(pause_after);
    }

    /// How long it must pause now, if at all; `None` is kept in mind for the next time.
    fn judge(&self, now: u64, dirty: u64, rates: Rates) -> Option<Pause> {
        let ticks_max = rates.pause_ticks_max(dirty);
        let (ticks_min, pause_after) = rates.pause_ticks_min(ticks_max);
        if rates.task == 0 {
            return Some(Pause { ticks: ticks_max, ended: now + ticks_max, pause_after, is_at_limit: true });
        }
        let period = TICKS_PER_SECOND * self.dirtied.get() / rates.task;
        let since_pause = if self.paused.get() > 0 { now as i64 - self.paused.get() as i64 } else { 0 };
        let pause = period as i64 - since_pause;
        if pause < ticks_min as i64 {
            if pause < -(TICKS_PER_SECOND as i64) {
                self.paused.set(now);
                self.dirtied.set(0);
            } else if period > 0 {
                self.paused.set(self.paused.get() + period);
                self.dirtied.set(0);
            } else if self.pause_after.get() <= self.dirtied.get() {
                self.pause_after.set(self.pause_after.get() + self.dirtied.get());
            }
            return None;
        }
        let pause = pause as u64;
        // Of what is longer than the longest pause, as much again is forgotten.
        let forgotten = pause.saturating_sub(ticks_max).min(ticks_max);
        let ticks = pause.min(ticks_max);
        Some(Pause { ticks, ended: now + forgotten + ticks, pause_after, is_at_limit: false })
    }

    fn end_pause(&self, pause: &Pause) {
        self.paused.set(pause.ended);
        self.dirtied.set(0);
        self.pause_after.set(pause.pause_after);
    }
}

/// A pause.
#[derive(Debug, PartialEq, Eq)]
struct Pause {
    ticks: u64,
    /// When it is thought to have ended.
    ended: u64,
    pause_after: u64,
    /// Nothing may be dirtied at all: look again afterwards.
    is_at_limit: bool,
}

/// Pages per second: of one dirtier at the setpoint, of this one now, and of the device.
#[derive(Clone, Copy, Debug)]
struct Rates {
    limit: u64,
    task: u64,
    written: u64,
}

impl Rates {
    /// `wb_max_pause`, ticks.
    fn pause_ticks_max(&self, dirty: u64) -> u64 {
        (dirty / (1 + self.written / EIGHTH_TICKS_ROUNDED) + 1).min(PAUSE_TICKS_MAX)
    }

    /// `wb_min_pause`: the shortest pause, ticks, and the pages between two.
    fn pause_ticks_min(&self, ticks_max: u64) -> (u64, u64) {
        let in_pages = |rate: u64, ticks: u64| rate * ticks / SECOND_TICKS_ROUNDED;
        let halvings = u64::from(self.written.max(1).ilog2().saturating_sub(self.limit.max(1).ilog2()));
        let mut aim = (PAUSE_TICKS_AIM + halvings * PAUSE_PER_HALVING / 1024).min(1 + ticks_max / 2);
        let mut pages = in_pages(self.limit, aim);
        if pages < POLL_PAGES {
            aim = ticks_max;
            pages = in_pages(self.limit, aim);
            if pages > POLL_PAGES {
                pages = POLL_PAGES;
                aim = TICKS_PER_SECOND * POLL_PAGES / self.limit.max(1);
            }
        }
        if TICKS_PER_SECOND * pages / (self.task + 1) > ticks_max {
            aim = ticks_max;
            pages = in_pages(self.task, aim);
        }
        (if pages >= POLL_PAGES { 1 + aim / 2 } else { aim }, pages)
    }
}

/// Pages between two looks when no process is held back: the square root of the room (`dirty_poll_interval`).
fn poll_pages(dirty: u64, limit: u64) -> u64 {
    if limit > dirty { 1 << ((limit - dirty).ilog2() / 2) } else { 1 }
}

impl Machine {
    /// A process is going to dirty pages; because of those that it has dirtied it may have to wait
    /// (`balance_dirty_pages_ratelimited`).
    pub(crate) async fn balance_dirty_pages(&self, dirtier: &Dirtier) {
        let is_exceeded = self.dirty_pages() >= self.writeback.bandwidth.borrow().limit_pages;
        let pause_after = dirtier.pause_after.get();
        if dirtier.dirtied.get() < if is_exceeded { pause_after.min(EXCEEDED_PAGES) } else { pause_after } {
            return;
        }
        while let Some(pause) = self.next_pause(dirtier) {
            // A timer never fires early: it waits for the tick after the last one (`calc_wheel_index`).
            let wakes = Time::from_nanos((self.now_ticks() + pause.ticks + 1) * TICK.as_nanos());
            self.executor.sleep(wakes.since(self.now())).await;
            dirtier.end_pause(&pause);
            if !pause.is_at_limit {
                break;
            }
        }
        if self.cache.borrow().dirty() > self.writeback.bandwidth.borrow().background_pages {
            self.wake_flusher();
        }
    }

    /// Pages that count against the limit.
    fn dirty_pages(&self) -> u64 {
        let cache = self.cache.borrow();
        cache.dirty() + cache.writeback()
    }

    /// How long the process must pause now; `None` if it may go on.
    fn next_pause(&self, dirtier: &Dirtier) -> Option<Pause> {
        let (dirty, now) = (self.dirty_pages(), self.now_ticks());
        let mut bandwidth = self.writeback.bandwidth.borrow_mut();
        if dirty <= bandwidth.freerun_pages() {
            dirtier.run_free(now, poll_pages(dirty, bandwidth.limit_pages));
            return None;
        }
        self.wake_flusher();
        bandwidth.balance(now, self.totals(), dirty);
        dirtier.judge(now, dirty, rates(&bandwidth, dirty))
    }
}

fn rates(bandwidth: &Bandwidth, dirty: u64) -> Rates {
    Rates {
        limit: bandwidth.rate_limit,
        task: bandwidth.rate_limit * bandwidth.position_ratio(dirty) as u64 / ONE as u64,
        written: bandwidth.average_pages_per_second,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks as Linux 6.18 traced them (`writeback:balance_dirty_pages`, HZ = 250) of a process that wrote 1 MiB a call
    /// to ext4 on an emulated disk: pages per second that the device wrote, pages dirty, rates of a dirtier at the
    /// setpoint and of this one, pages dirtied, ticks since the last pause was thought to have ended; then the pause in
    /// ticks (none: 0), and after how many pages the next look came. So were 99 of 100 of 9851 looks; the others met an
    /// estimate in between.
    const TRACED: [([u64; 5], i64, [u64; 2]); 12] = [
        ([29_567, 28_160, 1242, 2117, 256], 1, [29, 53]),
        ([25_903, 39_168, 1756, 3563, 256], 0, [17, 75]),
        ([28_751, 40_192, 2590, 4183, 256], 2, [13, 91]),
        ([30_792, 39_168, 4973, 9596, 256], 0, [6, 116]),
        ([31_061, 39_936, 6399, 10_679, 256], -2, [7, 149]),
        ([31_202, 39_168, 8685, 17_658, 256], 0, [3, 135]),
        ([32_379, 47_616, 16_420, 15_906, 256], -1, [5, 128]),
        ([31_937, 40_448, 21_433, 33_489, 256], -1, [2, 167]),
        ([32_957, 44_544, 23_443, 23_626, 512], 1, [4, 366]),
        ([33_243, 49_152, 24_378, 20_783, 512], -1, [7, 380]),
        ([32_661, 51_712, 25_419, 6826, 256], 1, [8, 198]),
        ([32_202, 61_440, 24_468, 23_679, 256], -1, [3, 191]),
    ];
    /// Some time of the clock.
    const NOW: u64 = 1000;

    fn dirtier(dirtied: u64, paused: u64) -> Dirtier {
        Dirtier { dirtied: Cell::new(dirtied), pause_after: Cell::new(64), paused: Cell::new(paused) }
    }

    /// Promise: sim-linux.
    #[test]
    fn pauses_are_those_of_the_kernel() {
        for ([written, dirty, limit, task, dirtied], since_pause, [ticks, pause_after]) in TRACED {
            let rates = Rates { limit, task, written };
            let pause =
                dirtier(dirtied, NOW.strict_sub_signed(since_pause)).judge(NOW, dirty, rates).expect("it paused");
            assert_eq!((pause.ticks, pause.pause_after), (ticks, pause_after), "{rates:?}, {dirty} dirty");
        }
    }

    /// One after the other, from the same trace: what is too short is made up for at the next look.
    #[test]
    fn a_pause_that_is_too_short_is_put_on_account() {
        let rates = |task| Rates { limit: 24_256, task, written: 32_374 };
        let writer = dirtier(256, NOW - 2);
        assert_eq!(writer.judge(NOW, 55_808, rates(26_222)), None, "a period of two ticks, two of which it thought");
        writer.count(256);
        let pause = writer.judge(NOW, 56_064, rates(25_819)).expect("for both");
        assert_eq!((pause.ticks, pause.ended), (2, NOW + 2));
        writer.end_pause(&pause);
        writer.count(256);
        assert_eq!(writer.judge(NOW + 3, 56_320, rates(25_464)), None, "the timer took a tick more");
        assert_eq!((writer.paused.get(), writer.dirtied.get()), (NOW + 4, 0));
    }

    #[test]
    fn at_the_limit_no_task_dirties_and_a_long_think_is_forgotten() {
        let rates = Rates { limit: 1000, task: 0, written: 32_000 };
        assert!(dirtier(256, NOW).judge(NOW, 60_000, rates).expect("it waits").is_at_limit);
        let (thinker, later) = (dirtier(256, 1), 10 * TICKS_PER_SECOND);
        assert_eq!(thinker.judge(later, 60_000, Rates { task: 500, ..rates }), None);
        assert_eq!((thinker.paused.get(), thinker.dirtied.get()), (later, 0));
        // A period of a thousand ticks: the longest pause, and as much again is forgotten.
        let pause = dirtier(400, NOW).judge(NOW, 60_000, Rates { task: 100, ..rates }).expect("it pauses");
        assert_eq!((pause.ticks, pause.ended), (PAUSE_TICKS_MAX, NOW + 2 * PAUSE_TICKS_MAX));
    }
}
