//! `plimsoll replay --cache`.

use super::{out, print, print_json};
use crate::arguments::ReplayArguments;
use crate::outcome::{Failure, Outcome};
use crate::table::Table;
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_cache::{PolicyEntry, policies};
use plimsoll_core::ByteCount;
use plimsoll_lab::replay_cache::{CacheOptions, CacheReplayError, CacheReport, CacheRow, drawing, replay_cache};

/// The table by class is of the cache with the part of the blocks nearest to this, per cent: a common size.
const CLASSES_AT_PERCENT: f64 = 10.0;

impl From<CacheReplayError> for Failure {
    fn from(error: CacheReplayError) -> Failure {
        Failure::BadInput(error.to_string())
    }
}

pub(super) fn run(arguments: &ReplayArguments) -> Outcome {
    let cache = &arguments.cache;
    cache.out.as_deref().map_or(Ok(()), out::check)?;
    let options = CacheOptions {
        sizes: cache.cache.clone(),
        policies: chosen(&cache.policy)?,
        scheme: super::class::load("--classes", &cache.classes)?,
        promotes_reads: !cache.no_promotion,
        unit_bytes: cache.unit.0,
    };
    let bar = progress(arguments.no_progress);
    let open = || plimsoll_traces::open(&arguments.trace, arguments.format);
    let report = replay_cache(open, &options, &|done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let report = report?;
    let name = arguments.trace.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if arguments.json {
        print_json(&report)?
    } else {
        tell(&report, &name)?
    }
    let Some(file) = &cache.out else { return Ok(()) };
    let title = format!("{name} through caches (classes: {})", report.classes);
    out::write(file, &plimsoll_lab::picture::svg(&drawing(&report, &title)).unwrap_or_default())
}

fn tell(report: &CacheReport, name: &str) -> Outcome {
    print(table(report))?;
    print(class_table(report))?;
    print(format!(
        "{name}: {} blocks of {} read and written, {:.0} % written; about {} different ones",
        report.accesses,
        ByteCount(report.unit_bytes),
        report.writes as f64 * 100.0 / report.accesses.max(1) as f64,
        report.blocks,
    ))
}

fn chosen(names: &[String]) -> Result<Vec<&'static PolicyEntry>, Failure> {
    if names.is_empty() {
        return Ok(policies().iter().collect());
    }
    let find = |name: &String| policies().iter().find(|policy| policy.name == name.as_str());
    names
        .iter()
        .map(|name| {
            let known = || policies().iter().map(|policy| policy.name).collect::<Vec<_>>().join(", ");
            find(name).ok_or_else(|| Failure::BadInput(format!("--policy: got {name:?}, allowed {}", known())))
        })
        .collect()
}

fn progress(is_hidden: bool) -> ProgressBar {
    if is_hidden {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {percent} %, {elapsed} passed, about {eta} left");
    let bar = ProgressBar::new(0);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

fn size_cell(row: &CacheRow, report: &CacheReport) -> String {
    ByteCount(u64::from(row.units) * report.unit_bytes).to_string()
}

fn table(report: &CacheReport) -> Table {
    let header = ["cache", ">of blocks", "policy", ">hits", ">of reads", ">of writes", ">past it", ">syncer"];
    let mut table = Table::new(&header);
    for row in &report.rows {
        table.row([
            size_cell(row, report),
            percent(row.size_percent, 1),
            row.policy.to_owned(),
            percent(row.hit_percent, 2),
            percent(row.read_hit_percent, 2),
            percent(row.write_hit_percent, 2),
            percent(row.past_percent, 1),
            percent(row.syncer_percent, 1),
        ]);
    }
    table
}

fn class_table(report: &CacheReport) -> Table {
    let apart = |row: &CacheRow| (row.size_percent.unwrap_or_default() - CLASSES_AT_PERCENT).abs();
    let nearest = report.rows.iter().map(apart).fold(f64::INFINITY, f64::min);
    let mut table = Table::new(&["class", "cache", "policy", ">blocks", ">hits", ">of the cache at the end"]);
    for row in report.rows.iter().filter(|row| apart(row) == nearest) {
        for class in &row.classes {
            table.row([
                class.class.clone(),
                size_cell(row, report),
                row.policy.to_owned(),
                class.accesses.to_string(),
                percent(class.hit_percent, 2),
                format!("{:.1} %", f64::from(class.units) * 100.0 / f64::from(row.units)),
            ]);
        }
    }
    table
}

fn percent(part: Option<f64>, digits: usize) -> String {
    part.map_or("-".to_owned(), |part| format!("{part:.digits$} %"))
}
