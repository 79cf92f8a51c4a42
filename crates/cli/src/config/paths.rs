//! Paths in the file: made absolute, and short enough for sockets.

use std::path::{Component, Path, PathBuf};

/// `sun_path` of a Unix socket's address, with the zero byte at its end. Bytes.
pub(super) const SOCKET_PATH_BYTES_MAX: usize = 107;

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
