//! The sections of the file and their keys, one function a section. What only other sections can tell (does the pool
//! exist, do the reserves fit) is left to [`super::check`].

use super::bounds::{BLOCK_BYTES, OUTSTANDING_MAX, SIZE, WORST_CASE, is_worst_case};
use super::listen;
use super::model::*;
use super::paths::{SOCKET_PATH_BYTES_MAX, bounded, path, socket};
use super::{CONTROL_SOCKET_NAME, Defaults, MeasuredProfile, TAGS, TAGS_OF_SUBMITTERS};
use super::{ExecutorSection, backing, caches, executor, iscsi, read_ahead};
use plimsoll_core::{Allocation, ByteCount, DeviceProfile, Rate};
use plimsoll_engine::BUFFER_BYTES_MIN;
use plimsoll_serve::attach::{FileSystemKind, FileSystemPlan, Format};
use plimsoll_settings::{Place, Problem, Section, allocation, suggest};
use std::collections::BTreeSet;
use std::path::Path;

/// Devices, pools and volumes that one daemon serves at the most.
const DEVICES_MAX: usize = 64;
const POOLS_MAX: usize = 1024;
const CACHES_MAX: usize = 64;
const VOLUMES_MAX: usize = 1024;
/// Smallest volume in which mkfs.xfs makes a file system (mkfs.xfs(8)).
const XFS_SIZE_MIN: ByteCount = ByteCount(300 << 20);
/// Largest offset that a file has on Linux. Bytes.
const SIZE_BYTES_MAX: u64 = i64::MAX as u64;
/// Longest export name of the NBD protocol. Bytes.
const EXPORT_NAME_BYTES_MAX: usize = 4096;
/// What a mount call takes as data: one page. Bytes.
const MOUNT_OPTIONS_BYTES_MAX: usize = 4095;

const BUFFERS: &str = "a size of at least 128 MiB";
const START: &str = "a place such as \"1GiB\", a multiple of 4096 bytes";

/// What the file says, section by section, before the sections were compared with each other.
pub(super) struct Sections {
    pub(super) daemon: DaemonSection,
    pub(super) listen: Option<Vec<Listen>>,
    pub(super) iscsi_listen: Option<Vec<Listen>>,
    pub(super) executor: ExecutorSection,
    /// Where its section begins; `None`: there is none.
    pub(super) executor_line: Option<usize>,
    pub(super) devices: Vec<Device>,
    pub(super) pools: Vec<PoolSection>,
    pub(super) caches: Vec<Cache>,
    pub(super) volumes: Vec<Volume>,
    /// The names that a pool may be on; `None` if they are not all known.
    pub(super) device_names: Option<BTreeSet<String>>,
    /// The names that a pool or a volume may be in; `None` if they are not all known.
    pub(super) pool_names: Option<BTreeSet<String>>,
    /// The names of caches; `None` if they are not all known.
    pub(super) cache_names: Option<BTreeSet<String>>,
}

/// A `[pool.NAME]` before it is known which device it is on.
pub(super) struct PoolSection {
    pub(super) name: String,
    /// `None` if the section does not say what was understood.
    pub(super) holder: Option<Holder>,
    pub(super) allocation: Allocation,
    pub(super) place: Place,
}

/// What a pool is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Device(String),
    Pool(String),
}

/// Reads everything. `directory` is what relative paths start from.
pub(super) fn read(
    mut file: Section<'_>,
    directory: &Path,
    defaults: &Defaults,
    problems: &mut Vec<Problem>,
) -> Sections {
    let daemon = daemon(file.section("daemon", problems), directory, defaults, problems);
    let listen = file.section("nbd", problems).and_then(|section| listen::nbd(section, directory, problems));
    let iscsi_listen = file.section("iscsi", problems).and_then(|section| listen::iscsi(section, problems));
    let executor = file.section("executor", problems).map(|section| {
        let line = section.place().line;
        (executor::executor(section, problems), line)
    });
    let (executor, executor_line) = executor.map_or_else(Default::default, |(executor, line)| (executor, Some(line)));
    let (devices, device_names) = named(&mut file, "device", DEVICES_MAX, problems);
    let observes = devices.iter().any(|(_, section)| section.place().has("observe"));
    let devices = devices.into_iter().map(|(name, section)| device(name, section, directory, problems)).collect();
    let (pools, pool_names) = named(&mut file, "pool", POOLS_MAX, problems);
    let pools = pools.into_iter().map(|(name, section)| pool(name, section, problems)).collect();
    let (caches, cache_names) = named(&mut file, "cache", CACHES_MAX, problems);
    let notes = &daemon.notes_directory;
    let cache = |(name, section)| caches::cache(name, section, directory, notes, problems);
    let caches = caches.into_iter().filter_map(cache).collect();
    let (volumes, _) = named(&mut file, "volume", VOLUMES_MAX, problems);
    let volumes = volumes.into_iter().map(|(name, section)| volume(name, section, directory, problems)).collect();
    let place = file.finish(problems);
    if !place.has("volume") && !observes {
        problems.push(place.problem("volume", "nothing", "at least one table [volume.NAME]"));
    }
    Sections {
        daemon,
        listen,
        iscsi_listen,
        executor,
        executor_line,
        devices,
        pools,
        caches,
        volumes,
        device_names,
        pool_names,
        cache_names,
    }
}

