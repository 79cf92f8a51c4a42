//! What may be used only once: files, export names, mount points, paths of sockets; and which front ends go together.

use crate::config::model::{Backing, IscsiTarget, Listen, Mount, Volume};
use crate::config::sections::Sections;
use crate::config::{Problem, quoted};
use plimsoll_serve::nbd::Address;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

pub(super) fn check(sections: &Sections, problems: &mut Vec<Problem>) {
    files(sections, problems);
    caches(sections, problems);
    exports(&sections.volumes, problems);
    targets(&sections.volumes, problems);
    portals(sections, problems);
    mount_points(&sections.volumes, problems);
    front_ends(&sections.volumes, problems);
    tenants(&sections.volumes, problems);
    gates(sections, problems);
}

/// What a path leads to: a file has several names where it has hard links, and so has a device with several nodes.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Leads {
    File {
        device: u64,
        inode: u64,
    },
    Device(u64),
    /// Nothing is there yet.
    Path(PathBuf),
}

impl Leads {
    fn of(path: &Path) -> Leads {
        match std::fs::metadata(path) {
            Ok(metadata) if metadata.file_type().is_block_device() => Leads::Device(metadata.rdev()),
            Ok(metadata) => Leads::File { device: metadata.dev(), inode: metadata.ino() },
            Err(_) => Leads::Path(path.to_owned()),
        }
    }
}

/// A volume or a cache has a file that no other has.
fn files(sections: &Sections, problems: &mut Vec<Problem>) {
    let volumes = sections.volumes.iter().filter_map(|volume| match &volume.backing {
        Backing::File { path, .. } => Some((path.as_path(), format!("volume {:?}", volume.name), &volume.place)),
        Backing::Memory | Backing::CompressedMemory { .. } => None,
    });
    let caches = sections.caches.iter().filter(|cache| cache.place.is_understood("file"));
    let caches = caches.map(|cache| (cache.settings.path.as_path(), format!("cache {:?}", cache.name), &cache.place));
    let mut users: BTreeMap<Leads, String> = BTreeMap::new();
    for (path, user, place) in volumes.chain(caches) {
        match users.entry(Leads::of(path)) {
            Entry::Occupied(first) => {
                let got = format!("the file of {}, {}", first.get(), quoted(&path.to_string_lossy()));
                problems.push(place.problem("file", got, "a file of its own"));
            }
            Entry::Vacant(free) => {
                free.insert(user);
            }
        }
    }
}

/// A cache is of one volume.
fn caches(sections: &Sections, problems: &mut Vec<Problem>) {
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    for volume in &sections.volumes {
        let Some(cache) = &volume.cache else { continue };
        if let Some(first) = owners.get(cache.as_str()) {
            let got = format!("the cache of volume {first:?}, {}", quoted(cache));
            problems.push(volume.place.problem("cache", got, "a cache of its own"));
        } else {
            owners.insert(cache, &volume.name);
        }
    }
}

/// One volume with tenants a device: its scheduler hears of the calls and pages of one file system.
fn tenants(volumes: &[Volume], problems: &mut Vec<Problem>) {
    let mut users: BTreeMap<&str, &str> = BTreeMap::new();
    for volume in volumes.iter().filter(|volume| !volume.device.is_empty()) {
        let Some(mount) = volume.mount.as_ref().filter(|mount| mount.takes_tenants) else { continue };
        if let Some(first) = users.get(volume.device.as_str()) {
            let got = format!("a second volume with tenants on device {:?}, beside {first:?}", volume.device);
            problems.push(mount.place.problem("tenants", got, "one a device"));
        } else {
            users.insert(&volume.device, &volume.name);
        }
    }
}

/// Gates are found by the name of what takes tenants: a volume, or a device that is observed.
fn gates(sections: &Sections, problems: &mut Vec<Problem>) {
    let is_observed =
        |name: &str| sections.devices.iter().any(|device| device.name == name && device.observe.is_some());
    for volume in &sections.volumes {
        let Some(mount) = volume.mount.as_ref().filter(|mount| mount.takes_tenants) else { continue };
        if is_observed(&volume.name) {
            let got = format!("a volume with tenants that is called as device {0:?}, which is observed", volume.name);
            problems.push(mount.place.problem("tenants", got, "a name of its own"));
        }
    }
}

