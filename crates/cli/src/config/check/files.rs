//! Files of volumes and caches that are there and cannot be what the configuration says. What is not there may come
//! before the daemon starts.

use crate::config::model::{Backing, Volume};
use crate::config::sections::Sections;
use crate::config::{Problem, quoted};
use plimsoll_core::ByteCount;
use plimsoll_engine::backend::check_key;
use plimsoll_settings::Place;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// `configuration` is the path of the file that is checked.
pub(super) fn check(sections: &Sections, configuration: &Path, problems: &mut Vec<Problem>) {
    for volume in &sections.volumes {
        let Backing::File { path, key_file } = &volume.backing else { continue };
        problems.extend(of_place(&volume.place, path, configuration).or_else(|| of_volume(volume, path)));
        problems.extend(key_file.as_deref().and_then(|key| of_key(volume, key)));
    }
    for cache in sections.caches.iter().filter(|cache| cache.place.is_understood("file")) {
        problems.extend(of_place(&cache.place, &cache.settings.path, configuration));
    }
}

/// Why a section cannot name this by its key `file`: it is neither a file nor a block device, or it is the
/// configuration itself.
fn of_place(place: &Place, path: &Path, configuration: &Path) -> Option<Problem> {
    let metadata = std::fs::metadata(path).ok()?;
    let (kind, shown) = (metadata.file_type(), quoted(&path.to_string_lossy()));
    if !kind.is_file() && !kind.is_block_device() {
        let what = if kind.is_dir() { "a directory" } else { "neither a file nor a block device" };
        return Some(place.problem("file", format!("{shown}, {what}"), "a regular file or a block device"));
    }
    let is_it = |other: std::fs::Metadata| (other.dev(), other.ino()) == (metadata.dev(), metadata.ino());
    let is_configuration = std::fs::metadata(configuration).is_ok_and(is_it);
    is_configuration.then(|| place.problem("file", format!("{shown}, this configuration"), "a file of its own"))
}

fn of_volume(volume: &Volume, path: &Path) -> Option<Problem> {
    let metadata = std::fs::metadata(path).ok()?;
    let (kind, shown) = (metadata.file_type(), quoted(&path.to_string_lossy()));
    let (has_bytes, size_bytes) = (metadata.len(), volume.size_bytes);
    let is_short = kind.is_file() && volume.place.is_understood("size") && has_bytes < size_bytes;
    is_short.then(|| {
        let (has, size) = (ByteCount(has_bytes), ByteCount(size_bytes));
        volume.place.problem(
            "size",
            format!("{size}, and {shown} has {has}"),
            "at most what the file has, or a longer file",
        )
    })
}

/// A key that this user may not read is read at the start, by the daemon's user.
fn of_key(volume: &Volume, key: &Path) -> Option<Problem> {
    if std::fs::File::open(key).is_err() {
        return None;
    }
    let error = check_key(key).err()?.to_string();
    let (is, allowed) =
        error.split_once(", allowed ").unwrap_or((&error, "a file of the daemon's user with 64 random bytes"));
    let (place, got) = (&volume.place, format!("{}: {is}", quoted(&key.to_string_lossy())));
    let (line, key) = (place.line_of("encryption"), format!("{}.key_file", place.dotted("encryption")));
    Some(Problem { line, key, got, allowed: allowed.to_owned() })
}
