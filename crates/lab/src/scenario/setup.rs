//! The sections that say what is run: `[machine]`, `[account.*]`, `[process.*]`, `[tenant.*]`; those of several
//! machines are in [`super::several`].

use super::kernel::{LENGTH_BYTES_MAX, kernel, scheduler, schedulers};
use super::model::*;
use super::utilities::{self, cache, sizes};
use super::words::{NAME, SPAN, VOLUME, is_volume};
use super::{database, filer, several};
use crate::host::Accounts;
use crate::host::live::KERNEL_SCHEDULERS;
use plimsoll_core::{Allocation, ByteCount, Deadlines, Rate, Span};
use plimsoll_settings::allocation::deadlines;
use plimsoll_settings::{Place, Problem, Section, allocation, quoted, suggest};
use plimsoll_sim::numa::{NODES_MAX, ThrottleLock};
use plimsoll_workloads::{FileIndex, Workload, WorkloadError};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Serves in the order in which the kernel's scheduler lets requests go.
const BELOW_THE_KERNELS: &str = "noop";
const ACCOUNTS_MAX: usize = 100_000;
const PROCESSES_MAX: usize = 10_000;
/// Files of a process with deadlines of their own.
const FILE_DEADLINES_MAX: usize = 1000;
/// Files of a workload among which those with deadlines are looked for. It is the million of the mail server, the
/// largest pool of a paper; a workload may have 2^36.
const FILES_SEARCHED_MAX: u64 = 1 << 20;
/// Files that a message names at the most.
const FILES_NAMED_MAX: usize = 8;
const DEPTH_MAX: u64 = 65_536;
const SECTOR_BYTES: u64 = 512;

/// Locks of the throttling layer, as a scenario has them.
const THROTTLE_LOCKS: [(&str, ThrottleLock); 3] =
    [("none", ThrottleLock::None), ("container", ThrottleLock::Container), ("shared", ThrottleLock::Shared)];

const RATE: &str = "a rate such as \"45 runs/s\"";

/// Reads everything that is run; `None` if something is wrong.
pub(super) fn read(file: &mut Section<'_>, problems: &mut Vec<Problem>) -> Option<Setup> {
    let before = problems.len();
    let duration = file.quantity("duration", "a time of at least 1 s", problems, |span| *span >= Span::from_secs(1));
    file.require("duration", SPAN, problems);
    let warm_up = file.quantity("warm_up", "a time shorter than the duration", problems, |span: &Span| {
        duration.is_none_or(|duration| *span < duration)
    });
    let filer = filer::filer(file, problems);
    let machine = match &filer {
        Some(filer) => Some(filer::machine(&filer.platform)),
        None => machine(file, problems),
    };
    let sections = file.named_sections("account", ACCOUNTS_MAX, problems);
    let named: Vec<_> = sections.into_iter().map(|(name, section)| account(name, section, problems)).collect();
    let mut users: Vec<(Place, String)> = Vec::new();
    let (guest_names, guests) = several::guests(file, &mut users, problems);
    let cluster = several::cluster(file, problems);
    let writers = several::writers(file, &mut users, problems);
    let processes = file.named_sections("process", PROCESSES_MAX, problems);
    let processes: Vec<_> =
        processes.into_iter().filter_map(|(name, s)| process(name, s, &guest_names, &mut users, problems)).collect();
    let process_names: Vec<String> = processes.iter().map(|process| process.name.clone()).collect();
    let utilities = utilities::utilities(file, &process_names, &mut users, problems);
    let is_until_ended = file.boolean("until_ended", problems).unwrap_or(false) || !utilities.is_empty();
    let database = database::databases(file, &mut users, problems).pop();
    let is_until_ended = is_until_ended || database.is_some();
    let cache = cache(file, problems);
    let tenants = file.named_sections("tenant", PROCESSES_MAX, problems);
    let tenants: Vec<_> =
        tenants.into_iter().filter_map(|(name, section)| tenant(name, section, &mut users, problems)).collect();
    let places: Vec<Place> = named.iter().map(|account| account.place.clone()).collect();
    let accounts = accounts(named, &users, problems);
    if problems.len() > before {
        return None;
    }
    let machine = MachineSetup { cache, ..machine? };
    if let Err((name, error)) = Accounts::open(&machine, &accounts) {
        let place = places.iter().find(|place| place.path == format!("account.{name}"));
        let place = place.cloned().unwrap_or_default();
        problems.push(place.problem("", error, "what the device and the account that it is in can give"));
        return None;
    }
    let warm_up = warm_up.unwrap_or(Span::ZERO);
    let duration = duration?;
    Some(Setup {
        machine,
        guests,
        cluster,
        accounts,
        processes,
        utilities,
        database,
        tenants,
        writers,
        filer,
        duration,
        is_until_ended,
        warm_up,
    })
}

