//! `[volume.NAME]`: a disk for one tenant: its pool, its size, its content and its front ends.

pub(super) mod backing;
pub(super) mod mount;
mod read_ahead;

pub use backing::Backing;
pub use mount::Mount;

use super::bounds::{BLOCK_BYTES, SIZE as SIZE_ALLOWED};
use super::front_ends::{self, Doors};
use plimsoll_core::{Allocation, ByteCount};
use plimsoll_engine::read_ahead::ReadAhead;
use plimsoll_serve::attach::{FileSystemKind, Format};
use plimsoll_serve::registry::{VOLUME_TABLES, WITH_SOCKETS};
use plimsoll_serve::sockets::DoorSection;
use plimsoll_settings::allocation::{self, DEADLINES_TABLE, LIMIT, PRIORITY, RESERVE, WEIGHT};
use plimsoll_settings::key::{Absent, Boolean, Described, Key, KeyTable, Quantity, SubTable, Text, joined};
use plimsoll_settings::{Place, Problem, Section, quoted};
use std::collections::BTreeMap;
use std::path::Path;

/// Smallest volume in which mkfs.xfs makes a file system (mkfs.xfs(8)).
const XFS_SIZE_MIN: ByteCount = ByteCount(300 << 20);
/// Largest offset that a file has on Linux. Bytes.
const SIZE_BYTES_MAX: u64 = i64::MAX as u64;

pub(super) const POOL: Key<Text> = Key {
    name: "pool",
    form: Text::new("name", "the name of a pool"),
    absent: Absent::Required("the name of a pool"),
    help: "the pool that it is in",
};
pub(super) const SIZE: Key<Quantity<ByteCount>> = Key {
    name: "size",
    form: Quantity { allowed: SIZE_ALLOWED, is_allowed: |size| size.0 > 0 && is_of_blocks(size) },
    absent: Absent::Required(SIZE_ALLOWED),
    help: "its size",
};
pub(super) const START: Key<Quantity<ByteCount>> = Key {
    name: "start",
    form: Quantity { allowed: "a place such as \"1GiB\", a multiple of 4096 bytes", is_allowed: is_of_blocks },
    absent: Absent::Words("[packed](#placement)"),
    help: "its first byte on the device; without overlap, within the model's capacity",
};
pub(super) const CACHE: Key<Text> = Key {
    name: "cache",
    form: Text::new("name", "the name of a cache"),
    absent: Absent::Words("none"),
    help: "its cache, of its own; the volume may be written and is not encrypted",
};
const STATIC_CLASSES: Key<Boolean> = Key {
    name: "static_classes",
    form: Boolean,
    absent: Absent::Value(false),
    help: "superblocks, descriptors, bitmaps, inode tables and journal of the ext4 or XFS on it have their classes in \
           requests that say none ([classes.md](classes.md#by-place)). Not with tenants: their tags know more",
};
pub(super) const READ_ONLY: Key<Boolean> =
    Key { name: "read_only", form: Boolean, absent: Absent::Value(false), help: "writes are refused" };
const MOUNT: Key<SubTable> = Key {
    name: "mount",
    form: SubTable { table: &mount::TABLE },
    absent: Absent::Words("not here"),
    help: "it is a block device of this machine, and its file system is mounted",
};

pub(super) const TABLE: KeyTable = KeyTable {
    path: "volume.NAME",
    keys: &joined::<{ KEYS.len() + WITH_SOCKETS + 1 }>(&[KEYS, &VOLUME_TABLES, &[&MOUNT]]),
};
const KEYS: &[&dyn Described] = &[
    &POOL,
    &SIZE,
    &backing::FILE,
    &backing::MEMORY,
    &backing::COMPRESSION,
    &backing::ENCRYPTION,
    &START,
    &CACHE,
    &read_ahead::READ_AHEAD,
    &STATIC_CLASSES,
    &READ_ONLY,
    &RESERVE,
    &LIMIT,
    &WEIGHT,
    &PRIORITY,
    &DEADLINES_TABLE,
];

