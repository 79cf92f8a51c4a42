//! `plimsoll device measure`.

use super::{out, print, print_json, text};
use crate::arguments::MeasureArguments;
use crate::config::MeasuredProfile;
use crate::outcome::{Failure, Outcome};
use crate::table::Table;
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_core::{ByteCount, Rate, Span};
use plimsoll_engine::measure::{Load, MeasureError, Measured, Target};
use serde_json::json;

pub(super) fn run(arguments: &MeasureArguments) -> Outcome {
    arguments.out.as_deref().map_or(Ok(()), out::check)?;
    let mut target = Target::open(&arguments.path, arguments.size.0, arguments.destructive).map_err(as_input)?;
    let loads = Load::of(target.is_writable());
    let span = Span::from_secs(arguments.seconds);
    let bar = progress(arguments.no_progress || arguments.json, loads.len() as u64 * span.as_nanos());
    if target.is_made() {
        let size_bytes = target.size_bytes();
        bar.set_length(size_bytes);
        bar.set_message("filling the file");
        target.fill(&mut |bytes| bar.set_position(bytes)).map_err(as_failure)?;
        bar.set_length(loads.len() as u64 * span.as_nanos());
    }
    let mut measured = Vec::new();
    for (number, &load) in loads.iter().enumerate() {
        bar.set_message(load.name());
        let before = number as u64 * span.as_nanos();
        let result = target.measure(load, arguments.outstanding, span, &mut |passed| {
            bar.set_position(before + passed.as_nanos());
        });
        measured.push((load, result.map_err(as_failure)?));
    }
    bar.finish_and_clear();
    let profile = profile(&measured, arguments.outstanding);
    report(arguments, &target, &measured, &profile)?;
    keep(arguments, &measured, &profile)
}

/// The target cannot be measured: nothing was written, and a file that was made is removed.
fn as_input(error: MeasureError) -> Failure {
    Failure::BadInput(error.to_string())
}

fn as_failure(error: MeasureError) -> Failure {
    Failure::Failed(error.to_string())
}

/// The worst of all random loads, and each sequential load. Reads stand for writes that were not measured.
fn profile(measured: &[(Load, Measured)], outstanding: u32) -> MeasuredProfile {
    let random = measured.iter().filter(|(load, _)| load.is_random());
    let streamed = |of| {
        let found = measured.iter().find(|(load, _)| *load == of);
        found.map(|(load, measured)| measured.per_second * f64::from(load.request_bytes()))
    };
    let read = streamed(Load::SequentialReads).expect("reads are always measured");
    MeasuredProfile {
        worst_case_runs_per_second: random.map(|(_, measured)| measured.per_second_min).fold(f64::INFINITY, f64::min),
        sequential_bytes_per_second: read,
        sequential_write_bytes_per_second: streamed(Load::SequentialWrites).unwrap_or(read),
        outstanding_max: outstanding,
    }
}

fn progress(is_hidden: bool, steps: u64) -> ProgressBar {
    if is_hidden {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg:24} {bar:40} {percent} %, {elapsed} passed, about {eta} left");
    let bar = ProgressBar::new(steps);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

fn table(measured: &[(Load, Measured)]) -> Table {
    let mut table = Table::new(&["load", ">mean", ">slowest fifth"]);
    for (load, measured) in measured {
        let bytes = f64::from(load.request_bytes());
        let rate = |per_second: f64| match load.is_random() {
            true => Rate::RunsPerSecond(per_second).to_string(),
            false => Rate::BytesPerSecond(per_second * bytes).to_string(),
        };
        table.row([load.name().to_owned(), rate(measured.per_second), rate(measured.per_second_min)]);
    }
    table
}

fn report(
    arguments: &MeasureArguments,
    target: &Target,
    measured: &[(Load, Measured)],
    profile: &MeasuredProfile,
) -> Outcome {
    if arguments.json {
        let has_written = measured.iter().any(|(load, _)| *load == Load::SequentialWrites);
        let loads = measured.iter().map(|(load, measured)| {
            json!({
                "load": load.name(),
                "request_bytes": load.request_bytes(),
                "requests_per_second": measured.per_second,
                "requests_per_second_min": measured.per_second_min,
            })
        });
        return print_json(&json!({
            "path": text(&arguments.path),
            "size_bytes": target.size_bytes(),
            "loads": loads.collect::<Vec<_>>(),
            "worst_case_runs_per_second": profile.worst_case_runs_per_second,
            "sequential_bytes_per_second": profile.sequential_bytes_per_second,
            "sequential_write_bytes_per_second": has_written.then_some(profile.sequential_write_bytes_per_second),
            "outstanding_max": profile.outstanding_max,
        }));
    }
    print(table(measured))?;
    let worst_case = Rate::RunsPerSecond(profile.worst_case_runs_per_second);
    print(format!("{} of {}: worst case {worst_case}\n", arguments.path.display(), ByteCount(target.size_bytes())))
}

/// Writes the profile where it was asked for.
fn keep(arguments: &MeasureArguments, measured: &[(Load, Measured)], profile: &MeasuredProfile) -> Outcome {
    let tell = |text: String| if arguments.json { Ok(()) } else { print(text) };
    let Some(file) = &arguments.out else {
        return tell("not saved: --out FILE writes a profile that a configuration can name\n".to_owned());
    };
    let heading = format!("Measured by plimsoll device measure, {} s a load:\n{}", arguments.seconds, table(measured));
    out::write(file, &profile.to_toml(heading.trim_end()))?;
    tell(format!("written to {}\n", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_of_the_random_loads_is_what_can_be_promised() {
        let of = |per_second, per_second_min| Measured { per_second, per_second_min };
        let measured = [
            (Load::RandomReads, of(120.0, 110.0)),
            (Load::SequentialReads, of(100.0, 60.0)),
            (Load::RandomWrites, of(130.0, 90.0)),
            (Load::SequentialWrites, of(80.0, 70.0)),
        ];
        let profile = profile(&measured, 10);
        assert_eq!(profile.worst_case_runs_per_second, 90.0);
        assert_eq!(profile.sequential_bytes_per_second, 100.0 * f64::from(1 << 20));
        assert_eq!(profile.sequential_write_bytes_per_second, 80.0 * f64::from(1 << 20));
        assert_eq!(profile.outstanding_max, 10);
    }
}
