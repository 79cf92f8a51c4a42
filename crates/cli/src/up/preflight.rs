//! Whether this user on this machine can run the configuration; checked before anything changes.

use super::cache_advice::why_not_without;
use super::{plan, unserved};
use crate::config::{Backing, Configuration, Listen, Place, Problem, quoted};
use plimsoll_engine::cache::noted_cache_on;
use plimsoll_engine::kernel_user_of;
use plimsoll_serve::attach::foreign_mount;
use plimsoll_serve::connection::Address;
use plimsoll_serve::registry::with_sockets;
use plimsoll_tags::TagsError;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use tracing::warn;

/// Raises the limit of open files to this user's maximum. Each connection is a file, and a shell's own limit is 1024.
pub(super) fn raise_open_files_max() {
    let allowed = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: allowed.maximum, maximum: allowed.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        warn!("files that may be open: {:?}, and no more: {error}", allowed.current);
    }
}

/// Says why mounts cannot be made, naming the first one; `None` if they can or there are none.
pub(super) fn refusal(configuration: &Configuration) -> Option<String> {
    let user = rustix::process::geteuid();
    if !user.is_root()
        && let Some(path) = configuration.devices.iter().find_map(|device| device.observe.as_ref())
    {
        return Some(format!("observing {} takes root, and this is user {}", path.display(), user.as_raw()));
    }
    let mount = configuration.volumes.iter().find_map(|volume| volume.mount.as_ref())?;
    if let Some(reason) = why_no_mounts() {
        return Some(message(configuration, &mount.place, &reason));
    }
    let mounts = configuration.volumes.iter().filter_map(|volume| volume.mount.as_ref());
    let with_tenants = mounts.into_iter().find(|mount| mount.takes_tenants)?;
    why_no_tenants().map(|reason| {
        let (file, line, key) = (configuration.file.display(), with_tenants.place.line, &with_tenants.place.path);
        format!("{file}:{line}: {key}: {reason}; without tenants, the volume can be mounted")
    })
}

/// What a start would refuse, as far as that can be seen without one. `plimsoll check` and `plimsoll up` both ask for
/// it. Nothing is changed.
pub(super) fn problems(configuration: &Configuration) -> Vec<Problem> {
    let mut problems = caches_as_volumes(configuration);
    problems.extend(caches_not_named(configuration));
    problems.extend(unserved::volumes(configuration));
    problems.extend(wrong_places(configuration));
    problems.extend(addresses_taken(configuration));
    problems.extend(wrong_mounts(configuration));
    problems.sort_by_key(|problem| problem.line);
    problems
}

/// The same, and files and block devices that the kernel uses, as the start of a daemon finds them when it opens them.
pub(crate) fn refused(configuration: &Configuration) -> Vec<Problem> {
    let mut problems = problems(configuration);
    problems.extend(in_use(configuration));
    problems.sort_by_key(|problem| problem.line);
    problems
}

/// Files and block devices that the kernel uses. One that a daemon serves is no problem here: the daemon may be that of
/// this configuration.
fn in_use(configuration: &Configuration) -> Vec<Problem> {
    let writable = configuration.volumes.iter().filter(|volume| !volume.is_read_only);
    let of_volumes = writable.filter_map(|volume| match &volume.backing {
        Backing::File { path, .. } => Some((&volume.place, path)),
        _ => None,
    });
    let of_caches = configuration.caches.iter().map(|cache| (&cache.place, &cache.settings.path));
    let problems = of_volumes.chain(of_caches).filter_map(|(place, path)| {
        let (got, allowed) = plan::in_use_words(path, &kernel_user_of(path)?);
        Some(place.problem("file", got, allowed))
    });
    problems.collect()
}

/// Volumes to which the configuration gives no cache, and which have one.
fn caches_not_named(configuration: &Configuration) -> Vec<Problem> {
    let without = configuration.volumes.iter().filter(|volume| volume.cache.is_none());
    // A file that is not there is the business of the start: it may be made later.
    let there = without.filter(|volume| matches!(&volume.backing, Backing::File { path, .. } if path.exists()));
    let refused = there.filter_map(|volume| {
        let config = plan::volume(configuration, volume);
        let line = why_not_without(configuration, volume, &config, false)?;
        let at = format!("{}:{}: ", configuration.file.display(), volume.place.line);
        let (key, said) = line.strip_prefix(&at)?.split_once(": cache: ")?;
        // What is not of the form of a problem, the start says in its own words.
        let said = said.strip_prefix("got ")?;
        let (got, allowed) = said.split_once(", allowed ").unwrap_or((said, "a volume of which the cache is known"));
        let (got, allowed) = (got.to_owned(), allowed.to_owned());
        Some(Problem { line: volume.place.line, key: format!("{key}: cache"), got, allowed })
    });
    refused.collect()
}

/// Directories and sockets of the daemon where something else lies, or where none can be made.
fn wrong_places(configuration: &Configuration) -> Vec<Problem> {
    let daemon = &configuration.daemon;
    let mut problems = Vec::new();
    for (key, path) in [("state_directory", &daemon.state_directory), ("notes_directory", &daemon.notes_directory)] {
        if let Some(why) = why_no_directory(path) {
            problems.push(daemon.place.problem(key, why, "a directory, or a path at which one can be made"));
        }
    }
    const ALLOWED: &str = "the path of a socket, or a free one in a directory that is there";
    let state = &daemon.state_directory;
    if let Some(why) = why_no_socket(&daemon.control_socket, state) {
        problems.push(daemon.place.problem("control_socket", why, ALLOWED));
    }
    for (section, listen) in all_addresses(configuration) {
        if let Address::Unix(path) = &listen.address
            && let Some(got) = why_no_socket(path, state)
        {
            problems.push(Problem {
                line: listen.line,
                key: format!("{section}.listen"),
                got,
                allowed: ALLOWED.into(),
            });
        }
    }
    problems
}

