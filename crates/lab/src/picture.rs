//! A scenario's figure as SVG: what was measured, and the paper's points beside it as hollow circles.
//!
//! Both axes of a diagram are drawn in coordinates of their own (the logarithm, where asked), with ticks that are
//! chosen here: decades, round numbers, or the places that the scenario names.

use crate::scenario::{PanelKind, Scale};
use plimsoll_core::{ByteCount, Span};
use plotters::coord::Shift;
use plotters::coord::ranged1d::KeyPointHint;
use plotters::prelude::*;
use std::ops::Range;

/// Of one diagram, pixels.
const PANEL_PIXELS: (u32, u32) = (600, 420);
const TITLE_LINE_PIXELS: u32 = 24;
/// Estimated width of a letter of the title, pixels.
const TITLE_LETTER_PIXELS: u32 = 10;
const PANELS_PER_ROW: usize = 2;
const LEGEND_ROW_PIXELS: i32 = 20;
/// Estimated width of a letter of the legend, pixels.
const LETTER_PIXELS: i32 = 8;
const FONT: &str = "sans-serif";
/// Estimated width of a letter below an axis, and room between two texts there, pixels.
const TICK_LETTER_PIXELS: f64 = 8.0;
const TICK_GAP_PIXELS: f64 = 6.0;
/// What a panel has beside its horizontal axis, pixels.
const BESIDE_AXIS_PIXELS: u32 = 106;
/// Ticks on a linear axis, about.
const TICKS: f64 = 6.0;
/// Part of a place that its bars take together.
const BARS_WIDTH: f64 = 0.8;
/// Smallest value that a logarithmic axis shows where nothing is measured above zero.
const LOG_FLOOR: f64 = 1e-9;
/// Colours that are told apart by the colour-blind too (Okabe and Ito, 2008), black last.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 120, 120),
    RGBColor(0, 0, 0),
];

/// A figure.
#[derive(Clone, Debug, Default)]
pub struct Drawing {
    /// Above everything.
    pub title: String,
    /// Diagrams.
    pub panels: Vec<DrawnPanel>,
}

/// A diagram.
#[derive(Clone, Debug)]
pub struct DrawnPanel {
    /// Above it.
    pub title: String,
    /// What it is.
    pub kind: PanelKind,
    /// Horizontal.
    pub x: Scale,
    /// Vertical.
    pub y: Scale,
    /// Names of places on the horizontal axis, for lines and bars.
    pub over: Vec<String>,
    /// What is drawn.
    pub series: Vec<DrawnSeries>,
}

/// One line, set of bars or curve.
#[derive(Clone, Debug)]
pub struct DrawnSeries {
    /// In the legend.
    pub label: String,
    /// What was measured.
    pub points: Vec<Point>,
    /// What the paper has.
    pub paper: Vec<(f64, f64)>,
}

/// One measured point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Where.
    pub x: f64,
    /// How much.
    pub y: f64,
    /// Half of its confidence interval.
    pub half_width: Option<f64>,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Where a place such as `64`, `4KiB` or `20ms` is on an axis: the number, bytes, or seconds.
pub fn place(text: &str) -> Option<f64> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
    let bytes = || text.parse::<ByteCount>().ok().map(|bytes| bytes.0 as f64);
    number.or_else(bytes).or_else(|| text.parse::<Span>().ok().map(Span::as_secs_f64))
}

/// Draws `drawing`; `None` if it has no diagrams.
///
/// # Panics
/// Never: drawing into memory does not fail.
pub fn svg(drawing: &Drawing) -> Option<String> {
    if drawing.panels.is_empty() {
        return None;
    }
    let columns = drawing.panels.len().min(PANELS_PER_ROW);
    let rows = drawing.panels.len().div_ceil(columns);
    let width = PANEL_PIXELS.0 * columns as u32;
    let title = wrapped(&drawing.title, (width / TITLE_LETTER_PIXELS) as usize);
    let title_pixels = TITLE_LINE_PIXELS * title.len() as u32 + TITLE_LINE_PIXELS / 2;
    let size = (width, PANEL_PIXELS.1 * rows as u32 + title_pixels);
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        draw(&area, &title, title_pixels, &drawing.panels, (rows, columns)).expect("memory takes what is drawn");
    }
    Some(text)
}

