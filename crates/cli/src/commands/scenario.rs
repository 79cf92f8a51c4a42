//! `plimsoll scenario list`, `show` and `run`.

use super::{print, print_json};
use crate::arguments::{LIVE_PROCESS, ScenarioCommand, ScenarioRunArguments};
use crate::outcome::{Failure, Outcome};
use crate::signals;
use crate::table::Table;
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_core::{Allocation, ByteCount, Rate, Span};
use plimsoll_lab::claim::readable;
use plimsoll_lab::experiment::{self, Report};
use plimsoll_lab::host::live::{LiveHost, ProcessProgram, serve_process};
use plimsoll_lab::host::sim::SimHost;
use plimsoll_lab::host::{Host, HostError};
use plimsoll_lab::scenario::{
    self, Arrivals, CacheMode, CacheSetup, ClusterSetup, DatabaseSetup, GuestSetup, MachineConfig, Row, Scenario,
    ScenarioError, Setting, Setup, TenantSetup, ThrottleLock, Tool, UtilitySetup, library,
};
use plimsoll_lab::{html, picture};
use serde_json::json;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Stands for every scenario in the binary that runs on the host.
const ALL: &str = "all";
/// Stands for stdout.
const STDOUT: &str = "-";

impl From<ScenarioError> for Failure {
    fn from(error: ScenarioError) -> Failure {
        Failure::BadInput(error.to_string())
    }
}

pub(super) fn run(command: &ScenarioCommand) -> Outcome {
    match command {
        ScenarioCommand::List(output) => list(output.json),
        ScenarioCommand::Show(arguments) => show(&scenario::load(&arguments.name, &arguments.set)?),
        ScenarioCommand::Run(arguments) => run_scenarios(arguments),
        ScenarioCommand::LiveProcess => serve_process().map_err(Failure::Failed),
    }
}

fn list(json: bool) -> Outcome {
    let scenarios = library::names().map(|name| scenario::load(name, &[])).collect::<Result<Vec<_>, _>>()?;
    if json {
        let scenarios = scenarios.iter().map(|scenario| {
            json!({
                "name": scenario.name,
                "title": scenario.title,
                "paper": scenario.paper,
                "source": scenario.source,
                "hosts": scenario.hosts,
                "seconds": scenario.takes.as_secs_f64(),
            })
        });
        return print_json(&scenarios.collect::<Vec<_>>());
    }
    let mut table = Table::new(&["scenario", "paper", "hosts", ">takes", ""]);
    for scenario in scenarios {
        table.row([
            scenario.name,
            format!("{}, {}", scenario.paper, scenario.source),
            scenario.hosts.join(", "),
            scenario.takes.to_string(),
            scenario.title,
        ]);
    }
    print(table)
}

