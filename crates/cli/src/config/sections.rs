//! The file: which sections there are, and their reading one after the other. What only other sections can tell (does
//! the pool exist, do the reserves fit) is left to [`super::whole`].

use super::pool::PoolSection;
use super::{Cache, DaemonSection, Defaults, Device, ExecutorSection, Listens, Volume};
use super::{cache, daemon, device, executor, front_ends, pool, volume};
use plimsoll_serve::registry::{OWN_TABLES, WITH_SOCKETS};
use plimsoll_settings::key::{Absent, Described, Key, KeyTable, NamedTables, SubTable, joined};
use plimsoll_settings::{LineIndex, Problem, Section, suggest};
use std::collections::BTreeSet;
use std::path::Path;
use toml::de::DeTable;

const DAEMON: Key<SubTable> = Key {
    name: "daemon",
    form: SubTable { table: &daemon::TABLE },
    absent: Absent::Words("its defaults"),
    help: "the daemon's directories, its control socket and the memory of connections",
};
const EXECUTOR: Key<SubTable> = Key {
    name: "executor",
    form: SubTable { table: &executor::TABLE },
    absent: Absent::Words("its defaults"),
    help: "the threads that compress and encrypt",
};
const DEVICE: Key<NamedTables> = Key {
    name: "device",
    form: NamedTables { table: &device::TABLE, count_max: 64 },
    absent: Absent::Words("none"),
    help: "a disk that pools share, or one that is observed",
};
const POOL: Key<NamedTables> = Key {
    name: "pool",
    form: NamedTables { table: &pool::TABLE, count_max: 1024 },
    absent: Absent::Words("none"),
    help: "a part of a device or of another pool, and what it was promised",
};
const CACHE: Key<NamedTables> = Key {
    name: "cache",
    form: NamedTables { table: &cache::TABLE, count_max: 64 },
    absent: Absent::Words("none"),
    help: "a fast device as the write-back cache of a volume",
};
const VOLUME: Key<NamedTables> = Key {
    name: "volume",
    form: NamedTables { table: &volume::TABLE, count_max: 1024 },
    absent: Absent::Words("at least one is required, unless a device observes"),
    help: "a disk for one tenant",
};

/// The file itself. It leads to the keys of all sections.
pub(super) const FILE: KeyTable =
    KeyTable { path: "", keys: &joined::<{ 1 + WITH_SOCKETS + OTHERS.len() }>(&[&[&DAEMON], &OWN_TABLES, OTHERS]) };
const OTHERS: &[&dyn Described] = &[&EXECUTOR, &DEVICE, &POOL, &CACHE, &VOLUME];

/// What the file says, section by section, before the sections were compared with each other.
pub(super) struct Sections {
    pub(super) daemon: DaemonSection,
    /// The addresses that the file has.
    pub(super) listens: Listens,
    pub(super) executor: ExecutorSection,
    /// Where its section begins; `None`: there is none.
    pub(super) executor_line: Option<usize>,
    pub(super) devices: Vec<Device>,
    pub(super) pools: Vec<PoolSection>,
    pub(super) caches: Vec<Cache>,
    pub(super) volumes: Vec<Volume>,
    /// The names that a pool may be on; `None` if they are not all known.
    pub(super) device_names: Option<BTreeSet<String>>,
    /// The pools that a pool or a volume may be in; `None` if they are not all known.
    pub(super) pool_names: Option<BTreeSet<String>>,
    /// The names of caches; `None` if they are not all known.
    pub(super) cache_names: Option<BTreeSet<String>>,
    /// Whether there are volumes under a mistyped name.
    pub(super) may_lack_volumes: bool,
}

/// Reads everything. `directory` is what relative paths start from.
pub(super) fn read(
    table: &DeTable<'_>,
    lines: &LineIndex,
    directory: &Path,
    defaults: &Defaults,
    problems: &mut Vec<Problem>,
) -> Sections {
    let mut file = FILE.root(table, lines);
    let daemon = daemon::read(DAEMON.read(&mut file, problems), directory, defaults, problems);
    let listens = front_ends::read_addresses(&mut file, directory, problems);
    let executor = EXECUTOR.read(&mut file, problems).map(|section| {
        let line = section.place().line;
        (executor::read(section, problems), line)
    });
    let (executor, executor_line) = executor.map_or_else(Default::default, |(executor, line)| (executor, Some(line)));
    let names_of = |key: &str, names| if is_mistyped(table, key) { None } else { names };
    let (devices, device_names) = named(&DEVICE, &mut file, problems);
    let observes = devices.iter().any(|(_, section)| device::is_observed(section.place()));
    let devices = devices.into_iter().map(|(name, section)| device::read(name, section, directory, problems)).collect();
    let (pools, pool_names) = named(&POOL, &mut file, problems);
    let pools = pools.into_iter().map(|(name, section)| pool::read(name, section, problems)).collect();
    let (caches, cache_names) = named(&CACHE, &mut file, problems);
    let notes = &daemon.notes_directory;
    let cache = |(name, section)| cache::read(name, section, directory, notes, problems);
    let caches = caches.into_iter().filter_map(cache).collect();
    let (volumes, _) = named(&VOLUME, &mut file, problems);
    let volumes = volumes.into_iter().map(|(name, section)| volume::read(name, section, directory, problems)).collect();
    let place = file.finish(problems);
    let may_lack_volumes = is_mistyped(table, VOLUME.name);
    if !place.has(VOLUME.name) && !observes && !may_lack_volumes {
        problems.push(place.problem(VOLUME.name, "nothing", "at least one table [volume.NAME]"));
    }
    Sections {
        daemon,
        listens,
        executor,
        executor_line,
        devices,
        pools,
        caches,
        volumes,
        device_names: names_of(DEVICE.name, device_names),
        pool_names: names_of(POOL.name, pool_names),
        cache_names: names_of(CACHE.name, cache_names),
        may_lack_volumes,
    }
}

/// Whether the file has a table that only a typing error keeps from being `key`: what is missing there may be in it.
fn is_mistyped(table: &DeTable<'_>, key: &str) -> bool {
    let known = || FILE.keys.iter().map(|key| key.name());
    let mut unknown = table.keys().map(|name| name.get_ref().as_ref()).filter(|name| known().all(|key| key != *name));
    unknown.any(|name: &str| suggest::closest(name, known()) == Some(key))
}

/// The tables in `key` and their names. No names if something is wrong with the list itself: then a reference cannot be
/// called undefined.
fn named<'t>(
    key: &Key<NamedTables>,
    file: &mut Section<'t>,
    problems: &mut Vec<Problem>,
) -> (Vec<(String, Section<'t>)>, Option<BTreeSet<String>>) {
    let before = problems.len();
    let sections = key.read(file, problems);
    let names = (problems.len() == before).then(|| sections.iter().map(|(name, _)| name.clone()).collect());
    (sections, names)
}
