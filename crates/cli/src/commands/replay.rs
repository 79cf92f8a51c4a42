//! `plimsoll replay`.

use super::{print, print_json};
use crate::arguments::ReplayArguments;
use crate::outcome::{Failure, Outcome};
use crate::table::Table;
use plimsoll_core::{Rate, Span};
use plimsoll_lab::replay::{PERCENTILES, Pace, ReplayConfig, ReplayError, ReplayOptions, ReplayReport, replay};

impl From<ReplayError> for Failure {
    fn from(error: ReplayError) -> Failure {
        Failure::BadInput(error.to_string())
    }
}

pub(super) fn run(arguments: &ReplayArguments) -> Outcome {
    let (Some(device), Some(scheduler)) = (&arguments.device, &arguments.scheduler) else {
        // The command line has either both or `--cache`.
        return super::replay_cache::run(arguments);
    };
    if !(arguments.speed.is_finite() && arguments.speed > 0.0) {
        return Err(Failure::BadInput(format!("--speed: got {}, allowed more than 0", arguments.speed)));
    }
    let config = arguments.config.as_deref().map(ReplayConfig::load).transpose()?.unwrap_or_default();
    let options = ReplayOptions {
        device: device.clone(),
        scheduler: scheduler.clone(),
        pace: arguments.closed.map_or(Pace::Open { speed: arguments.speed }, |depth| Pace::Closed { depth }),
        config,
    };
    let reader = plimsoll_traces::open(&arguments.trace, arguments.format).map_err(ReplayError::from)?;
    let format = reader.format();
    let report = replay(reader, &options)?;
    if arguments.json {
        return print_json(&report);
    }
    print(table(&report))?;
    print(format!(
        "{} requests of a {format} trace in {}; the device was busy {:.1} % of the time{}{}",
        report.requests,
        Span::from_secs_f64(report.seconds),
        report.device_busy * 100.0,
        note(report.moved, "lay beyond its end and were moved"),
        note(report.left_out, "move no data and are left out"),
    ))
}

fn note(count: u64, what: &str) -> String {
    if count == 0 { String::new() } else { format!("; {count} {what}") }
}

fn table(report: &ReplayReport) -> Table {
    let header =
        ["session", ">requests", ">reads", ">rate", ">requests/s", ">p50", ">p90", ">p99", ">p99.9", ">longest"];
    let mut table = Table::new(&header);
    for session in &report.sessions {
        let [p50, p90, p99, p999, longest] =
            PERCENTILES.map(|(name, _)| Span::from_secs_f64(session.latency_seconds[name]).to_string());
        table.row([
            session.session.clone(),
            session.requests.to_string(),
            format!("{:.0} %", session.read_percent),
            Rate::BytesPerSecond(session.bytes_per_second).to_string(),
            format!("{:.1}", session.requests_per_second),
            p50,
            p90,
            p99,
            p999,
            longest,
        ]);
    }
    table
}