/// `text` in lines of at most `letters_max` letters, longer words alone.
fn wrapped(text: &str, letters_max: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always one");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > letters_max {
            lines.push(word.to_owned());
        } else {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        }
    }
    lines
}

fn draw(area: &Area<'_>, title: &[String], title_pixels: u32, panels: &[DrawnPanel], grid: (usize, usize)) -> Drawn {
    area.fill(&WHITE)?;
    let (head, body) = area.split_vertically(title_pixels);
    for (line, text) in title.iter().enumerate() {
        head.draw(&Text::new(text.clone(), (16, 8 + line as i32 * TITLE_LINE_PIXELS as i32), (FONT, 18)))?;
    }
    for (place, panel) in body.split_evenly(grid).iter().zip(panels) {
        draw_panel(place, panel)?;
    }
    area.present()?;
    Ok(())
}

/// An axis: where values stand, its range, and its ticks with their texts.
struct Axis {
    is_log: bool,
    range: Range<f64>,
    ticks: Vec<(f64, String)>,
}

impl Axis {
    fn at(&self, value: f64) -> f64 {
        if self.is_log { value.max(LOG_FLOOR).log10() } else { value }
    }

    fn clamped(&self, value: f64) -> f64 {
        self.at(value).clamp(self.range.start, self.range.end)
    }

    /// An axis that shows `values`, from zero on unless it is logarithmic.
    fn of_values(values: &[f64], is_log: bool) -> Axis {
        let highest = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        if is_log {
            let lowest = values.iter().copied().filter(|&value| value > 0.0).fold(highest, f64::min);
            let (low, high) = (lowest.log10().floor(), highest.log10().ceil());
            let high = if high > low { high } else { low + 1.0 };
            let step = ((high - low) / TICKS).ceil().max(1.0);
            let count = ((high - low) / step).floor() as usize;
            let ticks = (0..=count).map(|tick| low + tick as f64 * step).map(|at| (at, short(10f64.powf(at))));
            return Axis { is_log, range: low..high, ticks: ticks.collect() };
        }
        let lowest = values.iter().copied().fold(0.0, f64::min);
        let step = round_step((highest - lowest) / TICKS);
        let (low, high) = ((lowest / step).floor() * step, ((highest * 1.02) / step).ceil() * step);
        let count = ((high - low) / step).round() as usize;
        let ticks = (0..=count).map(|tick| low + tick as f64 * step).map(|at| (at, short(at)));
        Axis { is_log, range: low..high, ticks: ticks.collect() }
    }

