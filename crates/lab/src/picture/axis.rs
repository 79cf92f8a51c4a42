//! The axes of a diagram, and their ticks: decades, round numbers, or the places that the scenario names.

use super::{BESIDE_AXIS_PIXELS, PANEL_PIXELS, TICK_GAP_PIXELS};
use plotters::coord::ranged1d::KeyPointHint;
use plotters::prelude::Ranged;
use std::ops::Range;

/// Estimated width of a letter below an axis, pixels.
const TICK_LETTER_PIXELS: f64 = 8.0;
/// Ticks on a linear axis, about.
const TICKS: f64 = 6.0;
/// Smallest value that a logarithmic axis shows where nothing is measured above zero.
const LOG_FLOOR: f64 = 1e-9;

/// An axis: where values stand, its range, and its ticks with their texts.
pub(super) struct ScaledAxis {
    pub(super) is_log: bool,
    pub(super) range: Range<f64>,
    pub(super) ticks: Vec<(f64, String)>,
}

impl ScaledAxis {
    pub(super) fn at(&self, value: f64) -> f64 {
        if self.is_log { value.max(LOG_FLOOR).log10() } else { value }
    }

    pub(super) fn clamped(&self, value: f64) -> f64 {
        self.at(value).clamp(self.range.start, self.range.end)
    }

    /// An axis that shows `values`, from zero on unless it is logarithmic.
    pub(super) fn of_values(values: &[f64], is_log: bool) -> ScaledAxis {
        let highest = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        if is_log {
            let lowest = values.iter().copied().filter(|&value| value > 0.0).fold(highest, f64::min);
            let (low, high) = (lowest.log10().floor(), highest.log10().ceil());
            let high = if high > low { high } else { low + 1.0 };
            let step = ((high - low) / TICKS).ceil().max(1.0);
            let count = ((high - low) / step).floor() as usize;
            let ticks = (0..=count).map(|tick| low + tick as f64 * step).map(|at| (at, short(10f64.powf(at))));
            return ScaledAxis { is_log, range: low..high, ticks: ticks.collect() };
        }
        let lowest = values.iter().copied().fold(0.0, f64::min);
        let step = round_step((highest - lowest) / TICKS);
        let (low, high) = ((lowest / step).floor() * step, ((highest * 1.02) / step).ceil() * step);
        let count = ((high - low) / step).round() as usize;
        let ticks = (0..=count).map(|tick| low + tick as f64 * step).map(|at| (at, short(at)));
        ScaledAxis { is_log, range: low..high, ticks: ticks.collect() }
    }

    /// An axis with a tick at each of `places`.
    pub(super) fn of_places(places: &[(f64, String)], is_log: bool) -> ScaledAxis {
        let mut axis = ScaledAxis { is_log, range: 0.0..1.0, ticks: Vec::new() };
        axis.ticks = places.iter().map(|(value, text)| (axis.at(*value), text.clone())).collect();
        let low = axis.ticks.iter().map(|tick| tick.0).fold(f64::INFINITY, f64::min);
        let high = axis.ticks.iter().map(|tick| tick.0).fold(f64::NEG_INFINITY, f64::max);
        let margin = if high > low { (high - low) * 0.05 } else { 0.5 };
        axis.range = low - margin..high + margin;
        axis.leave_out_texts(f64::from(PANEL_PIXELS.0 - BESIDE_AXIS_PIXELS));
        axis
    }

    /// Leaves out the texts of ticks that would be on top of others on an axis of so many pixels. The last one stays.
    fn leave_out_texts(&mut self, pixels: f64) {
        let a_pixel = (self.range.end - self.range.start) / pixels;
        let half = |text: &str| (text.chars().count() as f64 * TICK_LETTER_PIXELS + TICK_GAP_PIXELS) / 2.0 * a_pixel;
        self.ticks.sort_by(|a, b| a.0.total_cmp(&b.0));
        let Some((last, before)) = self.ticks.split_last_mut() else { return };
        let end = last.0 - half(&last.1);
        let mut free_from = f64::NEG_INFINITY;
        for (at, text) in before {
            let half = half(text);
            if *at - half < free_from || *at + half > end {
                text.clear();
            } else {
                free_from = *at + half;
            }
        }
    }