/// The tables in `key` and their names. No names if something is wrong with the list itself: then a reference cannot be
/// called undefined.
fn named<'t>(
    file: &mut Section<'t>,
    key: &'static str,
    count_max: usize,
    problems: &mut Vec<Problem>,
) -> (Vec<(String, Section<'t>)>, Option<BTreeSet<String>>) {
    let before = problems.len();
    let sections = file.named_sections(key, count_max, problems);
    let names = (problems.len() == before).then(|| sections.iter().map(|(name, _)| name.clone()).collect());
    (sections, names)
}

fn daemon(
    section: Option<Section<'_>>,
    directory: &Path,
    defaults: &Defaults,
    problems: &mut Vec<Problem>,
) -> DaemonSection {
    let Some(mut section) = section else {
        let (control_socket, state_directory) = (defaults.control_socket(), defaults.state_directory.clone());
        let notes_directory = defaults.notes_directory();
        let (buffer_bytes, place) = (None, Place::default());
        return DaemonSection { control_socket, state_directory, notes_directory, buffer_bytes, place };
    };
    let state_directory = section.read("state_directory", "the path of a directory", problems, |text| {
        let path = path(text, directory)?;
        // The sockets that are in it by default have to fit.
        let bytes_max = SOCKET_PATH_BYTES_MAX - CONTROL_SOCKET_NAME.len() - 1;
        bounded(path, bytes_max)
    });
    let notes_directory =
        section.read("notes_directory", "the path of a directory that outlives a reboot", problems, |text| {
            path(text, directory)
        });
    let defaults = Defaults {
        state_directory: state_directory.unwrap_or_else(|| defaults.state_directory.clone()),
        notes_directory: notes_directory.or_else(|| defaults.notes_directory.clone()),
    };
    let control_socket =
        section.read("control_socket", "the path of a socket", problems, |text| socket(text, directory));
    let control_socket = control_socket.unwrap_or_else(|| defaults.control_socket());
    let notes_directory = defaults.notes_directory();
    let state_directory = defaults.state_directory;
    let buffers = section.quantity("buffers", BUFFERS, problems, |size: &ByteCount| size.0 >= BUFFER_BYTES_MIN);
    let buffer_bytes = buffers.map(|size| size.0);
    DaemonSection { control_socket, state_directory, notes_directory, buffer_bytes, place: section.finish(problems) }
}

/// What a file says that `plimsoll device measure` wrote. A configuration has one line for each of its mistakes, so of
/// those in the other file the first is named.
fn measured(text: &str, directory: &Path) -> Result<MeasuredProfile, String> {
    MeasuredProfile::read(&path(text, directory)?).map_err(|error| {
        let first = error.to_string().lines().next().unwrap_or_default().to_owned();
        format!("a file that plimsoll device measure wrote ({first})")
    })
}

/// A section with wrong keys stays a device, a pool, a cache or a volume: others refer to it, and its other keys
/// are checked. Its place knows the keys that were not understood.
fn device(name: String, mut section: Section<'_>, directory: &Path, problems: &mut Vec<Problem>) -> Device {
    let models: Vec<&'static str> = plimsoll_devices::models().iter().map(|model| model.name).collect();
    let schedulers: Vec<&'static str> = plimsoll_schedulers::registry().iter().map(|entry| entry.name).collect();
    let emulate = section.choice("emulate", &models, problems);
    let observe = section.read("observe", "the path of a mount point", problems, |text| path(text, directory));
    let default =
        if section.place().has("observe") { super::SCHEDULER_OF_OBSERVED_DEFAULT } else { super::SCHEDULER_DEFAULT };
    let scheduler = section.choice("scheduler", &schedulers, problems).unwrap_or(default);
    let tags = section.choice("tags", &TAGS, problems);
    let measured = section.read("profile", "the path of a file", problems, |text| measured(text, directory));
    let worst_case = section.quantity("worst_case", WORST_CASE, problems, is_worst_case);
    let outstanding_max = section.integer("outstanding_max", 1..=OUTSTANDING_MAX, problems);
    let seed = section.integer("seed", 0..=i64::MAX as u64, problems).unwrap_or(1);
    let place = section.finish(problems);
    if emulate.is_some() && observe.is_some() {
        problems.push(place.problem("emulate", "a model for a disk that is there", "only without observe"));
    }
    if tags.is_some() && !place.has("observe") {
        problems.push(place.problem("tags", "tags of a device of volumes", "only with observe"));
    }
    if place.has("seed") && place.is_understood("seed") && !place.has("emulate") {
        problems.push(place.problem("seed", "the seed of an emulation that there is not", "only with emulate"));
    }
    let model = emulate.and_then(|emulate| plimsoll_devices::build(emulate, seed));
    let mut profile = match model {
        Some(model) => DeviceProfile { name: name.clone(), ..model.profile().clone() },
        None => Device::unknown_profile(&name, 0.0),
    };
    if let Some(measured) = measured {
        measured.put(&mut profile);
    }
    if let Some(Rate::RunsPerSecond(worst_case)) = worst_case {
        profile.worst_case_runs_per_second = worst_case;
    }
    if let Some(outstanding_max) = outstanding_max {
        profile.outstanding_max = outstanding_max as u32;
    }
    let (emulate, scheduler) = (emulate.map(str::to_owned), scheduler.to_owned());
    let is_by_submitter = tags == Some(TAGS_OF_SUBMITTERS);
    Device { name, emulate, observe, is_by_submitter, scheduler, seed, profile, place }
}

fn pool(name: String, mut section: Section<'_>, problems: &mut Vec<Problem>) -> PoolSection {
    const ALLOWED: &str = "exactly one of them";
    let device = section.text("device", "the name of a device", problems).map(str::to_owned);
    let parent = section.text("parent", "the name of a pool", problems).map(str::to_owned);
    let is_one = section.place().has("device") != section.place().has("parent");
    match (section.place().has("device"), section.place().has("parent")) {
        (true, true) => problems.push(section.place().problem("parent", "both a device and a parent", ALLOWED)),
        (false, false) => problems.push(section.place().problem("", "neither a device nor a parent", ALLOWED)),
        _ => {}
    }
    let allocation = allocation(&mut section, problems);
    let place = section.finish(problems);
    let holder = device.map(Holder::Device).or(parent.map(Holder::Pool)).filter(|_| is_one);
    PoolSection { name, holder, allocation, place }
}

fn volume(name: String, mut section: Section<'_>, directory: &Path, problems: &mut Vec<Problem>) -> Volume {
    section.require("pool", "the name of a pool", problems);
    section.require("size", SIZE, problems);
    let pool = section.text("pool", "the name of a pool", problems).map(str::to_owned);
    let is_block = |bytes: &ByteCount| bytes.0.is_multiple_of(BLOCK_BYTES) && bytes.0 <= SIZE_BYTES_MAX;
    let size = section.quantity("size", SIZE, problems, |size: &ByteCount| size.0 > 0 && is_block(size));
    let start = section.quantity("start", START, problems, is_block);
    let backing = backing::read(&mut section, directory, problems);
    let cache = section.text("cache", "the name of a cache", problems).map(str::to_owned);
    let ahead = read_ahead::read(&mut section, problems);
    let has_static_classes = section.boolean("static_classes", problems).unwrap_or(false);
    let is_read_only = section.boolean("read_only", problems).unwrap_or(false);
    let allocation = allocation(&mut section, problems);
    let export = section.section("nbd", problems).map(|section| export(&name, section, problems));
    let iscsi = section.section("iscsi", problems).map(|section| iscsi::target(&name, section, problems));
    let mount = section.section("mount", problems);
    let mount = mount.map(|section| mount_section(section, is_read_only, backing.as_ref(), problems));
    let place = section.finish(problems);
    let takes_tenants = mount.as_ref().is_some_and(|mount| mount.takes_tenants);
    read_ahead::check(&place, cache.is_some(), takes_tenants, problems);
    if has_static_classes && takes_tenants {
        const ALLOWED: &str = "false: with tenants the tags know every block's class";
        problems.push(place.problem("static_classes", "true on a volume that is mounted with tenants", ALLOWED));
    }
    let file_system = mount.as_ref().and_then(|mount| mount.file_system.as_ref());
    let makes_xfs = file_system.is_some_and(|plan| plan.kind == FileSystemKind::Xfs && plan.format == Format::IfEmpty);
    if let Some(size) = size.filter(|&size| makes_xfs && size < XFS_SIZE_MIN) {
        let allowed = format!("at least {XFS_SIZE_MIN} to make XFS in it");
        problems.push(place.problem("size", size, allowed));
    }
    Volume {
        name,
        pool: pool.unwrap_or_default(),
        device: String::new(),
        size_bytes: size.map_or(0, |size| size.0),
        backing: backing.unwrap_or(Backing::Memory),
        start_bytes: start.map_or(0, |start| start.0),
        is_start_fixed: start.is_some(),
        cache,
        read_ahead: ahead,
        has_static_classes,
        is_read_only,
        allocation,
        export,
        iscsi,
        mount,
        place,
    }
}

fn export(volume: &str, mut section: Section<'_>, problems: &mut Vec<Problem>) -> Export {
    const ALLOWED: &str = "1 to 4096 bytes without control characters";
    let name = section.read("export", ALLOWED, problems, |text| {
        let is_fine = (1..=EXPORT_NAME_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
        if is_fine { Ok(text.to_owned()) } else { Err(ALLOWED.to_owned()) }
    });
    let place = section.finish(problems);
    Export { name: name.unwrap_or_else(|| volume.to_owned()), place }
}

fn mount_section(
    mut section: Section<'_>,
    is_read_only: bool,
    backing: Option<&Backing>,
    problems: &mut Vec<Problem>,
) -> Mount {
    const PATH: &str = "an absolute path, not \"/\"";
    const OPTIONS: &str = "at most 4095 bytes without control characters";
    const FILE_SYSTEMS: &[&str] = &["ext4", "xfs", "none"];
    const FORMATS: &[&str] = &["if-empty", "never"];
    let path = section.read("path", PATH, problems, |text| {
        let path = path(text, Path::new("")).ok().filter(|path| path.is_absolute() && path.parent().is_some());
        path.ok_or_else(|| PATH.to_owned())
    });
    section.require("filesystem", "\"ext4\", \"xfs\", \"none\"", problems);
    let kind = match section.choice("filesystem", FILE_SYSTEMS, problems) {
        Some("ext4") => Some(FileSystemKind::Ext4),
        Some("xfs") => Some(FileSystemKind::Xfs),
        Some(_) => None,
        // Some file system: the path is still one that no other mount may have.
        None => Some(FileSystemKind::Ext4),
    };
    let format = section.choice("format", FORMATS, problems);
    let format = if format == Some("if-empty") { Format::IfEmpty } else { Format::Never };
    let options = section.read("options", OPTIONS, problems, |text| {
        let is_fine = text.len() <= MOUNT_OPTIONS_BYTES_MAX && !text.chars().any(char::is_control);
        if is_fine { Ok(text.to_owned()) } else { Err(OPTIONS.to_owned()) }
    });
    let takes_tenants = section.boolean("tenants", problems).unwrap_or(false);
    let place = section.finish(problems);
    let Some(kind) = kind else {
        let keys = ["path", "format", "options", "tenants"].into_iter().filter(|key| place.has(key));
        problems.extend(
            keys.map(|key| place.problem(key, "a value without a file system", "only with \"ext4\" or \"xfs\"")),
        );
        return Mount { file_system: None, takes_tenants: false, place };
    };
    let Some(target) = path else {
        if !place.has("path") && place.is_understood("filesystem") {
            problems.push(place.problem("path", "nothing", PATH));
        }
        return Mount { file_system: None, takes_tenants, place };
    };
    if format == Format::IfEmpty && is_read_only {
        problems.push(place.problem("format", "\"if-empty\" on a read-only volume", "\"never\""));
    }
    let is_format_known = place.is_understood("format") && place.is_understood("filesystem");
    if format == Format::Never && is_format_known && backing.is_some_and(Backing::is_in_memory) {
        let got = if place.has("format") { "\"never\"" } else { "nothing" };
        let got = format!("{got} on a volume in memory, which starts empty");
        problems.push(place.problem("format", got, "\"if-empty\""));
    }
    let options = options.unwrap_or_default();
    Mount {
        file_system: Some(FileSystemPlan { kind, format, target, options, journal_bytes: None }),
        takes_tenants,
        place,
    }
}

/// The message for a reference to a missing name: the names there are, and the probable one.
pub(super) fn allowed_names(word: &str, names: &BTreeSet<String>) -> String {
    const NAMES_MAX: usize = 8;
    let mut listed: Vec<String> = names.iter().take(NAMES_MAX).map(|name| format!("{name:?}")).collect();
    if names.len() > NAMES_MAX {
        listed.push("...".into());
    }
    let listed = if listed.is_empty() { "none: there is none".to_owned() } else { listed.join(", ") };
    format!("{listed}{}", suggest::hint(word, names.iter().map(String::as_str)))
}
