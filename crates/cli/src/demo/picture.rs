//! The demo as a picture: every transaction by its latency, and each tenant's part of the disk.

use super::report::{Report, Sample, StageReport};
use super::tenant::Transaction;
use crate::outcome::Failure;
use plotters::coord::Shift;
use plotters::prelude::*;
use std::ops::Range;
use std::path::Path;

const SIZE_PIXELS: (u32, u32) = (1000, 720);
/// Latencies shown, milliseconds.
const LATENCY_MS: Range<f64> = 1.0..10_000.0;
const TRANSACTIONS: RGBColor = RGBColor(0, 90, 156);
const BACKUP: RGBColor = RGBColor(200, 110, 0);
const RESERVE: RGBColor = RGBColor(0, 130, 60);
const SHADE: RGBColor = RGBColor(242, 242, 242);
/// Behind seconds that don't count.
const LATE_SHADE: RGBColor = RGBColor(252, 226, 222);

type Panel<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Draws `report` into an SVG file.
///
/// # Errors
/// The file cannot be written.
pub fn draw(report: &Report, transactions: &[Transaction], path: &Path) -> Result<(), Failure> {
    let drawn = draw_panels(report, transactions, path);
    drawn.map_err(|error| Failure::Failed(format!("draw {}: {error}", path.display())))
}

fn draw_panels(report: &Report, transactions: &[Transaction], path: &Path) -> Drawn {
    let area = SVGBackend::new(path, SIZE_PIXELS).into_drawing_area();
    area.fill(&WHITE)?;
    let title = format!("A small writer beside a backup, on one disk ({})", report.device);
    let area = area.titled(&title, ("sans-serif", 24))?;
    let panels = area.split_evenly((3, 1));
    let end_s = report.stages.last().and_then(|stage| stage.samples.last()).map_or(1.0, |sample| sample.end_s);
    latencies(&panels[0], report, transactions, end_s)?;
    rates(&panels[1], report, end_s)?;
    backup(&panels[2], report, end_s)?;
    area.present()?;
    Ok(())
}

/// Where a stage begins and ends, seconds.
fn extent(stage: &StageReport) -> Range<f64> {
    stage.samples[0].start_s..stage.samples[stage.samples.len() - 1].end_s
}

/// What lies behind the curves: the stages, and in them the seconds that don't count.
fn shades(report: &Report) -> impl Iterator<Item = (Range<f64>, RGBColor)> {
    report.stages.iter().flat_map(|stage| {
        let late = stage.samples.iter().filter(|sample| !sample.is_true);
        let late = late.map(|sample| (sample.start_s..sample.end_s, LATE_SHADE));
        std::iter::once((extent(stage), SHADE)).chain(late)
    })
}

fn margins<'a, 'b>(panel: &'a Panel<'b>, caption: &str) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut chart = ChartBuilder::on(panel);
    chart.margin(8).margin_right(24).x_label_area_size(32).y_label_area_size(64).caption(caption, ("sans-serif", 15));
    chart
}

fn latencies(panel: &Panel, report: &Report, transactions: &[Transaction], end_s: f64) -> Drawn {
    let mut caption = "each transaction: 4 KiB and fsync".to_owned();
    if report.stages.iter().flat_map(|stage| &stage.samples).any(|sample| !sample.is_true) {
        caption += "; red: this machine was too busy to emulate the drive, and the second does not count";
    }
    let mut chart = margins(panel, &caption).build_cartesian_2d(0.0..end_s, LATENCY_MS.log_scale())?;
    for (extent, shade) in shades(report) {
        let corners = [(extent.start, LATENCY_MS.start), (extent.end, LATENCY_MS.end)];
        chart.draw_series([Rectangle::new(corners, shade.filled())])?;
    }
    let milliseconds =
        |value: &f64| if *value >= 1000.0 { format!("{} s", value / 1000.0) } else { format!("{value} ms") };
    let mut mesh = chart.configure_mesh();
    mesh.disable_x_mesh().light_line_style(TRANSPARENT).y_desc("latency").y_label_formatter(&milliseconds);
    mesh.x_label_formatter(&whole).draw()?;
    chart.draw_series(transactions.iter().map(|one| {
        let place = (one.done.as_secs_f64(), one.latency.as_millis_f64().clamp(LATENCY_MS.start, LATENCY_MS.end));
        Circle::new(place, 2, TRANSACTIONS.mix(0.6).filled())
    }))?;
    for stage in &report.stages {
        let text = format!("{} ({})", stage.stage, stage.scheduler);
        let place = (extent(stage).start + 0.2, LATENCY_MS.end * 0.55);
        chart.draw_series([Text::new(text, place, ("sans-serif", 14).into_font())])?;
    }
    Ok(())
}

fn whole(value: &f64) -> String {
    format!("{value:.0}")
}

fn steps(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> Vec<(f64, f64)> {
    samples.iter().flat_map(|sample| [(sample.start_s, of(sample)), (sample.end_s, of(sample))]).collect()
}

/// A panel with one line: a value second by second, a shade behind each stage.
fn curve(
    panel: &Panel,
    report: &Report,
    end_s: f64,
    (caption, unit, colour): (&str, &str, RGBColor),
    of: impl Fn(&Sample) -> f64 + Copy,
    mark: Option<(f64, &str)>,
) -> Drawn {
    let highest = report.stages.iter().flat_map(|stage| &stage.samples).map(of).fold(1.0, f64::max);
    let top = highest.max(mark.map_or(0.0, |(value, _)| value)) * 1.15;
    let mut chart = margins(panel, caption).build_cartesian_2d(0.0..end_s, 0.0..top)?;
    for (extent, shade) in shades(report) {
        chart.draw_series([Rectangle::new([(extent.start, 0.0), (extent.end, top)], shade.filled())])?;
    }
    let mut mesh = chart.configure_mesh();
    mesh.disable_x_mesh().light_line_style(TRANSPARENT).x_desc("seconds").y_desc(unit);
    mesh.x_label_formatter(&whole).y_label_formatter(&whole).y_labels(5).draw()?;
    for stage in &report.stages {
        chart.draw_series(LineSeries::new(steps(&stage.samples, of), colour.stroke_width(2)))?;
    }
    if let Some((value, text)) = mark {
        chart.draw_series(LineSeries::new([(0.0, value), (end_s, value)], RESERVE.stroke_width(2)))?;
        let style = ("sans-serif", 13).into_font().color(&RESERVE);
        chart.draw_series([Text::new(text.to_owned(), (0.2, value + top * 0.09), style)])?;
    }
    Ok(())
}

fn rates(panel: &Panel, report: &Report, end_s: f64) -> Drawn {
    let what = ("what the small writer has of the disk", "runs/s", TRANSACTIONS);
    let mark = Some((report.reserve_runs_per_second, "reserve"));
    curve(panel, report, end_s, what, |sample| sample.runs_per_second, mark)
}

fn backup(panel: &Panel, report: &Report, end_s: f64) -> Drawn {
    let what = ("what the backup has of it", "MB/s", BACKUP);
    curve(panel, report, end_s, what, |sample| sample.backup_bytes_per_second / 1e6, None)
}
