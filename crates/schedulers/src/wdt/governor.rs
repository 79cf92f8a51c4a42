//! How many credits a window brings: the predictor and the distributor of WDT (sections 3.2 and 3.3).
//!
//! **Intuition.** If the heaviest container can just use its budget, all credits together are what the device can do.
//! **Rule.** Every hundred milliseconds the governor notes what the heaviest active container used of its budget. Every
//! second it takes the 80th percentile of these, as if they were normally distributed, as that container's need. It
//! scales all credits so that its budget is that. The others' follow by weight.
//!
//! **Complication.** Use does not show too few credits, because use follows from them. The paper relies on the spread.
//! If the device's queue is visible, the host ends windows itself (`end_window`). It does so when the device runs dry
//! while a container waits, so that nothing is lost. It does not before all that ask have used their credits. In such
//! windows the heaviest counts as having used its budget, whether or not it asked for it: the device could have served
//! it. So a container that asks for less than its share says nothing about how fast the device is. A caller with
//! budgets for a second and not for a window ([`Governor::for_periods`]) needs the 80th percentile of ten windows'
//! mean. That has a smaller deviation.

use super::throttle::{CREDITS_PER_SECTOR, Throttle};
use plimsoll_core::{Span, Time};

/// A throttling window (section 4.1: 100 ms, as Linux's throttling layer has it).
pub const WINDOW: Span = Span::from_millis(100);
/// Between two predictions (section 4.1).
pub const PERIOD: Span = Span::from_secs(1);
/// Samples, one a window, between two predictions.
const SAMPLES_PER_PERIOD: u32 = (PERIOD.as_nanos() / WINDOW.as_nanos()) as u32;
/// Windows that end early share a sample until it is so long: what a device takes in at once would look like its speed.
const SAMPLE_MIN: Span = Span::from_millis(50);
/// Standard deviations above the mean of a normal distribution's 80th percentile: probit(0.8) (section 3.3).
const PROBIT_80: f64 = 0.841_621_233_572_914_3;
/// Never fewer credits a window than for a page.
const TOTAL_MIN: f64 = (8 * CREDITS_PER_SECTOR) as f64;
/// Never more: 2^30 sectors, half a terabyte in a tenth of a second.
const TOTAL_MAX: f64 = ((1i64 << 30) * CREDITS_PER_SECTOR) as f64;

/// The container that is measured.
#[derive(Clone, Copy, Debug)]
struct Heaviest {
    container: usize,
    /// When the measurement began: what it had taken, how often its weight had changed, how often its number had been
    /// closed.
    taken: i64,
    weight_changes: u64,
    closings: u64,
}

impl Heaviest {
    /// Begins to measure it; there is none if it is closed.
    fn measured(container: usize, throttle: &Throttle) -> Option<Heaviest> {
        let (taken, weight_changes) = (throttle.taken(container), throttle.weight_changes(container));
        let closings = throttle.closings(container);
        (throttle.weight(container) > 0).then_some(Heaviest { container, taken, weight_changes, closings })
    }

    /// Begins a new measurement, unless it has been closed, whichever container has its number now.
    fn again(self, throttle: &Throttle) -> Option<Heaviest> {
        Heaviest::measured(self.container, throttle).filter(|now| now.closings == self.closings)
    }

    /// Whether its weight is what it was: what was used under another one is no part of the budget of now.
    fn keeps_its_weight(&self, throttle: &Throttle) -> bool {
        throttle.weight_changes(self.container) == self.weight_changes
    }
}

/// Its owner decides when windows end; there is one beside each [`Throttle`].
#[derive(Debug)]
pub struct Governor {
    /// TotalCredit: credits that a window brings to all active containers.
    total: f64,
    window_ends: Time,
    /// Weight of those that were active in the period before.
    weight: u64,
    heaviest: Option<Heaviest>,
    /// Since when it is measured, and what it was given in windows that the host ended.
    measured_since: Time,
    given: i64,
    /// Parts of its budget that the heaviest used: how many, sum, sum of squares.
    samples: (u32, f64, f64),
    samples_left: u32,
    /// Windows that a budget lasts.
    windows_per_budget: u32,
}

impl Governor {
    /// One for a device that does `runs_per_second` pages a second at its worst: with these it starts.
    pub fn new(runs_per_second: f64) -> Governor {
        let sectors = runs_per_second * 8.0 * WINDOW.as_secs_f64();
        Governor {
            total: (sectors * CREDITS_PER_SECTOR as f64).clamp(TOTAL_MIN, TOTAL_MAX),
            window_ends: Time::ZERO,
            weight: 0,
            heaviest: None,
            measured_since: Time::ZERO,
            given: 0,
            samples: (0, 0.0, 0.0),
            samples_left: SAMPLES_PER_PERIOD,
            windows_per_budget: 1,
        }
    }

    /// One with budgets that are limits for a whole period, and without an end until the device is measured.
    pub fn for_periods() -> Governor {
        Governor { windows_per_budget: SAMPLES_PER_PERIOD, ..Governor::new(f64::MAX) }
    }

    /// When the window ends.
    pub fn window_ends(&self) -> Time {
        self.window_ends
    }