fn machine(file: &mut Section<'_>, problems: &mut Vec<Problem>) -> Option<MachineSetup> {
    file.require("machine", "a table: [machine]", problems);
    let mut section = file.section("machine", problems)?;
    let models: Vec<&'static str> = plimsoll_devices::models().iter().map(|model| model.name).collect();
    section.require("device", "the name of a device model", problems);
    section.require("scheduler", "the name of a scheduler", problems);
    let device = section.choice("device", &models, problems);
    let scheduler = scheduler(&mut section, problems);
    let file_system = section.choice("file_system", crate::host::parts::FILE_SYSTEMS, problems);
    let volume = section.quantity("volume", VOLUME, problems, is_volume);
    let journal = section.quantity("journal", JOURNAL, problems, is_journal);
    let own_disk = section.quantity("own_disk", VOLUME, problems, is_volume);
    let alternate = section.choice("alternate", &schedulers(), problems);
    let turn_seconds = section.integer("turn_seconds", 1..=TURN_SECONDS_MAX, problems);
    let kernel_scheduler = section.choice("kernel_scheduler", KERNEL_SCHEDULERS, problems);
    let has_kernel_wdt = section.boolean("kernel_wdt", problems).unwrap_or(false);
    let has_kernel_limits = section.boolean("kernel_limits", problems).unwrap_or(false) || has_kernel_wdt;
    let numa_nodes = section.integer("numa_nodes", 1..=NODES_MAX as u64, problems).unwrap_or(1) as u32;
    let locks: Vec<&'static str> = THROTTLE_LOCKS.iter().map(|(name, _)| *name).collect();
    let lock = section.choice("throttle_lock", &locks, problems);
    let lock =
        THROTTLE_LOCKS.iter().find(|(name, _)| Some(*name) == lock).map_or(ThrottleLock::None, |(_, lock)| *lock);
    let config = kernel(&mut section, problems);
    let place = section.finish(problems);
    if let Some(journal) = journal {
        if !file_system.is_some_and(|name| name.starts_with("ext4")) {
            problems.push(place.problem("journal", journal.to_string(), "with ext4 only"));
        } else if volume.is_some_and(|volume| volume.0 / 4 < journal.0) {
            problems.push(place.problem("journal", journal.to_string(), "at most a quarter of the volume"));
        }
    }
    if let (None, Some(seconds)) = (alternate, turn_seconds) {
        problems.push(place.problem("turn_seconds", seconds.to_string(), "with alternate only"));
    }
    match (kernel_scheduler, scheduler) {
        (Some(_), Some(scheduler)) if scheduler != BELOW_THE_KERNELS => {
            let allowed = format!("\"{BELOW_THE_KERNELS}\", because of kernel_scheduler");
            problems.push(place.problem("scheduler", quoted(scheduler), allowed));
        }
        (None, _) if has_kernel_limits && !place.has("kernel_scheduler") => {
            let key = if has_kernel_wdt { "kernel_wdt" } else { "kernel_limits" };
            problems.push(place.problem(key, "true", "with a kernel_scheduler only"));
        }
        _ => {}
    }
    Some(MachineSetup {
        device: device?,
        scheduler: scheduler?,
        file_system: file_system.unwrap_or("raw"),
        volume_bytes: volume.map(|size| size.0),
        journal_bytes: journal.map(|size| size.0),
        own_disk_bytes: own_disk.map(|size| size.0),
        alternate: alternate
            .map(|scheduler| Alternate { scheduler, turn_seconds: turn_seconds.unwrap_or(TURN_SECONDS) }),
        kernel_scheduler,
        has_kernel_limits,
        has_kernel_wdt,
        numa_nodes,
        throttle_lock: lock,
        cache: None,
        config,
    })
}

/// Turns of two schedulers, seconds.
const TURN_SECONDS: u64 = 2;
const TURN_SECONDS_MAX: u64 = 3600;
const JOURNAL: &str = "a multiple of 1MiB from 4MiB to 1GiB";

fn is_journal(size: &ByteCount) -> bool {
    size.0.is_multiple_of(1 << 20) && (4 << 20..=1 << 30).contains(&size.0)
}

/// An account before its members are known.
struct Named {
    name: String,
    parent: Option<String>,
    allocation: Allocation,
    place: Place,
}

fn account(name: String, mut section: Section<'_>, problems: &mut Vec<Problem>) -> Named {
    let parent = section.text("parent", NAME, problems).map(str::to_owned);
    let allocation = allocation(&mut section, problems);
    Named { name, parent, allocation, place: section.finish(problems) }
}

