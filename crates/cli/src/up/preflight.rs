//! Whether this user on this machine can run the configuration; checked before anything changes.

use super::{plan, unserved};
use crate::config::{Backing, Configuration, Place, Problem, quoted};
use plimsoll_engine::cache::noted_cache_on;
use plimsoll_engine::kernel_user_of;
use plimsoll_serve::attach::foreign_mount;
use plimsoll_tags::TagsError;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
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

/// Volumes that are not served, for what lies in their files and caches.
fn unservable(configuration: &Configuration) -> Vec<Problem> {
    caches_as_volumes(configuration).into_iter().chain(unserved::volumes(configuration)).collect()
}

/// The same, and files and block devices that the kernel uses, as the start of a daemon finds them when it opens them.
pub(crate) fn refused(configuration: &Configuration) -> Vec<Problem> {
    let mut problems: Vec<Problem> = in_use(configuration).into_iter().chain(unservable(configuration)).collect();
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

/// The same, as lines; `None` if there are none.
pub(super) fn wrong_files(configuration: &Configuration) -> Option<String> {
    let file = configuration.file.display();
    let lines: Vec<String> = unservable(configuration).iter().map(|problem| format!("{file}:{problem}")).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// Mount points and mount options that would be refused later, perhaps after a volume was formatted.
pub(super) fn wrong_mounts(configuration: &Configuration) -> Option<String> {
    let mounts = configuration.volumes.iter().filter_map(|volume| volume.mount.as_ref());
    let lines: Vec<String> = mounts
        .filter_map(|mount| Some((&mount.place, mount.file_system.as_ref()?)))
        .flat_map(|(place, file_system)| {
            let wrong = |key: &str, got: String, allowed: &str| {
                let (file, line) = (configuration.file.display(), place.line_of(key));
                format!("{file}:{line}: {}: got {got}, allowed {allowed}", place.dotted(key))
            };
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
        .collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
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