/// A section `[volume.NAME]`.
#[derive(Clone, Debug)]
pub struct Volume {
    /// Its name; unique in the file.
    pub name: String,
    /// The pool that it is in. The volume is an account there, with its sessions below it.
    pub pool: String,
    /// The device that it is on, through its pool.
    pub device: String,
    /// A multiple of 4096.
    pub size_bytes: u64,
    /// Where its content is.
    pub backing: Backing,
    /// Its first byte on the device, a multiple of 4096.
    pub start_bytes: u64,
    /// Whether the file says where it starts; otherwise it was packed.
    pub is_start_fixed: bool,
    /// The name of its cache.
    pub cache: Option<String>,
    /// How far it is read ahead.
    pub read_ahead: Option<ReadAhead>,
    /// Whether its file system's data at fixed places has classes, in requests without a class.
    pub has_static_classes: bool,
    /// Writes are refused.
    pub is_read_only: bool,
    /// What it was promised, for all its sessions together.
    pub allocation: Allocation,
    /// Its doors, by the sections of the front ends.
    pub doors: Doors,
    /// Its disk and file system on this machine.
    pub mount: Option<Mount>,
    /// Where the section stands.
    pub place: Place,
}

pub(super) fn read(name: String, mut section: Section<'_>, directory: &Path, problems: &mut Vec<Problem>) -> Volume {
    POOL.require(&mut section, problems);
    SIZE.require(&mut section, problems);
    let pool = POOL.text(&mut section, problems).map(str::to_owned);
    let size = SIZE.read(&mut section, problems);
    let start = START.read(&mut section, problems);
    let backing = backing::read(&mut section, directory, problems);
    let cache = CACHE.text(&mut section, problems).map(str::to_owned);
    let ahead = read_ahead::read(&mut section, problems);
    let has_static_classes = STATIC_CLASSES.read_or_default(&mut section, problems);
    let is_read_only = READ_ONLY.read_or_default(&mut section, problems);
    let allocation = allocation::allocation(&mut section, problems);
    let doors = front_ends::read_doors(&name, &mut section, problems);
    let mount = MOUNT.read(&mut section, problems);
    let mount = mount.map(|section| mount::read(section, is_read_only, backing.as_ref(), problems));
    let place = section.finish(problems);
    let takes_tenants = mount.as_ref().is_some_and(|mount| mount.takes_tenants);
    read_ahead::check(&place, cache.is_some(), takes_tenants, problems);
    if has_static_classes && takes_tenants {
        const ALLOWED: &str = "false: with tenants the tags know every block's class";
        problems.push(place.problem(STATIC_CLASSES.name, "true on a volume that is mounted with tenants", ALLOWED));
    }
    let file_system = mount.as_ref().and_then(|mount| mount.file_system.as_ref());
    let makes_xfs = file_system.is_some_and(|plan| plan.kind == FileSystemKind::Xfs && plan.format == Format::IfEmpty);
    if let Some(size) = size.filter(|&size| makes_xfs && size < XFS_SIZE_MIN) {
        let allowed = format!("at least {XFS_SIZE_MIN} to make XFS in it");
        problems.push(place.problem(SIZE.name, size, allowed));
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
        doors,
        mount,
        place,
    }
}

impl Volume {
    /// Its door over the front end with that section, if it has one.
    pub fn door(&self, section: &str) -> Option<&DoorSection> {
        self.doors.get(section)
    }
}

fn is_of_blocks(bytes: &ByteCount) -> bool {
    bytes.0.is_multiple_of(BLOCK_BYTES) && bytes.0 <= SIZE_BYTES_MAX
}

/// A cache is of one volume.
pub(super) fn check_caches_once(volumes: &[Volume], problems: &mut Vec<Problem>) {
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    for volume in volumes {
        let Some(cache) = &volume.cache else { continue };
        if let Some(first) = owners.get(cache.as_str()) {
            let got = format!("the cache of volume {first:?}, {}", quoted(cache));
            problems.push(volume.place.problem(CACHE.name, got, "a cache of its own"));
        } else {
            owners.insert(cache, &volume.name);
        }
    }
}
