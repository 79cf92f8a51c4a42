//! `plimsoll device list` and `plimsoll device check`; `measure` has a file of its own.

use super::{print, print_json};
use crate::arguments::DeviceCommand;
use crate::outcome::{Failure, Outcome};
use crate::table::Table;
use plimsoll_core::{ByteCount, Rate};
use plimsoll_devices::{ValidationRow, models, validate};
use serde_json::json;

/// Any seed does: a profile does not depend on it.
const SEED: u64 = 1;

pub(super) fn run(command: &DeviceCommand) -> Outcome {
    match command {
        DeviceCommand::List(output) => list(output.json),
        DeviceCommand::Check(output) => check(output.json),
        DeviceCommand::Measure(arguments) => super::measure::run(arguments),
    }
}

fn list(json: bool) -> Outcome {
    let described = models().iter().map(|entry| (entry, (entry.build)(SEED)));
    if json {
        let models = described.map(|(entry, model)| {
            let profile = model.profile();
            json!({
                "name": entry.name,
                "summary": entry.summary,
                "capacity_bytes": profile.capacity_bytes,
                "worst_case_runs_per_second": profile.worst_case_runs_per_second,
                "sequential_bytes_per_second": profile.sequential_bytes_per_second,
                "is_rotational": profile.is_rotational,
                "outstanding_max": profile.outstanding_max,
            })
        });
        return print_json(&models.collect::<Vec<_>>());
    }
    let mut table = Table::new(&["model", ">capacity", ">worst case", ">sequential", ">queue", "summary"]);
    for (entry, model) in described {
        let profile = model.profile();
        table.row([
            entry.name.to_owned(),
            ByteCount(profile.capacity_bytes).to_string(),
            Rate::RunsPerSecond(profile.worst_case_runs_per_second).to_string(),
            Rate::BytesPerSecond(profile.sequential_bytes_per_second).to_string(),
            profile.outstanding_max.to_string(),
            entry.summary.to_owned(),
        ]);
    }
    print(table)
}

fn check(json: bool) -> Outcome {
    let rows: Vec<ValidationRow> = models().iter().flat_map(|entry| validate(entry.name)).collect();
    if json {
        print_json(&rows.iter().map(row_as_json).collect::<Vec<_>>())?;
    } else {
        print(rows_as_table(&rows))?;
    }
    let failed = rows.iter().filter(|row| !row.holds()).count();
    match failed {
        0 => Ok(()),
        _ => Err(Failure::Failed(format!("{failed} of {} figures are further apart than allowed", rows.len()))),
    }
}

/// How far the model is from the device, in per cent of what is known.
fn apart_percent(row: &ValidationRow) -> f64 {
    (row.measured / row.known - 1.0) * 100.0
}

fn row_as_json(row: &ValidationRow) -> serde_json::Value {
    json!({
        "model": row.model,
        "figure": row.figure,
        "unit": row.unit,
        "known": row.known,
        "measured": row.measured,
        "apart_percent": apart_percent(row),
        "allowed_percent": row.margin * 100.0,
        "holds": row.holds(),
        "source": row.source,
    })
}

fn rows_as_table(rows: &[ValidationRow]) -> Table {
    let mut table = Table::new(&["model", "figure", ">known", ">model", "unit", ">apart", ">allowed", "", "source"]);
    for row in rows {
        table.row([
            row.model.to_owned(),
            row.figure.to_owned(),
            format!("{:.1}", row.known),
            format!("{:.1}", row.measured),
            row.unit.to_owned(),
            format!("{:+.1} %", apart_percent(row)),
            format!("{:.1} %", row.margin * 100.0),
            if row.holds() { "ok" } else { "TOO FAR" }.to_owned(),
            row.source.to_owned(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_is_too_far_off_is_marked() {
        let row = |measured| ValidationRow {
            model: "m",
            figure: "f",
            unit: "IOPS",
            known: 100.0,
            measured,
            source: "s",
            margin: 0.05,
        };
        let table = rows_as_table(&[row(104.0), row(94.0)]).to_string();
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[1].contains("+4.0 %") && lines[1].contains("ok"), "{table}");
        assert!(lines[2].contains("-6.0 %") && lines[2].contains("TOO FAR"), "{table}");
        assert_eq!(row_as_json(&row(94.0))["holds"], false);
    }
}
