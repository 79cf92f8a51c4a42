//! Conflicts of paths: a socket is nothing else, and a mount point hides nothing that the daemon uses.

use super::front_ends;
use crate::config::daemon::{CONTROL_SOCKET, NOTES_DIRECTORY, STATE_DIRECTORY};
use crate::config::sections::Sections;
use crate::config::volume::backing;
use crate::config::volume::mount::PATH;
use crate::config::{Backing, Problem, cache, quoted};
use plimsoll_serve::connection::Address;
use plimsoll_serve::registry::front_ends as registered;
use std::path::{Path, PathBuf};

/// A path of the configuration.
struct Named {
    /// Such as `volume.db.file`.
    key: String,
    /// Its line; 0 where the file does not say it.
    line: usize,
    path: PathBuf,
}

impl Named {
    fn new(key: impl Into<String>, line: usize, path: &Path) -> Named {
        Named { key: key.into(), line, path: resolved(path) }
    }

    fn problem(&self, got: String, allowed: &str) -> Problem {
        Problem { line: self.line.max(1), key: self.key.clone(), got, allowed: allowed.to_owned() }
    }
}

/// The path without links, as far as it is there.
fn resolved(path: &Path) -> PathBuf {
    let found = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    match found {
        Some((above, real)) => {
            path.strip_prefix(above).map_or(real.clone(), |rest| match rest.as_os_str().is_empty() {
                true => real.clone(),
                false => real.join(rest),
            })
        }
        None => path.to_owned(),
    }
}

pub(super) fn check(sections: &Sections, problems: &mut Vec<Problem>) {
    let (sockets, others) = (sockets(sections), others(sections));
    for (at, socket) in sockets.iter().enumerate() {
        let is_same = |other: &&Named| other.path == socket.path && other.key != socket.key;
        for other in sockets[..at].iter().chain(&others).filter(is_same) {
            // Names the key that is in the file: only that one can be changed.
            let (wrong, other) = if socket.line > 0 { (socket, other) } else { (other, socket) };
            let got = format!("the path of {}, {}", other.key, quoted(&other.path.to_string_lossy()));
            problems.push(wrong.problem(got, "another path"));
        }
    }
    mount_points(sections, sockets.iter().chain(&others), problems);
}

fn sockets(sections: &Sections) -> Vec<Named> {
    let daemon = &sections.daemon;
    let line = if daemon.place.has(CONTROL_SOCKET.name) { daemon.place.line_of(CONTROL_SOCKET.name) } else { 0 };
    let mut sockets = vec![Named::new("daemon.control_socket", line, &daemon.control_socket)];
    let listens = front_ends::with_defaults(sections.listens.clone(), &sections.volumes, &daemon.state_directory);
    for entry in registered() {
        for listen in listens.get(entry.section).into_iter().flatten() {
            if let Address::Unix(path) = &listen.address {
                sockets.push(Named::new(format!("{}.listen", entry.section), listen.line, path));
            }
        }
    }
    sockets
}

fn others(sections: &Sections) -> Vec<Named> {
    let daemon = &sections.daemon;
    let of_daemon = |key: &str, path: &Path| {
        let line = if daemon.place.has(key) { daemon.place.line_of(key) } else { 0 };
        Named::new(format!("daemon.{key}"), line, path)
    };
    let mut others = vec![
        of_daemon(STATE_DIRECTORY.name, &daemon.state_directory),
        of_daemon(NOTES_DIRECTORY.name, &daemon.notes_directory),
    ];
    for volume in &sections.volumes {
        let Backing::File { path, key_file } = &volume.backing else { continue };
        let place = &volume.place;
        others.push(Named::new(place.dotted(backing::FILE.name), place.line_of(backing::FILE.name), path));
        let key_file = key_file
            .iter()
            .map(|path| Named::new(place.dotted("encryption.key_file"), place.line_of(backing::ENCRYPTION.name), path));
        others.extend(key_file);
    }
    let caches = sections.caches.iter().filter(|cache| cache.place.is_understood(cache::FILE.name));
    others.extend(caches.map(|cache| {
        Named::new(cache.place.dotted(cache::FILE.name), cache.place.line_of(cache::FILE.name), &cache.settings.path)
    }));
    others
}

fn mount_points<'n>(sections: &Sections, uses: impl Iterator<Item = &'n Named>, problems: &mut Vec<Problem>) {
    let uses: Vec<&Named> = uses.collect();
    for volume in &sections.volumes {
        let Some(mount) = &volume.mount else { continue };
        let Some(file_system) = &mount.file_system else { continue };
        let target = resolved(&file_system.target);
        let meets = |other: &&&Named| other.path.starts_with(&target) || target.starts_with(&other.path);
        if let Some(other) = uses.iter().find(meets) {
            let relation = match () {
                () if other.path == target => "which is",
                () if target.starts_with(&other.path) => "which is below",
                () => "which would hide",
            };
            let (path, other_path) = (quoted(&file_system.target.to_string_lossy()), other.path.to_string_lossy());
            let got = format!("{path}, {relation} {} ({})", other.key, quoted(&other_path));
            problems.push(mount.place.problem(
                PATH.name,
                got,
                "a directory apart from all other paths of the configuration",
            ));
        }
    }
}