    /// TotalCredit in sectors a window.
    pub fn total_sectors(&self) -> f64 {
        self.total / CREDITS_PER_SECTOR as f64
    }

    /// Measures this one, of active containers with `weight` all together, instead of the roll's. It is for a caller
    /// that looks at all of them anyway. In place at once.
    pub fn measure(&mut self, container: Option<usize>, weight: u64, throttle: &Throttle) {
        self.heaviest = container.and_then(|container| Heaviest::measured(container, throttle));
        self.weight = weight;
        throttle.end_windows(0, self.unit(throttle));
    }

    /// Whether the window that ended last was a period's last one too, so that budgets are new.
    pub fn is_new_period(&self) -> bool {
        self.samples_left == SAMPLES_PER_PERIOD
    }

    /// Makes TotalCredit so many sectors a window, for a caller that sees more of the device than what was used. In
    /// place at once.
    pub fn set_total(&mut self, sectors: f64, throttle: &Throttle) {
        self.total = (sectors * CREDITS_PER_SECTOR as f64).clamp(TOTAL_MIN, TOTAL_MAX);
        throttle.end_windows(0, self.unit(throttle));
    }

    /// Ends the windows that are over at `now`; answers whether there were any.
    pub fn end_due(&mut self, now: Time, throttle: &Throttle) -> bool {
        if now < self.window_ends {
            return false;
        }
        let windows = now.since(self.window_ends).as_nanos() / WINDOW.as_nanos() + 1;
        if windows > 1 {
            // No container asked for a while: the time says nothing about what could have been used.
            self.begin_sample(now, throttle);
        }
        self.end(now, windows, throttle);
        self.window_ends += WINDOW * windows;
        true
    }

    /// Ends `windows` windows at once, because no container that asks has anything left before; the next one begins.
    pub fn end_window(&mut self, now: Time, windows: u64, throttle: &Throttle) {
        if let Some(heaviest) = self.heaviest {
            self.given += throttle.budget(heaviest.container).saturating_mul(windows as i64);
        }
        self.end(now, windows, throttle);
        self.window_ends = now + WINDOW;
    }

    fn end(&mut self, now: Time, windows: u64, throttle: &Throttle) {
        if now.since(self.measured_since) >= SAMPLE_MIN {
            self.sample(now, throttle);
        }
        if self.samples_left == 0 {
            self.predict(now, windows, throttle);
        }
        throttle.end_windows(windows, self.unit(throttle));
    }

    /// Credits for a unit of weight. Each container that was active in the last period or has come since has a share;
    /// while none is known to be active, each that is open.
    fn unit(&self, throttle: &Throttle) -> f64 {
        let weight = match self.weight + throttle.weight_joined() {
            0 => throttle.weight_open(),
            active => active,
        };
        throttle.count_weight(weight);
        self.total / weight.max(1) as f64
    }

    /// Notes what the heaviest used, as a part of its budget of now: a new container changes that. If its own weight
    /// has changed, or it is closed, what it used says nothing.
    fn sample(&mut self, now: Time, throttle: &Throttle) {
        let milliseconds = now.since(self.measured_since).as_millis_f64();
        let heaviest = self.heaviest.filter(|heaviest| heaviest.keeps_its_weight(throttle));
        if let Some(Heaviest { container, taken, .. }) = heaviest {
            let used = throttle.taken(container) - taken;
            let windows = milliseconds / WINDOW.as_millis_f64();
            let part = used.max(self.given) as f64 / windows / throttle.budget(container) as f64;
            if part > 0.0 {
                let (count, sum, squares) = self.samples;
                self.samples = (count + 1, sum + part, squares + part * part);
            }
        }
        // A window that took longer counts for as many: a period is a second.
        let windows = (milliseconds / WINDOW.as_millis_f64()).round().max(1.0);
        self.samples_left = self.samples_left.saturating_sub(windows as u32);
        self.begin_sample(now, throttle);
    }

    fn begin_sample(&mut self, now: Time, throttle: &Throttle) {
        self.heaviest = self.heaviest.and_then(|heaviest| heaviest.again(throttle));
        self.measured_since = now;
        self.given = 0;
    }

    /// TotalCredit' = TotalCredit * B_max' / B_max (section 3.3); then chooses the container that is measured next.
    fn predict(&mut self, now: Time, windows: u64, throttle: &Throttle) {
        let active = throttle.end_period(windows);
        let (count, sum, squares) = std::mem::take(&mut self.samples);
        if count > 0 {
            let mean = sum / f64::from(count);
            let deviation = (squares / f64::from(count) - mean * mean).max(0.0).sqrt();
            // Of the mean of so many windows.
            let deviation = deviation / f64::from(self.windows_per_budget).sqrt();
            self.total = (self.total * (mean + deviation * PROBIT_80)).clamp(TOTAL_MIN, TOTAL_MAX);
        }
        self.weight = active.weight;
        self.heaviest = active.heaviest.and_then(|(container, _)| Heaviest::measured(container, throttle));
        self.samples_left = SAMPLES_PER_PERIOD;
        self.begin_sample(now, throttle);
    }
}