fn show(scenario: &Scenario) -> Outcome {
    let mut text = format!("{}: {}\n", scenario.name, scenario.title);
    let _ = writeln!(text, "{}, {}\n\n{}\n", scenario.paper, scenario.source, scenario.description);
    let first = &scenario.variants[0].setup;
    let _ = writeln!(text, "Machine: {}", machine_in_words(first));
    first.guests.iter().for_each(|guest| _ = writeln!(text, "Guest {}: {}", guest.name, guest_in_words(guest)));
    if let Some(cluster) = &first.cluster {
        let _ = writeln!(text, "Cluster: {}", cluster_in_words(cluster));
    }
    first.accounts.iter().for_each(|account| {
        let inside = account.parent.as_ref().map_or(String::new(), |parent| format!(" in {parent}"));
        let promises = promises_in_words(&account.allocation);
        let _ = writeln!(text, "Account {}{inside}: {promises}", account.name);
    });
    for process in &first.processes {
        let inside = match &process.guest {
            Some(guest) => format!("in guest {guest}"),
            None => format!("account {}", process.account),
        };
        let _ = writeln!(text, "Process {} ({inside}): {}", process.name, process.workload);
    }
    for writer in &first.writers {
        let _ = writeln!(text, "Writer {} (account {}): {} clients", writer.name, writer.account, writer.threads);
    }
    if let Some(cache) = &first.machine.cache {
        let _ = writeln!(text, "Cache: {}", cache_in_words(cache));
    }
    for utility in &first.utilities {
        let _ = writeln!(text, "Utility {} (account {}): {}", utility.name, utility.account, utility_in_words(utility));
    }
    if let Some(database) = &first.database {
        let _ = writeln!(
            text,
            "Database {} (account {}): {}",
            database.name,
            database.account,
            database_in_words(database)
        );
    }
    for tenant in &first.tenants {
        let _ = writeln!(text, "Tenant {} (account {}): {}", tenant.name, tenant.account, tenant_in_words(tenant));
    }
    let warm_up =
        if first.warm_up > Span::ZERO { format!(", of which {} warm up", first.warm_up) } else { String::new() };
    let _ = writeln!(
        text,
        "Duration: {}{warm_up}; {} seeds; hosts: {}",
        first.duration,
        scenario.seeds,
        scenario.hosts.join(", ")
    );
    for axis in &scenario.axes {
        let _ = writeln!(text, "Varied: {}: {}", axis.name, axis.labels.join(", "));
    }
    if scenario.variants.len() > 1 {
        text.push_str("What is above is the first variant.\n");
    }
    text.push('\n');
    scenario.rows.iter().for_each(|row| _ = writeln!(text, "{}", row_in_words(row)));
    print(text)
}

fn database_in_words(database: &DatabaseSetup) -> String {
    let queries: Vec<String> = database.queries.iter().map(u64::to_string).collect();
    let buffers = ByteCount(database.buffers_bytes);
    format!("PostgreSQL with {buffers} of buffers, TPC-H at scale {}, queries {}", database.scale, queries.join(", "))
}

fn cache_in_words(cache: &CacheSetup) -> String {
    let what = format!("{} of {}, classes {}", ByteCount(cache.bytes), cache.device, cache.scheme.name);
    match cache.policy {
        Some(policy) => format!("{what}, {}", policy.name),
        None => format!("none; with a policy it is {what}"),
    }
}

fn utility_in_words(utility: &UtilitySetup) -> String {
    let name = Tool::ALL.iter().find(|(_, tool)| *tool == utility.tool).map_or("", |(name, _)| *name);
    let part =
        if utility.part < 1.0 { format!(", {} % of its directories", utility.part * 100.0) } else { String::new() };
    format!("{name} over the files of {}{part}", utility.of)
}

fn machine_in_words(setup: &Setup) -> String {
    let (machine, config) = (&setup.machine, &setup.machine.config);
    if let Some(filer) = &setup.filer {
        let (platform, workload, policy) = (&filer.platform, &filer.workload, &filer.policy);
        return format!(
            "the {} filer, {} cores, {} drives ({}); {} of {}, dispatching {}, weights {:?}",
            platform.name,
            platform.cores,
            platform.drives,
            platform.drive,
            Rate::RunsPerSecond(filer.per_second),
            workload.name,
            if filer.is_adaptive { "adaptive" } else { policy.dispatching.name() },
            policy.weights,
        );
    }
    let block = format!("{} under {}", machine.device, machine.scheduler);
    if !setup.tenants.is_empty() {
        return match (machine.throttle_lock, machine.numa_nodes) {
            (ThrottleLock::None, _) => block,
            (ThrottleLock::Container, nodes) => format!("{block}, {nodes} NUMA nodes, a throttle lock a container"),
            (ThrottleLock::Shared, nodes) => format!("{block}, {nodes} NUMA nodes, one throttle lock for all"),
        };
    }
    let above = machine.kernel_scheduler.map_or_else(String::new, |scheduler| {
        let limits = if machine.has_kernel_limits { " and limits" } else { "" };
        format!(", the kernel's {scheduler}{limits} above it")
    });
    format!("{block}{above}, {} on it, {}", machine.file_system, kernel_in_words(config))
}

fn kernel_in_words(config: &MachineConfig) -> String {
    format!(
        "{} of memory, {} cores, dirty ratios {} and {} %",
        ByteCount(config.memory_bytes),
        config.cores,
        config.dirty_background_ratio,
        config.dirty_ratio,
    )
}