fn exports(volumes: &[Volume], problems: &mut Vec<Problem>) {
    let mut users: BTreeMap<&str, &str> = BTreeMap::new();
    for volume in volumes {
        let Some(export) = volume.export.as_ref().filter(|export| export.place.is_understood("export")) else {
            continue;
        };
        if let Some(first) = users.get(export.name.as_str()) {
            let got = format!("the export name of volume {first:?}, {}", quoted(&export.name));
            problems.push(export.place.problem("export", got, "a name of its own"));
        } else {
            users.insert(&export.name, &volume.name);
        }
    }
}

/// Neither the same mount point twice nor one below another: they could not be detached in any order. O(n²) of at most
/// 1024 mounts.
fn mount_points(volumes: &[Volume], problems: &mut Vec<Problem>) {
    let mut users: Vec<(&Path, &str)> = Vec::new();
    for volume in volumes {
        let Some(mount) = &volume.mount else { continue };
        let Some(path) = mount.file_system.as_ref().map(|file_system| file_system.target.as_path()) else { continue };
        let conflict = users.iter().find(|(other, _)| path.starts_with(other) || other.starts_with(path));
        if let Some((other, first)) = conflict {
            let relation = if *other == path { "the mount point" } else { "a path nested with the mount point" };
            let got = format!("{relation} of volume {first:?}, {}", quoted(&other.to_string_lossy()));
            problems.push(mount.place.problem("path", got, "a directory outside of the other mount points"));
        }
        users.push((path, &volume.name));
    }
}

fn targets(volumes: &[Volume], problems: &mut Vec<Problem>) {
    let mut users: BTreeMap<&str, &str> = BTreeMap::new();
    for volume in volumes {
        let Some(target) = volume.iscsi.as_ref().filter(|target| target.place.is_understood("name")) else { continue };
        if let Some(first) = users.get(target.name.as_str()) {
            let got = format!("the target of volume {first:?}, {}", quoted(&target.name));
            problems.push(target.place.problem("name", got, "a name of its own"));
        } else {
            users.insert(&target.name, &volume.name);
        }
    }
}

/// From other machines, only initiators that prove their identity may connect.
fn portals(sections: &Sections, problems: &mut Vec<Problem>) {
    let is_open = |target: &IscsiTarget| target.chap.is_none() && target.place.is_understood("chap");
    let open = sections.volumes.iter().find(|volume| volume.iscsi.as_ref().is_some_and(is_open));
    let Some(open) = open else { return };
    for Listen { address, line } in sections.iscsi_listen.iter().flatten() {
        if matches!(address, Address::Tcp(address) if !address.ip().is_loopback()) {
            let got = format!(
                "{:?}, which other machines reach, and volume {:?} without chap",
                address.to_string(),
                open.name
            );
            let allowed = "a loopback address such as 127.0.0.1 or [::1], or chap for every volume with iscsi".into();
            problems.push(Problem { line: *line, key: "iscsi.listen".into(), got, allowed });
        }
    }
}

/// What goes together with a target: no other writer, because no other writer would hear of its reservations.
fn target_alone(volume: &Volume, problems: &mut Vec<Problem>) {
    let Some(target) = volume.iscsi.as_ref().filter(|_| !volume.is_read_only) else { return };
    if volume.export.is_some() {
        let got = "an iSCSI target of a volume that is exported over NBD";
        let allowed = "one of the two, or read_only = true: reservations would not hold for NBD clients";
        problems.push(target.place.problem("", got, allowed));
    }
    if volume.mount.is_some() {
        let got = "an iSCSI target of a volume that is mounted here";
        let allowed = "one of the two, or read_only = true: two writers would destroy the file system";
        problems.push(target.place.problem("", got, allowed));
    }
}

fn front_ends(volumes: &[Volume], problems: &mut Vec<Problem>) {
    for volume in volumes {
        let has_front_end = ["nbd", "iscsi", "mount"].into_iter().any(|key| volume.place.has(key));
        let is_understood = volume.place.is_understood("read_only");
        let is_mounted = |mount: &Mount| mount.file_system.is_some() && mount.place.is_understood("filesystem");
        if is_understood {
            target_alone(volume, problems);
        }
        match (&volume.export, &volume.mount) {
            _ if !has_front_end => {
                let (got, allowed) = (
                    "neither an nbd nor an iscsi nor a mount table",
                    "at least one of them: otherwise nobody can use it",
                );
                problems.push(volume.place.problem("", got, allowed));
            }
            (Some(export), Some(mount)) if is_mounted(mount) && !volume.is_read_only && is_understood => {
                let got = "an export of a volume that is mounted here";
                let allowed = "one of the two, or read_only = true: two writers would destroy the file system";
                problems.push(export.place.problem("", got, allowed));
            }
            _ => {}
        }
    }
}