    /// An axis with a tick at each of `places`.
    fn of_places(places: &[(f64, String)], is_log: bool) -> Axis {
        let mut axis = Axis { is_log, range: 0.0..1.0, ticks: Vec::new() };
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

    /// Names at 0, 1, 2 and so on.
    fn of_names(names: &[String]) -> Axis {
        let ticks = names.iter().enumerate().map(|(index, name)| (index as f64, name.clone())).collect();
        Axis { is_log: false, range: -0.5..names.len() as f64 - 0.5, ticks }
    }

    fn text(&self, at: f64) -> String {
        let nearest = self.ticks.iter().min_by(|a, b| (a.0 - at).abs().total_cmp(&(b.0 - at).abs()));
        nearest.map_or_else(String::new, |(_, text)| text.clone())
    }

    fn coordinate(
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

fn draw_panel(area: &Area<'_>, panel: &DrawnPanel) -> Drawn {
    let (x, y) = axes(panel);
    let (legend, chart_area) = area.split_vertically(34 + legend_height(panel));
    legend.draw(&Text::new(panel.title.clone(), (24, 8), (FONT, 16)))?;
    draw_legend(&legend, panel)?;
    let mut chart = ChartBuilder::on(&chart_area);
    chart.margin(6).margin_right(24).x_label_area_size(46).y_label_area_size(70);
    let mut chart = chart.build_cartesian_2d(x.coordinate(), y.coordinate())?;
    let (x_text, y_text) = (|at: &f64| x.text(*at), |at: &f64| y.text(*at));
    let mut mesh = chart.configure_mesh();
    mesh.x_desc(panel.x.label.clone()).y_desc(panel.y.label.clone());
    mesh.x_label_formatter(&x_text).y_label_formatter(&y_text).disable_x_mesh();
    mesh.light_line_style(TRANSPARENT).label_style((FONT, 13)).axis_desc_style((FONT, 14)).draw()?;
    let width = BARS_WIDTH / panel.series.len().max(1) as f64;
    for (number, series) in panel.series.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let shift = if panel.kind == PanelKind::Bars { (number as f64 + 0.5) * width - BARS_WIDTH / 2.0 } else { 0.0 };
        let at = |point: &Point| (x.at(point.x) + shift, y.clamped(point.y));
        match panel.kind {
            PanelKind::Bars => {
                chart.draw_series(series.points.iter().map(|point| {
                    let ((x, top), half) = (at(point), width * 0.46);
                    Rectangle::new([(x - half, y.range.start), (x + half, top)], colour.filled())
                }))?;
            }
            PanelKind::Lines | PanelKind::Curve => {
                let line: Vec<(f64, f64)> = series.points.iter().map(at).collect();
                chart.draw_series(LineSeries::new(line.clone(), colour.stroke_width(2)))?;
                if panel.kind == PanelKind::Lines {
                    chart.draw_series(line.into_iter().map(|place| Circle::new(place, 3, colour.filled())))?;
                }
            }
        }
        let intervals = series.points.iter().filter_map(|point| {
            let half = point.half_width?;
            let x = at(point).0;
            Some(PathElement::new(vec![(x, y.clamped(point.y - half)), (x, y.clamped(point.y + half))], BLACK.mix(0.7)))
        });
        chart.draw_series(intervals)?;
        let paper = series.paper.iter().map(|&(at, value)| (x.at(at) + shift, y.clamped(value)));
        chart.draw_series(paper.map(|place| Circle::new(place, 5, BLACK.stroke_width(3))).collect::<Vec<_>>())?;
        let paper = series.paper.iter().map(|&(at, value)| (x.at(at) + shift, y.clamped(value)));
        chart.draw_series(paper.map(|place| Circle::new(place, 4, colour.mix(0.25).filled())))?;
    }
    Ok(())
}

fn axes(panel: &DrawnPanel) -> (Axis, Axis) {
    let ys: Vec<f64> = panel
        .series
        .iter()
        .flat_map(|series| {
            let measured = series.points.iter().map(|point| point.y + point.half_width.unwrap_or(0.0));
            measured.chain(series.paper.iter().map(|point| point.1))
        })
        .collect();
    let x = match panel.kind {
        PanelKind::Bars => Axis::of_names(&panel.over),
        PanelKind::Lines => {
            let places: Vec<_> = panel.over.iter().filter_map(|text| Some((place(text)?, text.clone()))).collect();
            Axis::of_places(&places, panel.x.is_log)
        }
        PanelKind::Curve => {
            let measured = panel.series.iter().flat_map(|series| series.points.iter().map(|point| point.x));
            let paper = panel.series.iter().flat_map(|series| series.paper.iter().map(|point| point.0));
            let places: Vec<f64> = measured.chain(paper).collect();
            let mut axis = Axis::of_values(&places, panel.x.is_log);
            if !panel.x.is_log {
                // A curve goes from edge to edge: nothing is said about the time after its end.
                axis.range.end = places.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
                axis.ticks.retain(|tick| tick.0 <= axis.range.end);
            }
            axis
        }
    };
    (x, Axis::of_values(&ys, panel.y.is_log))
}

/// Texts of the legend and their places, in rows that fit the panel.
fn legend_entries(panel: &DrawnPanel) -> Vec<(i32, i32, String, Option<RGBColor>)> {
    let has_paper = panel.series.iter().any(|series| !series.paper.is_empty());
    let named =
        panel.series.iter().enumerate().map(|(n, series)| (series.label.clone(), Some(COLOURS[n % COLOURS.len()])));
    let (mut x, mut row, mut entries) = (24, 0, Vec::new());
    for (text, colour) in named.chain(has_paper.then(|| ("the paper's".to_owned(), None))) {
        let width = 26 + text.chars().count() as i32 * LETTER_PIXELS;
        if x > 24 && x + width > PANEL_PIXELS.0 as i32 {
            (x, row) = (24, row + 1);
        }
        entries.push((x, row, text, colour));
        x += width;
    }
    entries
}

fn legend_height(panel: &DrawnPanel) -> u32 {
    let rows = legend_entries(panel).last().map_or(0, |entry| entry.1 + 1);
    (rows * LEGEND_ROW_PIXELS) as u32
}

fn draw_legend(area: &Area<'_>, panel: &DrawnPanel) -> Drawn {
    for (x, row, text, colour) in legend_entries(panel) {
        let y = 30 + row * LEGEND_ROW_PIXELS;
        match colour {
            Some(colour) => area.draw(&Rectangle::new([(x, y + 2), (x + 12, y + 12)], colour.filled()))?,
            None => area.draw(&Circle::new((x + 6, y + 7), 5, BLACK.stroke_width(1)))?,
        }
        area.draw(&Text::new(text, (x + 18, y), (FONT, 13)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_the_values() {
        let texts = |axis: &Axis| axis.ticks.iter().map(|tick| tick.1.clone()).collect::<Vec<_>>();
        let axis = Axis::of_values(&[3.0, 97.0], false);
        assert_eq!(texts(&axis), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(axis.range, 0.0..100.0);
        let axis = Axis::of_values(&[0.02, 300.0], true);
        assert_eq!(texts(&axis), ["0.01", "0.1", "1", "10", "100", "1000"]);
        assert_eq!(axis.at(100.0), 2.0);
        assert_eq!(axis.clamped(1e9), 3.0);
        assert_eq!([0.11, 0.2, 0.3, 7.0].map(round_step), [0.2, 0.2, 0.5, 10.0]);
        assert!(Axis::of_values(&[], true).range.end.is_finite());
    }

    /// Loads of a scenario that lie close together at the end. Planted break: all texts stay.
    #[test]
    fn texts_of_ticks_are_not_on_top_of_each_other() {
        let texts = |places: &[f64]| {
            let places: Vec<_> = places.iter().map(|place| (*place, place.to_string())).collect();
            Axis::of_places(&places, false).ticks.into_iter().map(|tick| tick.1).collect::<Vec<_>>()
        };
        let shown = texts(&[24000.0, 32020.0, 39980.0, 42000.0, 44020.0, 45600.0, 47040.0, 48000.0]);
        assert_eq!(shown, ["24000", "32020", "39980", "", "44020", "", "", "48000"]);
        assert_eq!(texts(&[1.0, 2.0, 3.0]), ["1", "2", "3"]);
        assert_eq!(texts(&[7.0]), ["7"]);
    }

    #[test]
    fn long_titles_are_wrapped_and_nothing_is_lost() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("extraordinarily long", 5), ["extraordinarily", "long"]);
        assert_eq!(wrapped("", 5), [""]);
    }

    #[test]
    fn places_are_numbers_sizes_and_times() {
        assert_eq!(["64", "4KiB", "20ms", "fast"].map(place), [Some(64.0), Some(4096.0), Some(0.02), None]);
    }
}