fn guest_in_words(guest: &GuestSetup) -> String {
    let GuestSetup { account, disk_bytes, cache, scheduler, file_system, config, .. } = guest;
    let cache = match cache {
        CacheMode::Writeback => "through the host's cache",
        CacheMode::None => "past the host's cache",
    };
    let disk = format!("a disk of {} {cache}, account {account}", ByteCount(*disk_bytes));
    format!("{disk}, under {scheduler}, {file_system} on it, {}", kernel_in_words(config))
}

fn cluster_in_words(cluster: &ClusterSetup) -> String {
    let ClusterSetup { nodes, config } = cluster;
    format!(
        "{nodes} such nodes, {} replicas of blocks of {} in packets of {}, {} to and from each, {} between them",
        config.replication,
        ByteCount(config.block_bytes),
        ByteCount(config.packet_bytes),
        Rate::BytesPerSecond(config.network.bytes_per_second as f64),
        config.network.latency,
    )
}

fn promises_in_words(allocation: &Allocation) -> String {
    let mut promises = Vec::new();
    if allocation.reserve != Rate::ZERO {
        promises.push(format!("reserve {}", allocation.reserve));
    }
    if let Some(limit) = allocation.limit {
        promises.push(format!("limit {limit}"));
    }
    promises.push(format!("weight {}, priority {}", allocation.weight, allocation.priority));
    let deadlines = [
        ("read", allocation.deadlines.read),
        ("write", allocation.deadlines.write),
        ("fsync", allocation.deadlines.fsync),
    ];
    let deadlines = deadlines.iter().filter_map(|(name, span)| Some(format!("{name} within {}", (*span)?)));
    promises.extend(deadlines);
    promises.join(", ")
}

fn tenant_in_words(tenant: &TenantSetup) -> String {
    let pattern = if tenant.is_random { "random" } else { "sequential" };
    let what = match tenant.read_percent {
        100 => "reads".to_owned(),
        0 => "writes".to_owned(),
        percent => format!("requests, {percent} % reads,"),
    };
    let arrivals = match tenant.arrivals {
        Arrivals::Closed { depth, think } if think == Span::ZERO => format!("{depth} outstanding"),
        Arrivals::Closed { depth, think } => format!("{depth} outstanding, {think} between them"),
        Arrivals::Open { per_second, outstanding_max: None } => format!("{per_second} per second"),
        Arrivals::Open { per_second, outstanding_max: Some(depth) } => {
            format!("{per_second} per second, {depth} outstanding at the most")
        }
    };
    let threads = match (tenant.threads, tenant.node) {
        (0, _) => String::new(),
        (threads, None) => format!(", from {threads} threads on all nodes"),
        (threads, Some(node)) => format!(", from {threads} threads on node {node}"),
    };
    match &tenant.trace {
        Some(trace) => format!("the requests of {}, {arrivals}{threads}", trace.display()),
        None => format!("{pattern} {what} of {}, {arrivals}{threads}", ByteCount(u64::from(tenant.length))),
    }
}

fn row_in_words(row: &Row) -> String {
    let mut text = format!("{} ({})", row.title, if row.unit.is_empty() { "a number" } else { &row.unit });
    if let Some(paper) = row.paper {
        let _ = write!(text, "; the paper has {}", readable(paper));
    }
    match &row.claim {
        Some(claim) => {
            let margin = if claim.margin > 0.0 {
                format!(", margin {} %", readable(claim.margin * 100.0))
            } else {
                String::new()
            };
            let on = claim.on.name();
            let _ = write!(text, "; claimed {} {}{margin}, on {on}", claim.relation, claim.bound.text());
        }
        None => text.push_str("; for information"),
    }
    if !row.source.is_empty() {
        let _ = write!(text, " [{}]", row.source);
    }
    text
}