    /// So many places for names, at 0, 1, 2 and so on. The names are drawn by themselves.
    pub(super) fn of_names(count: usize) -> ScaledAxis {
        let ticks = (0..count).map(|index| (index as f64, String::new())).collect();
        ScaledAxis { is_log: false, range: -0.5..count as f64 - 0.5, ticks }
    }

    pub(super) fn text(&self, at: f64) -> String {
        let nearest = self.ticks.iter().min_by(|a, b| (a.0 - at).abs().total_cmp(&(b.0 - at).abs()));
        nearest.map_or_else(String::new, |(_, text)| text.clone())
    }

    pub(super) fn coordinate(
        &self,
    ) -> impl Ranged<ValueType = f64, FormatOption = plotters::coord::ranged1d::DefaultFormatting> + use<> {
        Ticked { range: self.range.clone(), ticks: self.ticks.iter().map(|tick| tick.0).collect() }
    }
}

/// A range with chosen ticks, as plotters wants it.
struct Ticked {
    range: Range<f64>,
    ticks: Vec<f64>,
}

impl Ranged for Ticked {
    type FormatOption = plotters::coord::ranged1d::DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let part = (value - self.range.start) / (self.range.end - self.range.start);
        limit.0 + (part * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

/// 1, 2 or 5 times a power of ten, at least `least`.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.max(f64::MIN_POSITIVE).log10().floor());
    [1.0, 2.0, 5.0].iter().map(|factor| factor * power).find(|step| *step >= least * 0.999).unwrap_or(10.0 * power)
}

/// A tick's value, without the dust of binary fractions.
fn short(value: f64) -> String {
    let size = value.abs();
    if size >= 1e6 || (size > 0.0 && size < 1e-3) {
        format!("{value:e}")
    } else {
        ((value * 1e6).round() / 1e6).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_the_values() {
        let texts = |axis: &ScaledAxis| axis.ticks.iter().map(|tick| tick.1.clone()).collect::<Vec<_>>();
        let axis = ScaledAxis::of_values(&[3.0, 97.0], false);
        assert_eq!(texts(&axis), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(axis.range, 0.0..100.0);
        let axis = ScaledAxis::of_values(&[0.02, 300.0], true);
        assert_eq!(texts(&axis), ["0.01", "0.1", "1", "10", "100", "1000"]);
        assert_eq!(axis.at(100.0), 2.0);
        assert_eq!(axis.clamped(1e9), 3.0);
        assert_eq!([0.11, 0.2, 0.3, 7.0].map(round_step), [0.2, 0.2, 0.5, 10.0]);
        assert!(ScaledAxis::of_values(&[], true).range.end.is_finite());
    }

    /// Loads of a scenario that lie close together at the end. Planted break: all texts stay.
    #[test]
    fn texts_of_ticks_are_not_on_top_of_each_other() {
        let texts = |places: &[f64]| {
            let places: Vec<_> = places.iter().map(|place| (*place, place.to_string())).collect();
            ScaledAxis::of_places(&places, false).ticks.into_iter().map(|tick| tick.1).collect::<Vec<_>>()
        };
        let shown = texts(&[24000.0, 32020.0, 39980.0, 42000.0, 44020.0, 45600.0, 47040.0, 48000.0]);
        assert_eq!(shown, ["24000", "32020", "39980", "", "44020", "", "", "48000"]);
        assert_eq!(texts(&[1.0, 2.0, 3.0]), ["1", "2", "3"]);
        assert_eq!(texts(&[7.0]), ["7"]);
    }
}