/// Orders the accounts, parents first, and checks their parents and members. A user that names no account has its own.
fn accounts(named: Vec<Named>, users: &[(Place, String)], problems: &mut Vec<Problem>) -> Vec<AccountSetup> {
    let names: BTreeSet<&str> = named.iter().map(|account| account.name.as_str()).collect();
    let parents: BTreeSet<&str> = named.iter().filter_map(|account| account.parent.as_deref()).collect();
    let unknown = |place: &Place, key: &str, name: &str| {
        let hint = suggest::hint(name, names.iter().copied());
        let known = if names.is_empty() {
            "none: there is none".into()
        } else {
            names.iter().copied().collect::<Vec<_>>().join(", ")
        };
        place.problem(key, quoted(name), format!("{known}{hint}"))
    };
    let mut ordered: Vec<AccountSetup> = Vec::new();
    let mut waiting: Vec<&Named> = named.iter().collect();
    loop {
        let is_ready = |account: &&Named, ordered: &[AccountSetup]| {
            account.parent.as_ref().is_none_or(|parent| ordered.iter().any(|other| other.name == *parent))
        };
        let (ready, rest): (Vec<&Named>, Vec<&Named>) = waiting.into_iter().partition(|a| is_ready(a, &ordered));
        waiting = rest;
        if ready.is_empty() {
            break;
        }
        ordered.extend(ready.into_iter().map(|Named { name, parent, allocation, .. }| AccountSetup {
            name: name.clone(),
            parent: parent.clone(),
            is_pool: parents.contains(name.as_str()),
            allocation: *allocation,
        }));
    }
    for account in waiting {
        let parent = account.parent.as_deref().unwrap_or_default();
        problems.push(match names.contains(parent) {
            true => account.place.problem("parent", format!("{}, which is in itself", quoted(parent)), "another"),
            false => unknown(&account.place, "parent", parent),
        });
    }
    for (place, user) in users {
        let own = place.path.rsplit('.').next().unwrap_or_default();
        match (names.contains(user.as_str()), parents.contains(user.as_str())) {
            (_, true) => problems.push(place.problem("account", quoted(user), "an account that no other is in")),
            (true, false) => {}
            (false, false) if user == own && !place.has("account") => ordered.push(AccountSetup {
                name: user.clone(),
                parent: None,
                is_pool: false,
                allocation: Allocation::default(),
            }),
            (false, false) => problems.push(unknown(place, "account", user)),
        }
    }
    ordered
}

fn process(
    name: String,
    mut section: Section<'_>,
    guests: &[String],
    users: &mut Vec<(Place, String)>,
    problems: &mut Vec<Problem>,
) -> Option<ProcessSetup> {
    const WORKLOAD: &str = "a workload as docs/workloads.md has them";
    section.require("workload", WORKLOAD, problems);
    let account = section.text("account", NAME, problems).unwrap_or(&name).to_owned();
    let guest = section.text("guest", "the name of a guest", problems).map(str::to_owned);
    let workload = section.text("workload", WORKLOAD, problems).map(str::parse::<Workload>);
    let threads = section.with("threads", "a table: thread = \"account\"", problems, |value| {
        let pairs = value.as_table()?.iter();
        pairs.map(|(key, value)| Some((key.get_ref().to_string(), value.get_ref().as_str()?.to_owned()))).collect()
    });
    let thread_accounts: Vec<(String, String)> = threads.unwrap_or_default();
    let files = section.named_sections("file_deadlines", FILE_DEADLINES_MAX, problems);
    let files = files.into_iter().map(|(file, section)| (file, deadlines(section, problems)));
    let file_deadlines: Vec<(String, Deadlines)> = files.collect();
    let is_in_root = section.boolean("in_root", problems).unwrap_or(false);
    let is_written_before = section.boolean("written_before", problems).unwrap_or(false);
    let unit_sizes = sizes(&mut section, problems);
    let place = section.finish(problems);
    match &guest {
        Some(guest) => several::check_guest(guest, guests, &place, problems),
        None => {
            users.push((place.clone(), account.clone()));
            users.extend(thread_accounts.iter().map(|(_, account)| (place.clone(), account.clone())));
        }
    }
    match workload? {
        Ok(workload) => {
            problems.extend(unknown_files(&place, &workload, &file_deadlines));
            Some(ProcessSetup {
                name,
                account,
                guest,
                workload,
                thread_accounts,
                file_deadlines,
                is_in_root,
                is_written_before,
                unit_sizes,
            })
        }
        Err(WorkloadError { column, got, allowed }) => {
            problems.push(place.problem("workload", format!("{got} at column {column}"), allowed));
            None
        }
    }
}

