//! `plimsoll load`.

use super::{out, print, print_json};
use crate::arguments::LoadArguments;
use crate::outcome::{Failure, Outcome};
use crate::table::Table;
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_core::{Rate, Span};
use plimsoll_lab::load::{LoadError, LoadOptions, LoadReport, measure};

/// Steps of the progress bar for one rate.
const STEPS: f64 = 1000.0;
/// A generator that used this much of a processor may have been what was measured.
const BUSY: f64 = 0.9;

pub(super) fn run(arguments: &LoadArguments) -> Outcome {
    arguments.out.as_deref().map_or(Ok(()), out::check)?;
    let options = LoadOptions {
        target: arguments.target.clone(),
        mix: arguments.mix.clone(),
        rates: arguments.rate.clone(),
        first_per_second: arguments.first,
        latency_max: arguments.latency_max,
        warm_up: Span::from_secs(arguments.warm_up),
        window: Span::from_secs(arguments.seconds),
        outstanding_max: arguments.outstanding,
        seed: arguments.seed,
        is_destructive: arguments.destructive,
    };
    let bar = progress(arguments.no_progress || arguments.json);
    let report = measure(&options, &mut |per_second, part| {
        bar.set_message(format!("{per_second:.0}/s"));
        bar.set_position((part * STEPS) as u64);
    });
    bar.finish_and_clear();
    let report = report.map_err(failure)?;
    tell(&report, arguments)?;
    arguments.out.as_deref().map_or(Ok(()), |file| out::write(file, &report.svg()))
}

fn tell(report: &LoadReport, arguments: &LoadArguments) -> Outcome {
    if arguments.json {
        return print_json(report);
    }
    print(table(report))?;
    print(peak(report, arguments))?;
    match report.rows.iter().find(|row| row.generator_busy > BUSY) {
        Some(row) => print(format!(
            "at {:.0}/s the generator itself used {:.0} % of a processor: more may be possible",
            row.offered_per_second,
            row.generator_busy * 100.0
        )),
        None => Ok(()),
    }
}

/// What was found wrong before anything was sent is bad input.
fn failure(error: LoadError) -> Failure {
    match error {
        LoadError::Input(_) | LoadError::Target(_) | LoadError::Connect { .. } => Failure::BadInput(error.to_string()),
        _ => Failure::Failed(error.to_string()),
    }
}

fn progress(is_hidden: bool) -> ProgressBar {
    if is_hidden {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg:12} {bar:40} {percent} %, {elapsed} passed in all");
    let bar = ProgressBar::new(STEPS as u64);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

fn table(report: &LoadReport) -> Table {
    let header = [
        ">offered/s",
        ">answered/s",
        ">rate",
        ">mean",
        ">p50",
        ">p90",
        ">p99",
        ">p99.9",
        ">longest",
        ">read mean",
        ">write mean",
    ];
    let mut table = Table::new(&header);
    let span = |seconds: Option<f64>| match seconds {
        None => "-".to_owned(),
        Some(seconds) => Span::from_secs_f64(seconds).to_string(),
    };
    for row in &report.rows {
        table.row([
            format!("{:.1}", row.offered_per_second),
            format!("{:.1}", row.answered_per_second),
            Rate::BytesPerSecond(row.bytes_per_second).to_string(),
            span(row.mean_seconds),
            span(row.p50_seconds),
            span(row.p90_seconds),
            span(row.p99_seconds),
            span(row.p999_seconds),
            span(row.longest_seconds),
            span(row.reads.mean_seconds),
            span(row.writes.mean_seconds),
        ]);
    }
    table
}

fn peak(report: &LoadReport, arguments: &LoadArguments) -> String {
    let (mix, bound) = (&report.mix, arguments.latency_max);
    let unfinished: u64 = report.rows.iter().map(|row| row.unfinished).sum();
    let left = match unfinished {
        0 => String::new(),
        count => format!("; {count} requests had no answer ten seconds after their window"),
    };
    match report.peak_per_second {
        Some(peak) => format!("{mix}: {peak:.0}/s is the highest rate here with a mean of at most {bound}{left}"),
        None => format!("{mix}: no rate here had a mean of at most {bound}{left}"),
    }
}
