//! The file of `--out`. It is checked before the command begins, and written after its content was printed.

use crate::outcome::{Failure, Outcome};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use std::io;
use std::path::Path;

/// Refuses `file` if it could not be written in the end. Nothing is made, and what is there stays as it is.
pub(super) fn check(file: &Path) -> Outcome {
    writable(file).map_err(|error| Failure::BadInput(format!("--out {}: {error}", file.display())))
}

fn writable(file: &Path) -> io::Result<()> {
    let is_called_folder = file.as_os_str().as_encoded_bytes().ends_with(b"/");
    match file.metadata() {
        Ok(found) if found.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(_) => allowed(file, Access::WRITE_OK),
        Err(error) if error.kind() == io::ErrorKind::NotFound && !is_called_folder => {
            let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
            allowed(folder.unwrap_or(Path::new(".")), Access::WRITE_OK | Access::EXEC_OK)
        }
        Err(error) => Err(error),
    }
}

fn allowed(path: &Path, access: Access) -> io::Result<()> {
    Ok(accessat(CWD, path, access, AtFlags::EACCESS)?)
}

/// Writes `file`, after its content has been told: an error loses nothing else.
pub(super) fn write(file: &Path, content: &str) -> Outcome {
    std::fs::write(file, content)
        .map_err(|error| Failure::Failed(format!("{}: cannot write it: {error}", file.display())))
}
