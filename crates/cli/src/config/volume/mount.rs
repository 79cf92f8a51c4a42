//! `[volume.NAME.mount]`: a volume as a block device of this machine, with its file system mounted.

use super::{Backing, Volume};
use crate::config::paths::path;
use plimsoll_serve::attach::{FileSystemKind, FileSystemPlan, Format};
use plimsoll_settings::key::{Absent, Boolean, Choice, Key, KeyTable, Text};
use plimsoll_settings::{Place, Problem, Section, quoted};
use std::collections::BTreeMap;
use std::path::Path;

/// What a mount call takes as data: one page. Bytes.
const MOUNT_OPTIONS_BYTES_MAX: usize = 4095;
const PATH_ALLOWED: &str = "an absolute path, not \"/\"";
const OPTIONS_ALLOWED: &str = "at most 4095 bytes without control characters";

const FILE_SYSTEM: Key<Choice> = Key {
    name: "filesystem",
    form: Choice::of(|| vec!["ext4", "xfs", "none"]),
    absent: Absent::Required("\"ext4\", \"xfs\", \"none\""),
    help: "the file system; `\"none\"` leaves it at the block device, and then there are no other keys",
};
pub(in crate::config) const PATH: Key<Text> = Key {
    name: "path",
    form: Text::new("path", PATH_ALLOWED),
    absent: Absent::Words("required with a file system"),
    help: "the mount point, made if it is missing; apart from all other paths of the configuration",
};
const FORMAT: Key<Choice> = Key {
    name: "format",
    form: Choice::of(|| vec!["if-empty", "never"]),
    absent: Absent::Value("never"),
    help: "`\"if-empty\"`: a file system is made if the volume holds nothing at all; `\"never\"`: it must be there. A \
           volume in memory needs the first, a read-only one the second",
};
const OPTIONS: Key<Text> = Key {
    name: "options",
    form: Text::new("text", OPTIONS_ALLOWED),
    absent: Absent::Words("none"),
    help: "mount options, separated by commas; what the file system refuses is refused before anything is done",
};
pub(in crate::config) const TENANTS: Key<Boolean> = Key {
    name: "tenants",
    form: Boolean,
    absent: Absent::Value(false),
    help: "processes may join as tenants (`plimsoll run`, [tenants.md](tenants.md)), each with a session of its own; it \
           takes BPF. One volume a device",
};

pub(super) const TABLE: KeyTable =
    KeyTable { path: "volume.NAME.mount", keys: &[&FILE_SYSTEM, &PATH, &FORMAT, &OPTIONS, &TENANTS] };

/// A section `[volume.NAME.mount]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The file system and where it is mounted; `None` for a block device without one.
    pub file_system: Option<FileSystemPlan>,
    /// Processes may join as tenants, each with a session of its own.
    pub takes_tenants: bool,
    /// Where the section stands.
    pub place: Place,
}

impl Mount {
    /// Whether a file system is mounted, as far as the file says.
    pub(in crate::config) fn is_mounted(&self) -> bool {
        self.file_system.is_some() && self.place.is_understood(FILE_SYSTEM.name)
    }
}

pub(super) fn read(
    mut section: Section<'_>,
    is_read_only: bool,
    backing: Option<&Backing>,
    problems: &mut Vec<Problem>,
) -> Mount {
    let path = PATH.read(&mut section, problems, |text| {
        let path = path(text, Path::new("")).ok().filter(|path| path.is_absolute() && path.parent().is_some());
        path.ok_or_else(|| PATH_ALLOWED.to_owned())
    });
    FILE_SYSTEM.require(&mut section, problems);
    let kind = match FILE_SYSTEM.read(&mut section, problems) {
        Some("ext4") => Some(FileSystemKind::Ext4),
        Some("xfs") => Some(FileSystemKind::Xfs),
        Some(_) => None,
        // Some file system: the path is still one that no other mount may have.
        None => Some(FileSystemKind::Ext4),
    };
    let format = FORMAT.read_or_default(&mut section, problems);
    let format = if format == "if-empty" { Format::IfEmpty } else { Format::Never };
    let options = OPTIONS.read(&mut section, problems, |text| {
        let is_fine = text.len() <= MOUNT_OPTIONS_BYTES_MAX && !text.chars().any(char::is_control);
        if is_fine { Ok(text.to_owned()) } else { Err(OPTIONS_ALLOWED.to_owned()) }
    });
    let takes_tenants = TENANTS.read_or_default(&mut section, problems);
    let place = section.finish(problems);
    let Some(kind) = kind else {
        let keys = [PATH.name, FORMAT.name, OPTIONS.name, TENANTS.name].into_iter().filter(|key| place.has(key));
        problems.extend(
            keys.map(|key| place.problem(key, "a value without a file system", "only with \"ext4\" or \"xfs\"")),
        );
        return Mount { file_system: None, takes_tenants: false, place };
    };
    let Some(target) = path else {
        if !place.has(PATH.name) && place.is_understood(FILE_SYSTEM.name) {
            problems.push(place.problem(PATH.name, "nothing", PATH_ALLOWED));
        }
        return Mount { file_system: None, takes_tenants, place };
    };
    if format == Format::IfEmpty && is_read_only {
        problems.push(place.problem(FORMAT.name, "\"if-empty\" on a read-only volume", "\"never\""));
    }
    let is_format_known = place.is_understood(FORMAT.name) && place.is_understood(FILE_SYSTEM.name);
    if format == Format::Never && is_format_known && backing.is_some_and(Backing::is_in_memory) {
        let got = if place.has(FORMAT.name) { "\"never\"" } else { "nothing" };
        let got = format!("{got} on a volume in memory, which starts empty");
        problems.push(place.problem(FORMAT.name, got, "\"if-empty\""));
    }
    let options = options.unwrap_or_default();
    Mount {
        file_system: Some(FileSystemPlan { kind, format, target, options, journal_bytes: None }),
        takes_tenants,
        place,
    }
}

/// Mount points must differ, and none lies below another: they could not be detached in any order. O(n²) of at most
/// 1024 mounts.
pub(in crate::config) fn check_apart(volumes: &[Volume], problems: &mut Vec<Problem>) {
    let mut users: Vec<(&Path, &str)> = Vec::new();
    for volume in volumes {
        let Some(mount) = &volume.mount else { continue };
        let Some(path) = mount.file_system.as_ref().map(|file_system| file_system.target.as_path()) else { continue };
        let conflict = users.iter().find(|(other, _)| path.starts_with(other) || other.starts_with(path));
        if let Some((other, first)) = conflict {
            let relation = if *other == path { "the mount point" } else { "a path nested with the mount point" };
            let got = format!("{relation} of volume {first:?}, {}", quoted(&other.to_string_lossy()));
            problems.push(mount.place.problem(PATH.name, got, "a directory outside of the other mount points"));
        }
        users.push((path, &volume.name));
    }
}

/// One volume with tenants a device: its scheduler gets the calls and pages of one file system.
pub(in crate::config) fn check_tenants(volumes: &[Volume], problems: &mut Vec<Problem>) {
    let mut users: BTreeMap<&str, &str> = BTreeMap::new();
    for volume in volumes.iter().filter(|volume| !volume.device.is_empty()) {
        let Some(mount) = volume.mount.as_ref().filter(|mount| mount.takes_tenants) else { continue };
        if let Some(first) = users.get(volume.device.as_str()) {
            let got = format!("a second volume with tenants on device {:?}, beside {first:?}", volume.device);
            problems.push(mount.place.problem(TENANTS.name, got, "one a device"));
        } else {
            users.insert(&volume.device, &volume.name);
        }
    }
}
