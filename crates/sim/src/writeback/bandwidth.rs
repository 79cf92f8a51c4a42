//! The device's write speed and the allowed dirtying, over time. It is the arithmetic of Linux's `mm/page-writeback.c`
//! for one device, in whole pages and ticks of the kernel's clock.
//!
//! Below the middle between background and limit no dirtier is held back (*freerun*). Above, a cubic curve around the
//! *setpoint*, half-way from there to the limit, gives a factor. It raises or lowers the rate of every dirtier
//! ([`position_ratio`](Bandwidth::position_ratio)). The rate itself is corrected every 200 ms so that at the setpoint
//! all dirtiers together dirty what the device writes ([`balance`](Bandwidth::balance)).
//!
//! The complication: it is corrected only while a dirtier is held back. A writer on the device without that
//! ([`end`](Bandwidth::end)) measures the device's speed and leaves the rate as it is.
//!
//! Simplified: one device, so its share of the limit is all of it; the limit follows no shrinking memory.

use crate::cache::PAGE_BYTES;
use crate::config::{MachineConfig, TICKS_PER_SECOND};

/// What the device is thought to write before anything is known: 100 MiB/s (`INIT_BW`).
const INITIAL_PAGES_PER_SECOND: u64 = 100 << 20 >> 12;
/// How often the estimates are corrected, ticks (`BANDWIDTH_INTERVAL`: a fifth of a second).
const INTERVAL_TICKS: u64 = TICKS_PER_SECOND / 5;
/// Over how long the written rate is averaged, ticks (three seconds, rounded up to a power of two).
const AVERAGE_TICKS: u64 = (3 * TICKS_PER_SECOND).next_power_of_two();
/// One, in the fixed-point numbers of `position_ratio` (`RATELIMIT_CALC_SHIFT`).
pub(super) const ONE: i64 = 1 << 10;
/// The device's own line falls to zero over what it writes in so many seconds (`wb_position_ratio`).
const SPAN_SECONDS: i64 = 8;

/// Pages since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PageTotals {
    /// Pages written.
    pub(crate) written: u64,
    /// Pages dirtied.
    pub(crate) dirtied: u64,
}

/// Thresholds and estimates.
#[derive(Clone, Debug)]
pub(crate) struct Bandwidth {
    /// Pages dirty from which the flusher writes.
    pub(crate) background_pages: u64,
    /// Pages dirty or being written that are never passed.
    pub(crate) limit_pages: u64,
    /// What the device writes, averaged once.
    pages_per_second: u64,
    /// The same, smoother.
    pub(crate) average_pages_per_second: u64,
    /// What one dirtier may dirty at the setpoint, pages per second (`dirty_ratelimit`).
    pub(crate) rate_limit: u64,
    balanced_rate_limit: u64,
    /// When the estimates were corrected, in ticks, and the totals then.
    updated: u64,
    before: PageTotals,
}

impl Bandwidth {
    pub(crate) fn new(config: &MachineConfig) -> Bandwidth {
        let memory = config.memory_bytes / PAGE_BYTES;
        let limit_pages = memory * u64::from(config.dirty_ratio) / 100;
        let background_pages = (memory * u64::from(config.dirty_background_ratio) / 100).min(limit_pages / 2);
        Bandwidth {
            background_pages,
            limit_pages,
            pages_per_second: INITIAL_PAGES_PER_SECOND,
            average_pages_per_second: INITIAL_PAGES_PER_SECOND,
            rate_limit: INITIAL_PAGES_PER_SECOND,
            balanced_rate_limit: INITIAL_PAGES_PER_SECOND,
            updated: 0,
            before: PageTotals::default(),
        }
    }

    /// Pages dirty up to which no dirtier is held back.
    pub(crate) fn freerun_pages(&self) -> u64 {
        u64::midpoint(self.limit_pages, self.background_pages)
    }

    fn setpoint_pages(&self) -> u64 {
        u64::midpoint(self.freerun_pages(), self.limit_pages)
    }

    /// By which factor to dirty faster (above [`ONE`]) or slower at `dirty` pages; 0 at the limit.
    pub(crate) fn position_ratio(&self, dirty: u64) -> i64 {
        if dirty >= self.limit_pages {
            return 0;
        }
        let (setpoint, limit, dirty) = (self.setpoint_pages() as i64, self.limit_pages as i64, dirty as i64);
        let x = (setpoint - dirty) * ONE / (limit - setpoint + 1);
        let cubic = (ONE + x * x / ONE * x / ONE).clamp(0, 2 * ONE);
        let span = (SPAN_SECONDS * self.average_pages_per_second as i64).max(1);
        let intercept = setpoint + span;
        if dirty < intercept - span / 4 { cubic * (intercept - dirty) / span } else { cubic / 4 }
    }

    /// Writing of a file begins. If nothing has been written for a while, what was measured before says nothing of now
    /// (`wb_bandwidth_estimate_start`).
    pub(crate) fn begin(&mut self, now: u64, totals: PageTotals, is_idle: bool) {
        if self.is_due(now) && is_idle {
            (self.updated, self.before) = (now, totals);
        }
    }

    /// Writing of a file has begun to its end: corrects the estimate of the device's speed, if it is time
    /// (`do_writepages`).
    pub(crate) fn end(&mut self, now: u64, totals: PageTotals) {
        if self.is_due(now) {
            self.update_written(now, totals);
        }
    }

    /// A dirtier is held back at `dirty` pages: corrects the rate as well, if it is time (`balance_dirty_pages`).
    pub(crate) fn balance(&mut self, now: u64, totals: PageTotals, dirty: u64) {
        if self.is_due(now) {
            let dirtied = totals.dirtied - self.before.dirtied;
            self.update_rate_limit(dirtied * TICKS_PER_SECOND / (now - self.updated), dirty);
            self.update_written(now, totals);
        }
    }

