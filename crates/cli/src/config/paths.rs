//! Paths in the file: made absolute, and short enough for sockets.

pub(super) use plimsoll_serve::connection::address::UNIX_PATH_BYTES_MAX as SOCKET_PATH_BYTES_MAX;
use plimsoll_settings::{Place, Problem, quoted};
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

pub(super) fn path(text: &str, directory: &Path) -> Result<PathBuf, String> {
    if text.is_empty() || text.chars().any(char::is_control) {
        return Err("a path that is not empty and has no control characters".into());
    }
    Ok(normal(&directory.join(text)))
}

/// `path` without `.` and `..`, as it is written: symbolic links are not followed.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => _ = normal.pop(),
            other => normal.push(other),
        }
    }
    normal
}

pub(super) fn socket(text: &str, directory: &Path) -> Result<PathBuf, String> {
    bounded(path(text, directory)?, SOCKET_PATH_BYTES_MAX)
}

pub(super) fn bounded(path: PathBuf, bytes_max: usize) -> Result<PathBuf, String> {
    match path.as_os_str().len() {
        length if length > bytes_max => Err(format!("a path of at most {bytes_max} bytes (it has {length})")),
        _ => Ok(path),
    }
}

/// Why the section at `place` cannot name this file by its key `key`. It is neither a file nor a block device, or it is
/// the configuration itself. A file that is not there may come before the daemon starts.
pub(super) fn refused_file(place: &Place, key: &str, path: &Path, configuration: &Path) -> Option<Problem> {
    let metadata = std::fs::metadata(path).ok()?;
    let (kind, shown) = (metadata.file_type(), quoted(&path.to_string_lossy()));
    if !kind.is_file() && !kind.is_block_device() {
        let what = if kind.is_dir() { "a directory" } else { "neither a file nor a block device" };
        return Some(place.problem(key, format!("{shown}, {what}"), "a regular file or a block device"));
    }
    let is_it = |other: Metadata| (other.dev(), other.ino()) == (metadata.dev(), metadata.ino());
    let is_configuration = std::fs::metadata(configuration).is_ok_and(is_it);
    is_configuration.then(|| place.problem(key, format!("{shown}, this configuration"), "a file of its own"))
}
