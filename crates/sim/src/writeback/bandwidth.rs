//! How fast the device writes, how fast processes may dirty, and from when on: the arithmetic of Linux's
//! `mm/page-writeback.c` for one device, in whole pages and milliseconds (a kernel with HZ = 1000).
//!
//! Below the middle between background and limit nobody is held back (*freerun*). Above, a cubic curve around the
//! *setpoint*, half-way from there to the limit, says by which factor the rate of every dirtier is raised or lowered
//! ([`position_ratio`](Bandwidth::position_ratio)); the rate itself is corrected every 200 ms so that at the setpoint all
//! dirtiers together dirty what the device writes ([`update`](Bandwidth::update)).
//!
//! Simplified: one device, so its share of the limit is all of it; the limit follows no shrinking memory.

use crate::cache::PAGE_BYTES;
use crate::config::MachineConfig;

/// What the device is thought to write before anything is known: 100 MiB/s (`INIT_BW`).
const INITIAL_PAGES_PER_SECOND: u64 = 100 << 20 >> 12;
/// How often the estimates are corrected, milliseconds (`BANDWIDTH_INTERVAL`).
pub(super) const UPDATE_MS: u64 = 200;
/// Over how long the written rate is averaged, milliseconds (three seconds, rounded up to a power of two).
const AVERAGE_MS: u64 = 4096;
/// One, in the fixed-point numbers of `position_ratio` (`RATELIMIT_CALC_SHIFT`).
pub(super) const ONE: i64 = 1 << 10;
/// The device's own line falls to zero over what it writes in so many seconds (`wb_position_ratio`).
const SPAN_SECONDS: i64 = 8;

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
    updated_ms: u64,
    written: u64,
    dirtied: u64,
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
            updated_ms: 0,
            written: 0,
            dirtied: 0,
        }
    }

    /// Pages dirty up to which nobody is held back.
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

    /// Corrects the estimates, if it is time. `written` and `dirtied` are counts since the start.
    pub(crate) fn update(&mut self, now_ms: u64, written: u64, dirtied: u64, dirty: u64) {
        let elapsed_ms = now_ms - self.updated_ms;
        if elapsed_ms < UPDATE_MS {
            return;
        }
        // After a pause what was measured before says nothing of now (`bdi_update_bandwidth`: a second).
        if elapsed_ms <= 1000 {
            self.update_rate_limit((dirtied - self.dirtied) * 1000 / elapsed_ms, dirty);
            self.update_written((written - self.written) * 1000 / elapsed_ms, elapsed_ms);
        }
        (self.updated_ms, self.written, self.dirtied) = (now_ms, written, dirtied);
    }

    fn update_written(&mut self, rate: u64, elapsed_ms: u64) {
        let old = self.pages_per_second;
        let new = (rate * elapsed_ms + old * (AVERAGE_MS - elapsed_ms)) / AVERAGE_MS;
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
        let (mut written, mut dirtied, mut now_ms) = (0, 0, 0);
        let mut dirty = bandwidth.freerun_pages();
        for _ in 0..600 {
            now_ms += UPDATE_MS;
            let rate = bandwidth.rate_limit * bandwidth.position_ratio(dirty) as u64 / ONE as u64 * DIRTIERS;
            let (more, less) = (rate * UPDATE_MS / 1000, DEVICE_PAGES_PER_SECOND * UPDATE_MS / 1000);
            (written, dirtied, dirty) = (written + less, dirtied + more, dirty + more - less);
            bandwidth.update(now_ms, written, dirtied, dirty);
        }
        let is_near = |value: u64, aim: u64| value.abs_diff(aim) < aim / 10;
        assert!(is_near(bandwidth.average_pages_per_second, DEVICE_PAGES_PER_SECOND), "{bandwidth:?}");
        assert!(is_near(bandwidth.rate_limit, DEVICE_PAGES_PER_SECOND / DIRTIERS), "{bandwidth:?}");
        assert!(dirty > bandwidth.freerun_pages() && dirty < bandwidth.limit_pages, "{dirty}, {bandwidth:?}");
    }
}
