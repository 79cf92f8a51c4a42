//! A scenario's figure as SVG: what was measured, and the paper's points beside it as hollow circles.
//!
//! Both axes of a diagram are drawn in coordinates of their own (the logarithm, where asked), with ticks that are
//! chosen in `axis`.

mod axis;
mod names;

use crate::scenario::{PanelKind, Scale};
use axis::ScaledAxis;
use names::Names;
use plimsoll_core::{ByteCount, Span};
use plotters::coord::Shift;
use plotters::prelude::*;

/// Of one diagram, pixels.
const PANEL_PIXELS: (u32, u32) = (600, 420);
const TITLE_LINE_PIXELS: u32 = 24;
/// Estimated width of a letter of the title, pixels.
const TITLE_LETTER_PIXELS: u32 = 10;
const PANELS_PER_ROW: usize = 2;
const LEGEND_ROW_PIXELS: i32 = 20;
/// Estimated width of a letter of a panel's title and of the legend, pixels.
const LETTER_PIXELS: i32 = 8;
const PANEL_TITLE_LINE_PIXELS: u32 = 20;
/// From where a panel's title and legend go, pixels.
const PANEL_LEFT_PIXELS: i32 = 24;
const FONT: &str = "sans-serif";
const TICK_GAP_PIXELS: f64 = 6.0;
/// What a panel has beside its horizontal axis, pixels.
const BESIDE_AXIS_PIXELS: u32 = 106;
/// Below a horizontal axis without its texts' further lines, pixels.
const BELOW_AXIS_PIXELS: u32 = 46;
/// Part of a place that its bars take together.
const BARS_WIDTH: f64 = 0.8;
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