#[cfg(test)]
mod tests {
    use super::super::throttle::Pocket;
    use super::*;

    const PERIOD: u64 = 10;

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + Span::from_millis(milliseconds)
    }

    /// Two containers, weights 3 and 1, that asked in the first period: the heaviest is known.
    fn measured() -> (Governor, Throttle, Pocket) {
        let (mut governor, mut throttle, mut pocket) = (Governor::new(100_000.0), Throttle::default(), Pocket::new(2));
        throttle.open(0, 300);
        throttle.open(1, 100);
        for window in 0..=PERIOD {
            governor.end_due(at(window * 100), &throttle);
            assert!(pocket.admit(&throttle, 0, 1) && pocket.admit(&throttle, 1, 1));
        }
        // What one page a window in the first period came to is forgotten.
        governor.total = 80_000.0 * CREDITS_PER_SECTOR as f64;
        governor.end_due(at(PERIOD * 100 + 100), &throttle);
        governor.samples = (0, 0.0, 0.0);
        governor.samples_left = SAMPLES_PER_PERIOD;
        (governor, throttle, pocket)
    }

    /// Uses these parts of the heaviest's budget, a window each, and answers with what became of TotalCredit.
    fn scaled(parts: [f64; PERIOD as usize]) -> f64 {
        let (mut governor, throttle, mut pocket) = measured();
        let before = governor.total_sectors();
        for (window, part) in (12..).zip(parts) {
            let sectors = throttle.budget(0) as f64 / CREDITS_PER_SECTOR as f64 * part;
            (0..sectors as u64).for_each(|_| assert!(pocket.admit(&throttle, 0, 1)));
            governor.end_due(at(window * 100), &throttle);
        }
        governor.total_sectors() / before
    }

    #[test]
    fn all_credits_follow_what_the_heaviest_used() {
        assert!((scaled([0.5; 10]) - 0.5).abs() < 0.01);
        assert!((scaled([1.0; 10]) - 1.0).abs() < 0.01);
        // Mean 0.8, deviation 0.1: the 80th percentile.
        let spread = std::array::from_fn(|window| if window % 2 == 0 { 0.7 } else { 0.9 });
        assert!((scaled(spread) - (0.8 + 0.1 * PROBIT_80)).abs() < 0.01);
    }

    #[test]
    fn windows_that_end_window_make_more_of_all() {
        let (mut governor, throttle, mut pocket) = measured();
        let before = governor.total_sectors();
        // Each lasts 25 ms; the heaviest asks for little, and its budget counts.
        for window in 1..=4 * PERIOD {
            assert!(pocket.admit(&throttle, 0, 300));
            governor.end_window(at(1100 + window * 25), 1, &throttle);
        }
        let scaled = governor.total_sectors() / before;
        assert!((scaled - 16.0).abs() < 0.5, "two periods of 20 windows, 4 times each: {scaled}");
    }

    /// Uses half of the heaviest's budget in each window of a period, and has `change` happen at the end of the first
    /// one. Answers with what became of TotalCredit, and with the container that is measured next.
    fn scaled_though(change: impl FnOnce(&mut Throttle)) -> (f64, Option<usize>) {
        let (mut governor, mut throttle, mut pocket) = measured();
        let before = governor.total_sectors();
        let use_half = |throttle: &Throttle, pocket: &mut Pocket| {
            let sectors = throttle.budget(0) / CREDITS_PER_SECTOR / 2;
            (0..sectors).for_each(|_| assert!(pocket.admit(throttle, 0, 1)));
        };
        use_half(&throttle, &mut pocket);
        change(&mut throttle);
        for window in 12..12 + PERIOD {
            governor.end_due(at(window * 100), &throttle);
            use_half(&throttle, &mut pocket);
        }
        (governor.total_sectors() / before, governor.heaviest.map(|heaviest| heaviest.container))
    }

    /// Was seen red where a sample is taken as a part of the budget of now: 300 times as much in one of ten.
    #[test]
    fn what_was_used_under_another_weight_is_no_part_of_the_budget_of_now() {
        for weight in [1, 30, 3000] {
            let (scaled, _) = scaled_though(|throttle| throttle.set_weight(0, weight));
            assert!((scaled - 0.5).abs() < 0.01, "{scaled} times with weight {weight}");
        }
    }

    #[test]
    fn a_closed_account_is_measured_no_longer_nor_is_the_next_with_its_number() {
        assert_eq!(scaled_though(|throttle| throttle.set_weight(0, 0)), (1.0, None));
        let next = |throttle: &mut Throttle| {
            throttle.set_weight(0, 0);
            throttle.open(0, 300);
        };
        assert_eq!(scaled_though(next).0, 1.0);
    }

    #[test]
    fn a_pause_says_nothing() {
        let (mut governor, throttle, mut pocket) = measured();
        let before = governor.total_sectors();
        for second in 2..30 {
            assert!(pocket.admit(&throttle, 0, 1000));
            governor.end_due(at(second * 1000), &throttle);
        }
        assert_eq!(governor.total_sectors(), before);
        assert_eq!(governor.window_ends(), at(29_100));
    }
}
