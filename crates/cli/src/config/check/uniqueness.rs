//! What may be used only once: files, export names, mount points, paths of sockets; and which front ends go together.

use crate::config::model::{Backing, Listen, Volume};
use crate::config::sections::Sections;
use crate::config::{Problem, quoted};
use plimsoll_brick::nbd::Address;
use std::collections::BTreeMap;
use std::path::Path;

pub(super) fn check(sections: &Sections, problems: &mut Vec<Problem>) {
    files(&sections.volumes, problems);
    exports(&sections.volumes, problems);
    mount_points(&sections.volumes, problems);
    front_ends(&sections.volumes, problems);
    tenants(&sections.volumes, problems);
    sockets(sections, problems);
}

fn files(volumes: &[Volume], problems: &mut Vec<Problem>) {
    let mut users: BTreeMap<&Path, &str> = BTreeMap::new();
    for volume in volumes {
        let Backing::File(path) = &volume.backing else { continue };
        if let Some(first) = users.get(path.as_path()) {
            let got = format!("the file of volume {first:?}, {}", quoted(&path.to_string_lossy()));
            problems.push(volume.place.problem("file", got, "a file of its own"));
        } else {
            users.insert(path, &volume.name);
        }
    }
}

/// One volume with tenants a device: its scheduler hears of the calls and pages of one file system.
fn tenants(volumes: &[Volume], problems: &mut Vec<Problem>) {
    let mut users: BTreeMap<&str, &str> = BTreeMap::new();
    for volume in volumes {
        let Some(mount) = volume.mount.as_ref().filter(|mount| mount.takes_tenants) else { continue };
        if let Some(first) = users.get(volume.device.as_str()) {
            let got = format!("a second volume with tenants on device {:?}, beside {first:?}", volume.device);
            problems.push(mount.place.problem("tenants", got, "one a device"));
        } else {
            users.insert(&volume.device, &volume.name);
        }
    }
}

fn exports(volumes: &[Volume], problems: &mut Vec<Problem>) {
    let mut users: BTreeMap<&str, &str> = BTreeMap::new();
    for volume in volumes {
        let Some(export) = &volume.export else { continue };
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

fn front_ends(volumes: &[Volume], problems: &mut Vec<Problem>) {
    for volume in volumes {
        match (&volume.export, &volume.mount) {
            (None, None) => {
                let (got, allowed) =
                    ("neither an nbd nor a mount table", "at least one of them: otherwise nobody can use it");
                problems.push(volume.place.problem("", got, allowed));
            }
            (Some(export), Some(mount)) if mount.file_system.is_some() && !volume.is_read_only => {
                let got = "an export of a volume that is mounted here";
                let allowed = "one of the two, or read_only = true: two writers would destroy the file system";
                problems.push(export.place.problem("", got, allowed));
            }
            _ => {}
        }
    }
}

fn sockets(sections: &Sections, problems: &mut Vec<Problem>) {
    let control = &sections.daemon.control_socket;
    for Listen { address, line } in sections.listen.iter().flatten() {
        if matches!(address, Address::Unix(path) if path == control) {
            let got = format!("the control socket, {}", quoted(&control.to_string_lossy()));
            problems.push(Problem { line: *line, key: "nbd.listen".into(), got, allowed: "another path".into() });
        }
    }
}