fn draw_panel(area: &Area<'_>, panel: &DrawnPanel) -> Drawn {
    let (x, y) = axes(panel);
    let (_, below_title) = area.split_vertically(draw_title(area, &panel.title)?);
    let (legend, chart_area) = below_title.split_vertically(6 + legend_height(panel));
    draw_legend(&legend, panel)?;
    let names = (panel.kind == PanelKind::Bars).then(|| Names::of(&panel.over));
    let below = BELOW_AXIS_PIXELS + names.as_ref().map_or(0, Names::more_pixels);
    let mut chart = ChartBuilder::on(&chart_area);
    chart.margin(6).margin_right(24).x_label_area_size(below).y_label_area_size(70);
    let mut chart = chart.build_cartesian_2d(x.coordinate(), y.coordinate())?;
    let (x_text, y_text) = (|at: &f64| x.text(*at), |at: &f64| y.text(*at));
    let mut mesh = chart.configure_mesh();
    mesh.x_desc(panel.x.label.clone()).y_desc(panel.y.label.clone());
    mesh.x_label_formatter(&x_text).y_label_formatter(&y_text).disable_x_mesh();
    mesh.light_line_style(TRANSPARENT).label_style((FONT, 13)).axis_desc_style((FONT, 14)).draw()?;
    if let Some(names) = &names {
        let origin = chart_area.get_base_pixel();
        names.draw(&chart_area, |number| {
            let (x, y) = chart.backend_coord(&(number as f64, y.range.start));
            (x - origin.0, y - origin.1)
        })?;
    }
    let width = BARS_WIDTH / panel.series.len().max(1) as f64;
    for (number, series) in panel.series.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let shift = if panel.kind == PanelKind::Bars { (number as f64 + 0.5) * width - BARS_WIDTH / 2.0 } else { 0.0 };
        let at = |point: &Point| (x.at(point.x) + shift, y.clamped(point.y));
        match panel.kind {
            PanelKind::Bars => {
                chart.draw_series(series.points.iter().map(|point| {
                    let ((x, top), half) = (at(point), width * 0.46);
                    Rectangle::new([(x - half, y.clamped(0.0)), (x + half, top)], colour.filled())
                }))?;
            }
            PanelKind::Lines | PanelKind::Curve => {
                let line: Vec<(f64, f64)> = series.points.iter().map(at).collect();
                chart.draw_series(LineSeries::new(line.clone(), colour.stroke_width(2)))?;
                // One point makes no line.
                if panel.kind == PanelKind::Lines || line.len() == 1 {
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

/// Draws a panel's title, in as many lines as it takes; answers with its height.
fn draw_title(area: &Area<'_>, title: &str) -> Result<u32, Box<dyn std::error::Error>> {
    let letters_max = (PANEL_PIXELS.0 as i32 - 2 * PANEL_LEFT_PIXELS) / LETTER_PIXELS;
    let mut below = 8;
    for line in wrapped(title, letters_max as usize) {
        area.draw(&Text::new(line, (PANEL_LEFT_PIXELS, below as i32), (FONT, 16)))?;
        below += PANEL_TITLE_LINE_PIXELS;
    }
    Ok(below)
}

fn axes(panel: &DrawnPanel) -> (ScaledAxis, ScaledAxis) {
    let ys: Vec<f64> = panel
        .series
        .iter()
        .flat_map(|series| {
            let measured = series.points.iter().map(|point| point.y + point.half_width.unwrap_or(0.0));
            measured.chain(series.paper.iter().map(|point| point.1))
        })
        .collect();
    let x = match panel.kind {
        PanelKind::Bars => ScaledAxis::of_names(panel.over.len()),
        PanelKind::Lines => {
            let places: Vec<_> = panel.over.iter().filter_map(|text| Some((place(text)?, text.clone()))).collect();
            ScaledAxis::of_places(&places, panel.x.is_log)
        }
        PanelKind::Curve => {
            let measured = panel.series.iter().flat_map(|series| series.points.iter().map(|point| point.x));
            let paper = panel.series.iter().flat_map(|series| series.paper.iter().map(|point| point.0));
            let places: Vec<f64> = measured.chain(paper).collect();
            let mut axis = ScaledAxis::of_values(&places, panel.x.is_log);
            if !panel.x.is_log {
                // A curve goes from edge to edge: nothing is said about the time after its end.
                axis.range.end = places.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
                axis.ticks.retain(|tick| tick.0 <= axis.range.end);
            }
            axis
        }
    };
    (x, ScaledAxis::of_values(&ys, panel.y.is_log))
}

/// Texts of the legend and their places, in rows that fit the panel.
fn legend_entries(panel: &DrawnPanel) -> Vec<(i32, i32, String, Option<RGBColor>)> {
    let has_paper = panel.series.iter().any(|series| !series.paper.is_empty());
    let named =
        panel.series.iter().enumerate().map(|(n, series)| (series.label.clone(), Some(COLOURS[n % COLOURS.len()])));
    let (mut x, mut row, mut entries) = (PANEL_LEFT_PIXELS, 0, Vec::new());
    for (text, colour) in named.chain(has_paper.then(|| ("the paper's".to_owned(), None))) {
        let width = 26 + text.chars().count() as i32 * LETTER_PIXELS;
        if x > 24 && x + width > PANEL_PIXELS.0 as i32 {
            (x, row) = (PANEL_LEFT_PIXELS, row + 1);
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
        let y = 2 + row * LEGEND_ROW_PIXELS;
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

    /// A picture of one diagram with two bars.
    fn drawn(title: &str, heights: [f64; 2]) -> String {
        let points = heights.iter().zip(0u8..).map(|(y, x)| Point { x: x.into(), y: *y, half_width: None }).collect();
        let panel = DrawnPanel {
            title: title.to_owned(),
            kind: PanelKind::Bars,
            x: Scale::default(),
            y: Scale::default(),
            over: vec!["a".to_owned(), "b".to_owned()],
            series: vec![DrawnSeries { label: String::new(), points, paper: Vec::new() }],
        };
        svg(&Drawing { title: String::new(), panels: vec![panel] }).unwrap()
    }

    /// Planted break: it is drawn in one line, over the diagram beside it.
    #[test]
    fn a_long_title_stays_in_its_diagram() {
        let title = "every word of this title is to be read ".repeat(5);
        let drawn = drawn(&title, [1.0, 2.0]);
        let lines: Vec<&str> =
            drawn.lines().filter(|line| title.contains(line.trim()) && line.contains("this")).collect();
        assert!(lines.len() >= 3 && lines.iter().all(|line| line.len() < 75), "{lines:?}");
        assert_eq!(lines.iter().flat_map(|line| line.split_whitespace()).count(), title.split_whitespace().count());
    }

    /// A value below zero hangs from zero. Planted break: bars begin where the axis does.
    #[test]
    fn bars_begin_at_zero() {
        let drawn = drawn("", [-10.0, 5.0]);
        let attribute = |line: &str, name: &str| -> Option<f64> {
            line.split(&format!(" {name}=\"")).nth(1)?.split('"').next()?.parse().ok()
        };
        let bars: Vec<(f64, f64)> = drawn
            .lines()
            .filter(|line| line.starts_with("<rect") && line.contains("#0072B2"))
            .filter_map(|line| Some((attribute(line, "y")?, attribute(line, "height")?)))
            .filter(|(_, height)| *height > 12.0)
            .collect();
        let [(below, _), (above, height)] = bars[..] else { panic!("two bars: {bars:?}") };
        assert!((above + height - below).abs() <= 1.0, "{bars:?}");
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