    fn is_due(&self, now: u64) -> bool {
        now > self.updated + INTERVAL_TICKS
    }

    fn update_written(&mut self, now: u64, totals: PageTotals) {
        let elapsed = now - self.updated;
        let written = (totals.written - self.before.written) * TICKS_PER_SECOND;
        (self.updated, self.before) = (now, totals);
        if elapsed > AVERAGE_TICKS {
            self.pages_per_second = written / elapsed;
            self.average_pages_per_second = self.pages_per_second.max(1);
            return;
        }
        let old = self.pages_per_second;
        let new = (written + old * (AVERAGE_TICKS - elapsed)) / AVERAGE_TICKS;
        let average = self.average_pages_per_second;
        if average > old && old >= new {
            self.average_pages_per_second -= (average - old) >> 3;
        } else if average < old && old <= new {
            self.average_pages_per_second += (old - average) >> 3;
        }
        self.pages_per_second = new;
    }

    fn update_rate_limit(&mut self, dirty_rate: u64, dirty: u64) {
        let limit = self.rate_limit;
        let task = (limit as i64 * self.position_ratio(dirty) / ONE) as u64 + 1;
        let written = self.average_pages_per_second;
        let balanced = (task * written / dirty_rate.max(1)).min(written);
        let previous = self.balanced_rate_limit;
        let mut step = if dirty < self.setpoint_pages() {
            previous.min(balanced).min(task).saturating_sub(limit)
        } else {
            limit.saturating_sub(previous.max(balanced).max(task))
        };
        // Small steps are noise: the smaller, the less of them is taken.
        step = step.checked_shr(u32::try_from(limit / (2 * step + 1)).unwrap_or(u32::MAX)).unwrap_or(0).div_ceil(8);
        self.rate_limit = if limit < balanced { limit + step } else { limit.saturating_sub(step).max(1) };
        self.balanced_rate_limit = balanced.max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bandwidth() -> Bandwidth {
        Bandwidth::new(&MachineConfig { memory_bytes: 16 << 30, ..MachineConfig::default() })
    }

    #[test]
    fn dirtiers_are_slowed_more_the_nearer_they_are_to_the_limit() {
        let bandwidth = bandwidth();
        let (freerun, limit) = (bandwidth.freerun_pages(), bandwidth.limit_pages);
        let ratios: Vec<_> =
            (0..=100).map(|n| bandwidth.position_ratio(freerun + (limit - freerun) * n / 100)).collect();
        assert!(ratios.is_sorted_by(|before, after| before >= after), "{ratios:?}");
        assert_eq!(ratios[100], 0);
        assert_eq!(ratios[50], ONE, "neither faster nor slower at the setpoint");
        assert!(ratios[0] >= 2 * ONE, "{}", ratios[0]);
    }

    #[test]
    fn the_estimates_come_to_what_the_device_writes_and_each_of_four_dirtiers_gets_a_quarter() {
        const DEVICE_PAGES_PER_SECOND: u64 = 8000;
        const DIRTIERS: u64 = 4;
        let mut bandwidth = bandwidth();
        let (mut totals, mut now) = (PageTotals::default(), 0);
        let mut dirty = bandwidth.freerun_pages();
        for _ in 0..600 {
            now += INTERVAL_TICKS + 1;
            let pages = |rate: u64| rate * (INTERVAL_TICKS + 1) / TICKS_PER_SECOND;
            let more = pages(bandwidth.rate_limit * bandwidth.position_ratio(dirty) as u64 / ONE as u64 * DIRTIERS);
            let less = pages(DEVICE_PAGES_PER_SECOND);
            totals = PageTotals { written: totals.written + less, dirtied: totals.dirtied + more };
            dirty = dirty + more - less;
            bandwidth.balance(now, totals, dirty);
        }
        let is_near = |value: u64, aim: u64| value.abs_diff(aim) < aim / 10;
        assert!(is_near(bandwidth.average_pages_per_second, DEVICE_PAGES_PER_SECOND), "{bandwidth:?}");
        assert!(is_near(bandwidth.rate_limit, DEVICE_PAGES_PER_SECOND / DIRTIERS), "{bandwidth:?}");
        assert!(dirty > bandwidth.freerun_pages() && dirty < bandwidth.limit_pages, "{dirty}, {bandwidth:?}");
    }

    #[test]
    fn the_devices_speed_is_measured_while_it_writes_and_what_was_before_a_rest_is_forgotten() {
        let mut bandwidth = bandwidth();
        let (before, rate_limit) = (bandwidth.average_pages_per_second, bandwidth.rate_limit);
        let rested = 100 * TICKS_PER_SECOND;
        bandwidth.begin(rested, PageTotals::default(), true);
        bandwidth.end(rested + INTERVAL_TICKS, PageTotals { written: 1, dirtied: 1 });
        assert_eq!(bandwidth.average_pages_per_second, before, "too early to say");
        let mut totals = PageTotals { written: 0, dirtied: 1 << 20 };
        for turn in 1..=100 {
            totals.written += 8000 * 2 / 5;
            let now = rested + turn * 2 * INTERVAL_TICKS;
            bandwidth.begin(now, totals, false);
            bandwidth.end(now, totals);
        }
        assert!(bandwidth.average_pages_per_second.abs_diff(8000) < 100, "{bandwidth:?}");
        assert_eq!(bandwidth.rate_limit, rate_limit, "no writer was held back");
        bandwidth.end(2 * rested + AVERAGE_TICKS, PageTotals { written: totals.written + 5000, ..totals });
        assert!(bandwidth.average_pages_per_second < 100, "after a long time at once: {bandwidth:?}");
    }
}