fn run_scenarios(arguments: &ScenarioRunArguments) -> Outcome {
    let names: Vec<&str> = if arguments.name == ALL { library::names().collect() } else { vec![&arguments.name] };
    // Everything is read before anything runs, so that a mistake in the last one costs no time.
    let mut scenarios = names.iter().map(|name| scenario::load(name, &arguments.set)).collect::<Result<Vec<_>, _>>()?;
    if arguments.name == ALL {
        let left_out: Vec<Scenario> =
            scenarios.extract_if(.., |scenario| !scenario.hosts.contains(&arguments.host.as_str())).collect();
        let names: Vec<&str> = left_out.iter().map(|scenario| scenario.name.as_str()).collect();
        say(format_args!("{} scenarios do not run on {}: {}", names.len(), arguments.host, names.join(", ")));
    }
    if let Some(folder) = &arguments.out {
        std::fs::create_dir_all(folder)
            .map_err(|error| Failure::BadInput(format!("--out {}: {error}", folder.display())))?;
    }
    let is_quiet = arguments.json.as_deref().is_some_and(|file| file == Path::new(STDOUT));
    let live = LiveHost::new(this_program(), stop_on_signals(arguments)?);
    let host: &dyn Host = if arguments.host == live.name() { &live } else { &SimHost };
    let mut reports = Vec::new();
    for scenario in scenarios {
        let report = run_one(&scenario, host, arguments)?;
        if !is_quiet {
            print_report(&scenario, &report)?;
        }
        reports.push((scenario, report));
    }
    live.notes().iter().for_each(|note| say(format_args!("{note}")));
    if let Some(file) = &arguments.json {
        write_json(file, &reports, arguments.name == ALL)?;
    }
    if let Some(folder) = &arguments.out {
        write_folder(folder, &reports)?;
    }
    verdict(&reports, arguments.name == ALL)
}

/// The program of a live run's processes: this very program, also if its file has been replaced since.
fn this_program() -> ProcessProgram {
    ProcessProgram { path: "/proc/self/exe".into(), arguments: vec!["scenario".into(), LIVE_PROCESS.into()] }
}

/// Set on Ctrl-C where a run leaves something to put away; elsewhere Ctrl-C just ends the process.
fn stop_on_signals(arguments: &ScenarioRunArguments) -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    if arguments.host != SimHost.name() {
        let set = stop.clone();
        signals::listen(move |_| set.store(true, Ordering::Relaxed))?;
    }
    Ok(stop)
}

fn run_one(scenario: &Scenario, host: &dyn Host, arguments: &ScenarioRunArguments) -> Result<Report, Failure> {
    if !scenario.hosts.contains(&host.name()) {
        let reason = format!("it runs on {} only", scenario.hosts.join(", "));
        return Ok(Report::not_run(scenario, host.name(), &reason));
    }
    let seeds = arguments.seeds.unwrap_or(scenario.seeds);
    let bar = progress(experiment::run_count(scenario, seeds), &scenario.name, arguments.no_progress);
    let report = experiment::run(scenario, host, seeds, &|| bar.inc(1));
    bar.finish_and_clear();
    match report {
        Ok(report) => Ok(Report { settings: arguments.set.iter().map(Setting::to_string).collect(), ..report }),
        Err(HostError::NotRun(reason)) => Ok(Report::not_run(scenario, host.name(), &reason)),
        Err(HostError::Failed(reason)) => Err(Failure::Failed(format!("{}: {reason}", scenario.name))),
    }
}

fn progress(runs: u64, name: &str, is_hidden: bool) -> ProgressBar {
    if is_hidden {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg}  {bar:40} {pos} of {len} runs, {elapsed} passed, about {eta} left");
    let bar = ProgressBar::new(runs).with_message(name.to_owned());
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(std::time::Duration::from_millis(200));
    bar
}

fn print_report(scenario: &Scenario, report: &Report) -> Outcome {
    print(format!("{}: {} ({}, {})", scenario.name, scenario.title, scenario.paper, scenario.source))?;
    if let Some(reason) = &report.not_run {
        return print(format!("not run: {reason}\n\n"));
    }
    let mut table = Table::new(&["", ">measured", "unit", ">paper", "claim", "holds"]);
    for row in &report.rows {
        let holds = match row.holds {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "",
        };
        table.row([
            row.title.clone(),
            row.measured_text(),
            row.unit.clone(),
            row.paper.map_or_else(String::new, readable),
            row.claim.clone().unwrap_or_default(),
            holds.to_owned(),
        ]);
    }
    print(table)?;
    for row in &report.rows {
        if let Some(problem) = &row.problem {
            print(format!("{} was not measured: {problem}", row.name))?;
        }
        if let Some(reason) = &row.not_run {
            print(format!("{} was not run: {reason}", row.name))?;
        }
    }
    print("\n")
}