fn why_no_directory(path: &Path) -> Option<String> {
    let there = path.ancestors().find(|above| above.symlink_metadata().is_ok())?;
    let is_directory = there.metadata().is_ok_and(|found| found.is_dir());
    let shown = quoted(&path.to_string_lossy());
    match there == path {
        _ if is_directory => None,
        true => Some(format!("{shown}, which is no directory")),
        false => Some(format!("{shown}, and {} is no directory", quoted(&there.to_string_lossy()))),
    }
}

/// The start makes the state directory, and no other.
fn why_no_socket(path: &Path, state: &Path) -> Option<String> {
    let shown = quoted(&path.to_string_lossy());
    match path.symlink_metadata() {
        Ok(found) if found.file_type().is_socket() => return None,
        Ok(_) => return Some(format!("{shown}, which is no socket")),
        Err(_) => {}
    }
    let directory = path.parent()?;
    let is_made = state.starts_with(directory);
    (!is_made && !directory.is_dir())
        .then(|| format!("{shown}, and {} is no directory", quoted(&directory.to_string_lossy())))
}

fn all_addresses(configuration: &Configuration) -> impl Iterator<Item = (&'static str, &Listen)> {
    let of = |section: &'static str| configuration.listens(section).iter().map(move |listen| (section, listen));
    with_sockets().flat_map(move |(entry, _)| of(entry.section))
}

/// Addresses that two front ends listen on. Twice in one list is refused when the file is read.
fn addresses_taken(configuration: &Configuration) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut before: Vec<(&str, &Listen)> = Vec::new();
    for (section, listen) in all_addresses(configuration) {
        let is_any_port = matches!(&listen.address, Address::Tcp(address) if address.port() == 0);
        let is_it = |(other, taken): &&(&str, &Listen)| *other != section && taken.address == listen.address;
        if let Some((other, _)) = before.iter().find(is_it).filter(|_| !is_any_port) {
            let got = format!("{}, an address of {other}.listen", quoted(&listen.address.to_string()));
            let (line, key) = (listen.line, format!("{section}.listen"));
            problems.push(Problem { line, key, got, allowed: "an address of its own".to_owned() });
        }
        before.push((section, listen));
    }
    problems
}

/// Files that the configuration serves as volumes, and that hold the cache of a volume.
fn caches_as_volumes(configuration: &Configuration) -> Vec<Problem> {
    let notes = plan::notes(configuration);
    let writable = configuration.volumes.iter().filter(|volume| !volume.is_read_only);
    let refused = writable.filter_map(|volume| {
        let Backing::File { path, .. } = &volume.backing else { return None };
        // A directory of notes that cannot be read is the business of volumes with caches.
        let note = noted_cache_on(&notes, path).ok().flatten()?;
        let got = format!("{}, the cache {} of volume {}", quoted(&path.to_string_lossy()), note.cache, note.volume);
        let allowed = "a file without a cache that was not detached: plimsoll cache detach or forget gives it up";
        Some(volume.place.problem("file", got, allowed))
    });
    refused.collect()
}

/// Mount points and mount options that would be refused later, perhaps after a volume was formatted.
fn wrong_mounts(configuration: &Configuration) -> Vec<Problem> {
    let mounts = configuration.volumes.iter().filter_map(|volume| volume.mount.as_ref());
    mounts
        .filter_map(|mount| Some((&mount.place, mount.file_system.as_ref()?)))
        .flat_map(|(place, file_system)| {
            let wrong = |key: &str, got: String, allowed: &str| place.problem(key, got, allowed);
            let path = file_system.refused_target();
            let path = path.map(|got| wrong("path", got, "a directory, or a path at which one can be made"));
            let path = path.or_else(|| {
                let of = foreign_mount(&file_system.target, &configuration.daemon.state_directory)?;
                let got = format!("{}, {of}", file_system.target.display());
                Some(wrong("path", got, "a directory on which no other daemon has mounted a volume"))
            });
            let options = file_system.refused_options();
            let allowed = format!("mount options of {}", file_system.kind);
            path.into_iter().chain(options.map(|got| wrong("options", got, &allowed))).collect::<Vec<_>>()
        })
        .collect()
}

/// A volume knows which process caused each of its blocks, or takes no tenants.
fn why_no_tenants() -> Option<String> {
    match plimsoll_tags::check_machine() {
        Err(TagsError::NotRun(why)) => Some(why),
        _ => None,
    }
}

fn message(configuration: &Configuration, place: &Place, reason: &str) -> String {
    let (file, line, key) = (configuration.file.display(), place.line, &place.path);
    format!("{file}:{line}: {key}: mounting {reason}; without mount tables, NBD exports work")
}

fn why_no_mounts() -> Option<String> {
    let user = rustix::process::geteuid();
    if !user.is_root() {
        return Some(format!("takes root, and this is user {}", user.as_raw()));
    }
    for (device, module) in [("/dev/fuse", "fuse"), ("/dev/loop-control", "loop")] {
        if !Path::new(device).exists() {
            return Some(format!("takes {device}, which is missing (modprobe {module})"));
        }
    }
    None
}