/// Says which of the files with deadlines the workload does not have among its first [`FILES_SEARCHED_MAX`].
fn unknown_files(place: &Place, workload: &Workload, file_deadlines: &[(String, Deadlines)]) -> Vec<Problem> {
    let plan = workload.plan(0);
    let mut unknown: BTreeSet<&str> = file_deadlines.iter().map(|(file, _)| file.as_str()).collect();
    let files = || (0..plan.file_count().min(FILES_SEARCHED_MAX)).map(|number| plan.file(FileIndex(number)).path);
    let mut searched = files();
    while let (false, Some(path)) = (unknown.is_empty(), searched.next()) {
        unknown.remove(path.as_str());
    }
    let mut known = files().take(FILES_NAMED_MAX).collect::<Vec<_>>().join(", ");
    match plan.file_count() {
        count if count > FILES_SEARCHED_MAX => known += &format!(" and so on, {FILES_SEARCHED_MAX} of them"),
        count if count > FILES_NAMED_MAX as u64 => known += " and so on",
        _ => {}
    }
    let allowed = format!("the workload's: {known}");
    let problem = |file| place.problem("file_deadlines", format!("the file {}", quoted(file)), allowed.clone());
    unknown.into_iter().map(problem).collect()
}

fn tenant(
    name: String,
    mut section: Section<'_>,
    users: &mut Vec<(Place, String)>,
    problems: &mut Vec<Problem>,
) -> Option<TenantSetup> {
    const LENGTH: &str = "a multiple of 512B up to 64MiB";
    const REGION: &str = "two fractions of the device such as [0, 0.5], the first the smaller";
    let trace = section.text("trace", "the path of a trace", problems).map(PathBuf::from);
    for (key, allowed) in [("pattern", "\"random\", \"sequential\""), ("length", LENGTH)] {
        if trace.is_none() {
            section.require(key, allowed, problems);
        }
    }
    let account = section.text("account", NAME, problems).unwrap_or(&name).to_owned();
    let pattern = section.choice("pattern", &["random", "sequential"], problems);
    let is_length = |size: &ByteCount| (1..=LENGTH_BYTES_MAX).contains(&size.0) && size.0.is_multiple_of(SECTOR_BYTES);
    let length = section.quantity("length", LENGTH, problems, is_length);
    let read_percent = section.integer("read_percent", 0..=100, problems).unwrap_or(100) as u32;
    let region = section.with("region", REGION, problems, |value| {
        let ends: Option<Vec<f64>> =
            value.as_array()?.iter().map(|end| plimsoll_settings::reader::float(end.get_ref())).collect();
        match ends?[..] {
            [from, to] if 0.0 <= from && from < to && to <= 1.0 => Some((from, to)),
            _ => None,
        }
    });
    let depth = section.integer("depth", 1..=DEPTH_MAX, problems);
    let think = section.quantity("think", SPAN, problems, |_: &Span| true);
    let rate =
        section.quantity("rate", RATE, problems, |rate| matches!(rate, Rate::RunsPerSecond(runs) if *runs > 0.0));
    let threads = section.integer("threads", 1..=depth.unwrap_or(1), problems).unwrap_or(0) as u32;
    let node = section.integer("node", 0..=NODES_MAX as u64 - 1, problems).map(|node| node as u32);
    let start = section.quantity("start", SPAN, problems, |_: &Span| true).unwrap_or(Span::ZERO);
    let stop = section.quantity("stop", "a time after the start", problems, |stop| *stop > start);
    let place = section.finish(problems);
    if place.has("rate") && ["think", "threads"].iter().any(|key| place.has(key)) {
        problems.push(place.problem("rate", "both a rate and a think or threads", "one of them"));
    }
    if trace.is_some() && ["pattern", "length", "read_percent"].iter().any(|key| place.has(key)) {
        problems.push(place.problem("trace", "both a trace and a pattern, length or read_percent", "one of them"));
    }
    users.push((place, account.clone()));
    let is_trace = trace.is_some();
    let arrivals = match rate {
        Some(Rate::RunsPerSecond(per_second)) => {
            Arrivals::Open { per_second, outstanding_max: depth.map(|depth| depth as u32) }
        }
        _ => Arrivals::Closed { depth: depth.unwrap_or(1) as u32, think: think.unwrap_or(Span::ZERO) },
    };
    Some(TenantSetup {
        name,
        account,
        trace,
        length: if is_trace { 0 } else { length?.0 as u32 },
        is_random: !is_trace && pattern? == "random",
        read_percent,
        region: region.unwrap_or((0.0, 1.0)),
        arrivals,
        threads,
        node,
        start,
        stop: stop.unwrap_or(Span::MAX),
    })
}