fn write_json(file: &Path, reports: &[(Scenario, Report)], is_list: bool) -> Outcome {
    let reports: Vec<&Report> = reports.iter().map(|(_, report)| report).collect();
    let text = match (&reports[..], is_list) {
        ([report], false) => serde_json::to_string_pretty(report),
        _ => serde_json::to_string_pretty(&reports),
    };
    let text = text.map_err(|error| Failure::Failed(error.to_string()))?;
    if file == Path::new(STDOUT) { print(text) } else { write(file, &text) }
}

fn write_folder(folder: &Path, reports: &[(Scenario, Report)]) -> Outcome {
    for (scenario, report) in reports {
        let text = serde_json::to_string_pretty(report).map_err(|error| Failure::Failed(error.to_string()))?;
        write(&folder.join(format!("{}.json", scenario.name)), &text)?;
        if let Some(svg) = picture::svg(&report.drawing) {
            write(&folder.join(format!("{}.svg", scenario.name)), &svg)?;
        }
    }
    write(&folder.join("report.html"), &html::page(reports))
}

fn write(file: &Path, text: &str) -> Outcome {
    std::fs::write(file, text).map_err(|error| Failure::Failed(format!("{}: {error}", file.display())))
}

/// A failed claim weighs more than a scenario or a claim that was not run. With all scenarios, those that lack
/// something on this machine are named, and the others' result is the verdict.
fn verdict(reports: &[(Scenario, Report)], is_all: bool) -> Outcome {
    let failed: Vec<String> = reports
        .iter()
        .flat_map(|(scenario, report)| report.failed().map(|row| format!("{}: {}", scenario.name, row.name)))
        .collect();
    if !failed.is_empty() {
        return Err(Failure::Failed(format!("{} claims do not hold: {}", failed.len(), failed.join(", "))));
    }
    let not_run = reports.iter().filter_map(|(scenario, report)| Some((scenario, report.not_run.as_ref()?)));
    let not_run = not_run.map(|(scenario, reason)| format!("{}: {reason}", scenario.name));
    let unknown = reports
        .iter()
        .flat_map(|(scenario, report)| report.unknown().map(|row| format!("{}: {}", scenario.name, row.name)));
    let not_run: Vec<String> = not_run.collect();
    let is_said = is_all && not_run.len() < reports.len();
    if is_said {
        not_run.iter().for_each(|reason| say(format_args!("not run: {reason}")));
    }
    let unknown: Vec<String> = not_run.into_iter().filter(|_| !is_said).chain(unknown).collect();
    if unknown.is_empty() { Ok(()) } else { Err(Failure::NotRun(unknown.join("; "))) }
}

/// A line on stderr, which may be closed.
fn say(line: std::fmt::Arguments<'_>) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_all_scenarios_one_that_misses_something_does_not_hide_what_the_others_found() {
        let reports = |ran: &[bool]| -> Vec<(Scenario, Report)> {
            let one = |&has_run: &bool| {
                let scenario = scenario::load("device-curves", &[]).unwrap();
                let report = Report::not_run(&scenario, "sim", "the trace is not there");
                (scenario, Report { not_run: report.not_run.filter(|_| !has_run), ..report })
            };
            ran.iter().map(one).collect()
        };
        let code = |ran: &[bool], is_all| verdict(&reports(ran), is_all).map_err(|failure| failure.code());
        assert_eq!(code(&[true, false], true), Ok(()));
        assert_eq!(code(&[false, false], true), Err(3), "nothing was found");
        assert_eq!(code(&[false], false), Err(3), "a user that asks for one wants that one");
    }
}
